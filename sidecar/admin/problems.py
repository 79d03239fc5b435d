"""Errors as RFC 9457 problem details: what went wrong in words, never a stack trace."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from sidecar.errors import Busy, NotFound, SidecarError, SourceError
from sidecar.logs import RateLimited

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 1


@dataclass(frozen=True, slots=True)
class Problem:
    """Problem details (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


def problem(status: int, detail: str) -> Problem:
    return Problem("about:blank", HTTPStatus(status).phrase, status, detail)


def problem_response(status: int, detail: str) -> JSONResponse:
    return JSONResponse(asdict(problem(status, detail)), status, media_type=MEDIA_TYPE)


def handle_problems(app: FastAPI) -> None:
    """Answer every error of the application this way."""
    app.state.repeating = RateLimited(log)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(NotFound, _not_found)
    app.add_exception_handler(Busy, _busy)
    app.add_exception_handler(SourceError, _unreachable)
    app.add_exception_handler(SidecarError, _conflict)
    app.add_exception_handler(Exception, _unexpected)


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    response = problem_response(error.status_code, str(error.detail))
    response.headers.update(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        response.headers["allow"] = ", ".join(sorted(_methods(request)))
    return response


async def _invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    mistakes = [
        f"{'.'.join(str(part) for part in each['loc'][1:])}: {each['msg']}"
        for each in error.errors()
    ]
    return problem_response(HTTPStatus.UNPROCESSABLE_ENTITY, "; ".join(mistakes))


def _methods(request: Request) -> set[str]:
    """What the address takes, by all of its routes: the framework tells of the first one only."""
    return {
        method
        for route in request.app.state.resources
        if route.matches(request.scope)[0] is not Match.NONE
        for method in route.methods
    }


async def _not_found(_request: Request, error: Exception) -> JSONResponse:
    return problem_response(HTTPStatus.NOT_FOUND, str(error))


async def _conflict(_request: Request, error: Exception) -> JSONResponse:
    return problem_response(HTTPStatus.CONFLICT, str(error))


async def _busy(_request: Request, error: Exception) -> JSONResponse:
    return _later(HTTPStatus.TOO_MANY_REQUESTS, error)


async def _unreachable(_request: Request, error: Exception) -> JSONResponse:
    return _later(HTTPStatus.SERVICE_UNAVAILABLE, error)


def _later(status: HTTPStatus, error: Exception) -> JSONResponse:
    response = problem_response(status, str(error))
    response.headers["retry-after"] = str(RETRY_SECONDS)
    return response


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    # Whoever asks again and again does not fill the log.
    repeating: RateLimited = request.app.state.repeating
    key, path = (request.method, type(error)), request.url.path
    repeating.limited(key, logging.ERROR, "%s %s failed", request.method, path, exc_info=error)
    return problem_response(HTTPStatus.INTERNAL_SERVER_ERROR, "see the sidecar's log")
