"""Start and stop: where to listen, who may ask, and an end without broken answers."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secondsight.errors import ConfigError
from secondsight.extras import require
from secondsight.serve.request_limits import Limits

if TYPE_CHECKING:
    from secondsight.index import Index

LOOPBACK = {"localhost", "127.0.0.1", "[::1]"}
LEAST_TOKEN = 16  # characters


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return host == "localhost"


def check_token(host: str, token: str | None) -> None:
    """Refuse to show a collection to whoever passes by."""
    if token is not None and (len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable()):
        raise ConfigError(
            f'a token has {LEAST_TOKEN} or more plain characters; make one: --token "$(openssl rand -hex 16)"'
        )
    if token is not None and any(c in token for c in ' ";,\\'):
        raise ConfigError("a token has letters, digits and - . _ ~ only, so that it fits into a cookie")
    if token is None and not is_loopback(host):
        raise ConfigError(
            f'{host} can be reached by others, who would see every picture; give --token "$(openssl rand -hex 16)", '
            "or stay on 127.0.0.1"
        )


def listen(host: str, port: int) -> socket.socket:
    """A socket on the address; an error that says what is in the way."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host.strip("[]"), port))
    except (OSError, OverflowError) as error:
        made.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{host}:{port}: {reason}; choose another with --port, or 0 for any that is free") from error
    return made


def serve(
    indexes: Sequence[Index],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    limits: Limits | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until a signal comes; requests that are being answered then are finished.

    Args:
        indexes: What to serve.
        host, port: Where; port 0 takes one that is free.
        token: Needed for any address that others can reach.
        limits: What a request may cost.
        ready: Called with the page's address once it can be opened.
    """
    uvicorn = require("uvicorn", extra="serve", purpose="serving")
    require("fastapi", extra="serve", purpose="serving")
    require("httptools", extra="serve", purpose="serving")
    require("python_multipart", extra="serve", purpose="uploads")
    check_token(host, token)
    limits = limits or Limits()
    bound = listen(host, port)
    from secondsight.serve.connections import Patient
    from secondsight.serve.routes import application

    hosts = LOOPBACK | {host} if is_loopback(host) else None
    app = application(indexes, token=token, hosts=hosts, limits=limits)
    config = uvicorn.Config(
        app,
        http=Patient,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=10,
        ws="none",
        backlog=128,
    )
    shown = "localhost" if is_loopback(host) else host if host not in ("0.0.0.0", "::") else socket.gethostname()
    address = f"http://{f'[{shown}]' if ':' in shown else shown}:{bound.getsockname()[1]}/"
    server = uvicorn.Server(config)
    try:
        with asyncio.Runner(loop_factory=_loop()) as runner:
            runner.run(_run(server, bound, None if ready is None else lambda: ready(address)))
    except KeyboardInterrupt:
        pass
    finally:
        bound.close()


def _loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed: it is quicker than Python's own."""
    try:
        import uvloop  # pyright: ignore[reportMissingImports]
    except ImportError:  # Windows has none
        return None
    return uvloop.new_event_loop


async def _run(server: Any, bound: socket.socket, ready: Callable[[], None] | None) -> None:
    # uvicorn would end by the signal that stopped it; an end that was asked for is no failure.
    server.capture_signals = contextlib.nullcontext
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C is a KeyboardInterrupt there
            loop.add_signal_handler(number, server.handle_exit, number, None)
    running = asyncio.create_task(server.serve(sockets=[bound]))
    while not server.started and not running.done():
        await asyncio.sleep(0.02)
    if ready is not None and server.started:
        ready()
    await running


def demo_index() -> Path | None:
    """The demo's collection, where there is one."""
    for place in (Path("runs/demo/emoji.index"), Path("runs/demo/demo.index")):
        if (place / "index.sqlite").is_file():
            return place
    return None
