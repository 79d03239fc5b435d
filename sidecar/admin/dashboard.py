"""The dashboard: one page, and the files it is made of, as they lie in the folder page/.

Invariants:
* Only files that are named here are served, whatever an address says.
* A browser that shows the page loads, runs and asks nothing but the sidecar's own.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Final

from fastapi import APIRouter, HTTPException, Response
from fastapi import Path as InPath

router = APIRouter(include_in_schema=False)

FOLDER: Final = Path(__file__).parent / "page"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}
HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


@router.get("/")
async def index() -> Response:
    return _served("index.html")


@router.get("/page/{name:path}")
async def part(name: Annotated[str, InPath()]) -> Response:
    return _served(name)


def _served(name: str) -> Response:
    if name not in names():
        raise HTTPException(404, "the dashboard has no such part")
    return Response(content(name), media_type=_TYPES[Path(name).suffix], headers=HEADERS)


@cache
def names() -> frozenset[str]:
    return frozenset(
        each.relative_to(FOLDER).as_posix() for each in FOLDER.rglob("*") if each.suffix in _TYPES
    )


@cache
def content(name: str) -> bytes:
    return (FOLDER / name).read_bytes()
