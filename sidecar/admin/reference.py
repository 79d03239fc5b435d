"""The API's description: for tools, and as a page to read, with nothing from elsewhere.

Both are made when the first reader asks, and kept: whoever asks again and again costs the loop
nothing. Whoever wants to try requests has /openapi.json and a tool of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from html import escape
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

router = APIRouter()

_HEADERS: Final = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
_PAGE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto }}
h3 {{ margin: 2rem 0 0 }} code {{ font: .9em ui-monospace, monospace }}
table {{ border-collapse: collapse; width: 100% }}
td {{ border-top: 1px solid #8886; padding: .25rem .75rem .25rem 0; vertical-align: top }}
</style>
<h1>{title}</h1>
<p>{summary} As a document for tools: <a href="openapi.json">openapi.json</a>. What is marked with a
key needs <code>Authorization: Bearer</code> with the token, or the Unix socket; errors are
<code>application/problem+json</code>.</p>
{operations}
</html>
"""


@router.get("/openapi.json", include_in_schema=False)
async def description(request: Request) -> Response:
    return Response(_document(request.app), media_type="application/json")


@router.get("/docs", include_in_schema=False)
async def reference(request: Request) -> HTMLResponse:
    return HTMLResponse(_page(request.app), headers=_HEADERS)


@lru_cache(maxsize=1)
def _document(app: Any) -> bytes:
    return json.dumps(app.openapi()).encode()


@lru_cache(maxsize=1)
def _page(app: Any) -> str:
    document = app.openapi()
    info = document["info"]
    return _PAGE.format(
        title=escape(info["title"]),
        summary=escape(info["summary"]),
        operations="\n".join(_operations(document)),
    )


def _operations(document: Mapping[str, Any]) -> Iterator[str]:
    section = None
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if operation["tags"][0] != section:
                section = operation["tags"][0]
                yield f"<h2>{escape(section)}</h2>"
            key = " \N{KEY}" if "security" in operation else ""
            yield f"<h3><code>{method.upper()} {escape(path)}</code>{key}</h3>"
            about = f"{operation['summary']}. {operation.get('description', '')}"
            yield f"<p>{escape(about)}</p>"
            rows = [*_parameters(operation), *_fields(document, operation)]
            if rows:
                yield f"<table>{''.join(rows)}</table>"


def _parameters(operation: Mapping[str, Any]) -> Iterator[str]:
    for each in operation.get("parameters", ()):
        yield _row(each["name"], each["in"], each.get("description", ""), each["schema"])


def _fields(document: Mapping[str, Any], operation: Mapping[str, Any]) -> Iterator[str]:
    body = operation.get("requestBody")
    if body is None:
        return
    name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    for field, schema in document["components"]["schemas"][name]["properties"].items():
        yield _row(field, "body", schema.get("description", ""), schema)


def _row(name: str, place: str, about: str, schema: Mapping[str, Any]) -> str:
    cells = (f"<code>{escape(name)}</code>", place, escape(_type(schema)), escape(about))
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _type(schema: Mapping[str, Any]) -> str:
    """In words: integer 1 to 1000."""
    if "anyOf" in schema:
        kinds = dict.fromkeys(map(_type, schema["anyOf"]))
        return " or ".join(kinds)
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    low, high = schema.get("minimum"), schema.get("maximum")
    return (
        kind
        + (f" from {low:g}" if low is not None else "")
        + (f" to {high:g}" if high is not None else "")
    )
