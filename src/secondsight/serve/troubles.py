"""Errors as JSON: what is wrong, and what to do about it."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from secondsight.data.loading.decode import DecodeError
from secondsight.errors import ConfigError, MissingExtra, SecondsightError, UnknownName
from secondsight.serve.request_limits import Limits
from secondsight.serve.service import Busy, Gone
from secondsight.terminal import plain

log = logging.getLogger("secondsight.serve")

STATUS: dict[type[Exception], tuple[int, str]] = {
    Gone: (404, "search again"),
    Busy: (503, "try again in a moment"),
    DecodeError: (
        422,
        "send a JPEG, PNG, WebP or another common format; open it in a viewer to see whether it is whole",
    ),
    MissingExtra: (501, "install the package that is named"),
    UnknownName: (422, "use one of the valid names"),
    ConfigError: (422, "see /openapi.json for what can be asked"),
    SecondsightError: (422, "see /openapi.json for what can be asked"),
}
"""Kind of error → status and what to do, where the message itself does not say it."""


def trouble(status: int, error: str, cure: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": plain(error), "cure": plain(cure)}, status, headers)


def split(message: str, cure: str) -> tuple[str, str]:
    """Our messages end in the cure, after a semicolon.

    >>> split("no item 9; ids are not used again", "ask again")
    ('no item 9', 'ids are not used again')
    """
    cause, _, rest = message.partition("; ")
    return (cause, rest) if rest else (message, cure)


def install(app: FastAPI, limits: Limits) -> None:
    """Every error of ``app`` becomes JSON."""

    @app.exception_handler(SecondsightError)
    async def ours(_: Request, error: Exception) -> JSONResponse:
        status, cure = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
        headers = {"retry-after": str(limits.retry)} if status == 503 else None
        said = str(error)
        if isinstance(error, DecodeError):  # of a picture that has no path
            said = said.replace(f"{error.source}: ", f"{error.source} ", 1)
        return trouble(status, *split(said, cure), headers)

    @app.exception_handler(RequestValidationError)
    @app.exception_handler(ValidationError)
    async def invalid(_: Request, error: Any) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part != "body")
        return trouble(
            422, f"{place or 'the request'}: {first['msg']}"[:500], "see /openapi.json for what can be asked"
        )

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: Any) -> JSONResponse:
        cures = {404: "see /openapi.json for the addresses", 405: "see /openapi.json for the methods"}
        said = str(error.detail)
        return trouble(error.status_code, said, cures.get(error.status_code, "send it again"), error.headers)

    @app.exception_handler(RecursionError)
    async def deep(_: Request, __: Exception) -> JSONResponse:
        return trouble(422, "the request is nested too deeply", "see /openapi.json for what can be asked")

    @app.exception_handler(Exception)
    async def unknown(request: Request, error: Exception) -> JSONResponse:
        log.exception("%s %s", request.method, request.url.path, exc_info=error)
        return trouble(500, "an error of the server; its log says more", "report it with what you asked for")
