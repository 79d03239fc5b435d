"""Errors as RFC 9457 problem details: what went wrong in words, never a stack trace."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Problem:
    """Problem details (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


def problem_response(status: int, detail: str) -> JSONResponse:
    problem = Problem("about:blank", HTTPStatus(status).phrase, status, detail)
    return JSONResponse(asdict(problem), status, media_type=MEDIA_TYPE)


def handle_problems(app: FastAPI) -> None:
    """Answer every error of the application this way."""
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(Exception, _unexpected)


async def _http(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    response = problem_response(error.status_code, str(error.detail))
    response.headers.update(error.headers or {})
    return response


async def _invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    mistakes = [
        f"{'.'.join(str(part) for part in each['loc'][1:])}: {each['msg']}"
        for each in error.errors()
    ]
    return problem_response(HTTPStatus.UNPROCESSABLE_ENTITY, "; ".join(mistakes))


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem_response(HTTPStatus.INTERNAL_SERVER_ERROR, "see the sidecar's log")
