"""Every request passes here first: by whom, under which name, and what its answer may do.

Pure ASGI around the whole application, so that no route can be added beside it. Only GET and HEAD
are served, and the way by which NiceGUI refreshes pages: a websocket, or POST where there is none.
The login takes a POST, too.
Tested in tests/web/test_gate.py.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from web.guard.headers import headers, with_nonce
from web.guard.listening import Listening, may_ask
from web.guard.login import Login

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

SOCKET = "/_nicegui_ws/"
"""Where NiceGUI's pages talk to their server; its long polling needs POST."""
OPEN_PATHS = frozenset({"/login", "/healthz", "/muslin/web.css"})
"""What is served without a login."""


class Gate:
    """The application behind its guards. `login` None: this machine's loopback needs none."""

    def __init__(self, app: App, where: Listening, login: Login | None) -> None:
        self.app, self._where, self._login = app, where, login

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        given = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        refusal = self._refusal(scope, given)
        if refusal:
            await _refuse(scope, send, *refusal)
            return
        path = str(scope["path"])
        if scope["type"] == "http" and path == "/healthz":
            await _answer(send, 200, b"ok\n")
            return
        if self._login is not None and not await self._login.admits(given):
            if scope["type"] == "http" and path == "/login":
                await self._login.page(scope, receive, _guarded(send))
            elif path in OPEN_PATHS:
                await self.app(scope, receive, _guarded(send))
            else:
                await _to_login(scope, send)
            return
        if scope["type"] == "websocket":
            await self.app(scope, receive, send)
        else:
            await self.app(scope, receive, _guarded(send))

    def _refusal(self, scope: Scope, given: dict[str, str]) -> tuple[int, bytes] | None:
        if not may_ask(given.get("host", ""), given.get("origin", ""), self._where.names):
            return 403, b"this name or origin is not served; see docs/web.md\n"
        path, method = str(scope["path"]), scope.get("method", "GET")
        posting = path.startswith(SOCKET) or (path == "/login" and self._login is not None)
        if method not in ("GET", "HEAD") and not (method == "POST" and posting):
            return 405, b"this page only reads\n"
        return None


def _guarded(send: Send) -> Send:
    """`send` that adds headers to an answer, and the nonce to an HTML page."""
    nonce = secrets.token_urlsafe(18)
    begun: list[Message] = []
    body = bytearray()

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            fixed = [one for one in message.get("headers", []) if one[0].lower() != b"server"]
            started: Message = {**message, "headers": [*fixed, *headers(nonce)]}
            kind = dict(fixed).get(b"content-type", b"")
            if kind.startswith(b"text/html"):
                begun.append(started)
                return
            await send(started)
        elif message["type"] == "http.response.body" and begun:
            body.extend(message.get("body", b""))
            if message.get("more_body"):
                return
            whole = with_nonce(bytes(body), nonce)
            started = begun.pop()
            kept = [one for one in started["headers"] if one[0].lower() != b"content-length"]
            kept += [(b"content-length", str(len(whole)).encode()), (b"cache-control", b"no-store")]
            await send({**started, "headers": kept})
            await send({**message, "body": whole})
        else:
            await send(message)

    return sending


async def _refuse(scope: Scope, send: Send, status: int, body: bytes) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
    else:
        await _answer(send, status, body)


async def _to_login(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    if scope["path"].startswith(("/_nicegui", "/muslin")):
        await _answer(send, 401, b"log in first\n")
        return
    await _answer(send, 303, b"", [(b"location", b"/login")])


async def _answer(
    send: Send, status: int, body: bytes, more: list[tuple[bytes, bytes]] | None = None
) -> None:
    given = [(b"content-type", b"text/plain; charset=utf-8"), *headers(""), *(more or [])]
    given.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": given})
    await send({"type": "http.response.body", "body": body})
