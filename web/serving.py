"""The server: NiceGUI behind the gate, on one address, until it is told to end.

Tested in tests/web/test_serving.py.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path

from libcalico.errors import MuslinError
from libcalico.process import tasks
from web.facts.asking import Asking
from web.facts.keeper import Keeper
from web.guard.gate import App, Gate
from web.guard.listening import Listening
from web.guard.login import Login

STYLE = Path(__file__).parent / "pages" / "web.css"


def application(keeper: Keeper, asking: Asking, where: Listening, login: Login | None) -> App:
    """The whole application. Imports NiceGUI; raises MuslinError where that is not installed."""
    # NiceGUI keeps state of its users below the working directory otherwise.
    os.environ.setdefault("NICEGUI_STORAGE_PATH", os.devnull)
    try:
        from fastapi import FastAPI
        from fastapi.responses import FileResponse
        from nicegui import ui
        from starlette.middleware.gzip import GZipMiddleware
    except ImportError as problem:
        raise MuslinError(
            f"the page needs the extra `web`, which is not installed ({problem.name} is missing):"
            " pip install 'muslin[web]'"
        ) from None
    from web.pages.pages import register

    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

    async def style() -> FileResponse:
        return FileResponse(STYLE, media_type="text/css")

    app.get("/muslin/web.css")(style)
    register(keeper, asking)
    ui.add_head_html('<link rel="stylesheet" href="/muslin/web.css">', shared=True)
    ui.run_with(
        app,
        title="Muslin",
        dark=None,
        language="en-US",
        tailwind=False,
        gzip_middleware_factory=None,
        reconnect_timeout=10.0,
        show_welcome_message=False,
    )
    whole: App = GZipMiddleware(Gate(app, where, login), minimum_size=1000, compresslevel=5)
    return whole


async def serve(
    keeper: Keeper,
    asking: Asking,
    where: Listening,
    taken: socket.socket,
    login: Login | None,
    started: Callable[[str], None],
) -> None:
    """Serve on a socket that listens, until a signal comes. Raises MuslinError.

    `started` gets the address to look at once requests are taken.
    """
    app = application(keeper, asking, where, login)
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ssl_certfile=where.certificate or None,
        ssl_keyfile=where.key or None,
        ws_max_size=2 * 1024 * 1024,
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    host, port = taken.getsockname()[:2]
    shown = Listening(host, port, where.review, where.certificate, where.key)
    async with tasks.beside(keeper.run(), name="reading of facts"):
        started(shown.url)
        await server.serve(sockets=[taken])


def bound(where: Listening) -> socket.socket:
    """A socket on the address. Raises MuslinError where it is taken."""
    family = socket.AF_INET6 if ":" in where.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((where.host, where.port))
        # From here on requests wait, so the address can be told.
        made.listen(128)
    except OSError as problem:
        made.close()
        raise MuslinError(
            f"cannot listen on {where.host} port {where.port}: {problem.strerror};"
            " --port chooses another one"
        ) from None
    return made


def inherited(descriptor: int) -> socket.socket:
    """The socket that a parent handed over. Raises MuslinError unless it listens on loopback."""
    try:
        made = socket.socket(fileno=descriptor)
        host = made.getsockname()[0]
        loopback = ip_address(host).is_loopback
    except (OSError, OverflowError, ValueError, IndexError) as problem:
        raise MuslinError(f"--fd {descriptor} is no socket of an IP address: {problem}") from None
    if not loopback:
        made.detach()
        raise MuslinError(f"--fd {descriptor} is a socket on {host}: only loopback is served by it")
    return made
