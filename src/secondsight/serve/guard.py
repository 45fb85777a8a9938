"""What stands before every request: who may ask, how much, for how long; and the headers of every answer.

A body is taken in completely, within its bounds, before anything looks at it: a slow client holds a little memory, but
no place in the queue.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from secondsight.serve.request_limits import Limits

if TYPE_CHECKING:
    from secondsight.serve.decoders import Decoders
    from secondsight.serve.metrics import Metrics

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

COOKIE = "secondsight"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "manifest-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
    "permissions-policy": "geolocation=(), microphone=()",
}
OWN = [(k.encode(), v.encode()) for k, v in {"cache-control": "no-store", **HEADERS}.items()]
OPEN = {"/healthz"}  # needs no token and no place in the queue


class Refused(Exception):
    """A request that goes no further."""

    def __init__(self, status: int, error: str, cure: str, **headers: str):
        self.status, self.error, self.cure, self.headers = status, error, cure, headers


class Guard:
    """ASGI: checks, then the application."""

    def __init__(
        self,
        app: Any,
        *,
        token: str | None,
        hosts: set[str] | None,
        limits: Limits,
        metrics: Metrics,
        decoders: Decoders,
    ):
        self.app, self.token, self.hosts, self.limits, self.metrics = app, token, hosts, limits, metrics
        self.decoders = decoders
        self.working = self.arriving = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        start, status, begun = time.perf_counter(), 500, False

        async def answer(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
                given = {name.lower() for name, _ in message.get("headers", [])}
                more = [(name, value) for name, value in OWN if name not in given]
                message = {**message, "headers": [*message.get("headers", []), *more]}
            await send(message)

        try:
            await self._checked(scope, receive, answer)
        except Refused as refused:
            if not begun:
                await _refuse(answer, refused)
        except TimeoutError:
            if not begun:
                await _refuse(answer, Refused(504, "this took too long", "ask for less, or try again later"))
        finally:
            address = getattr(scope.get("route"), "path", "other")
            self.metrics.requests.labels(address, str(status)).inc()
            self.metrics.seconds.labels(address).observe(time.perf_counter() - start)

    async def _checked(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if self.hosts is not None and _host(headers.get("host", "")) not in self.hosts:
            # A page elsewhere whose name was made to lead here (DNS rebinding) must not read the collection.
            raise Refused(421, "this server answers to localhost only", "use the address that it printed")
        if scope["path"] not in OPEN:
            await self._known(scope, headers, send)
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and scope["path"].startswith("/api"):
            # "same-site" is a page on another port of this machine, or on a neighbouring host.
            raise Refused(403, "a page of another site asked for this", "open the page of this server")
        body = await self._body(headers, receive)
        if scope["path"] in OPEN:
            await self.app(scope, _replay(body, receive), send)
            return
        if self.working >= self.limits.waiting:
            self.metrics.refused.inc()
            raise _later(self.limits.retry)
        self.working += 1
        try:
            async with asyncio.timeout(self.limits.working):
                await self.app(scope, _replay(body, receive), send)
        finally:
            self.working -= 1

    async def _known(self, scope: Scope, headers: dict[str, str], send: Send) -> None:
        """Only who has the token; it may come in a header, in the cookie, or once in the page's address."""
        if self.token is None:
            return
        scheme, _, word = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(word.strip(), self.token):
            return
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            cookie = None
        if cookie is not None and _same(cookie.value, self.token):
            return
        asked = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=20).get("token", [""])[0]
        if scope["path"] == "/" and scope["method"] == "GET" and _same(asked, self.token):
            kept = f"{COOKIE}={self.token}; HttpOnly; SameSite=Strict; Path=/"
            raise Refused(303, "", "", location="/", **{"set-cookie": kept})
        raise Refused(
            401,
            "this server needs its token",
            "send 'Authorization: Bearer TOKEN', or open the address that the server printed",
            **{"www-authenticate": "Bearer"},
        )

    async def _body(self, headers: dict[str, str], receive: Receive) -> bytes:
        most = self.limits.upload
        large = Refused(413, f"more than {most >> 20} MB", "send a smaller picture", connection="close")
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > most:
            raise large
        if self.arriving >= 2 * self.limits.waiting:
            self.metrics.refused.inc()
            raise _later(self.limits.retry)
        self.arriving += 1
        content = bytearray()
        try:
            async with asyncio.timeout(self.limits.arrival):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(400, "the client went away", "send it again")
                    content += message.get("body", b"")
                    if len(content) > most:
                        raise large
                    if not message.get("more_body"):
                        return bytes(content)
        except TimeoutError as error:
            slow = f"the request took more than {self.limits.arrival:g} s to arrive"
            raise Refused(408, slow, "send a smaller picture", connection="close") from error
        finally:
            self.arriving -= 1


def _later(retry: int, **headers: str) -> Refused:
    return Refused(503, "the server is busy", f"try again in {retry} s", **{"retry-after": str(retry)}, **headers)


async def full(scope: Scope, receive: Receive, send: Send) -> None:
    """ASGI: what is answered on a connection too many."""
    await _refuse(send, _later(1, connection="close"))


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body that is here already, then whatever else the client does."""
    given = False

    async def once() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return once


async def _refuse(send: Send, refused: Refused) -> None:
    body = json.dumps({"error": refused.error, "cure": refused.cure}).encode() if refused.error else b""
    headers = {"content-type": "application/json", "content-length": str(len(body)), **refused.headers}
    await send(
        {
            "type": "http.response.start",
            "status": refused.status,
            "headers": [(k.encode(), v.encode()) for k, v in headers.items()],
        }
    )
    await send({"type": "http.response.body", "body": body})


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def _host(header: str) -> str:
    """The name in a Host header, without the port."""
    return header.rpartition(":")[0] if header.rpartition(":")[2].isdigit() else header
