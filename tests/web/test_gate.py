"""Every request passes the gate: names, methods, logins, headers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from web.guard.gate import Gate
from web.guard.listening import Listening, listening
from web.guard.login import COOKIE, Login
from web.guard.reviews import Verdict

LOCAL = listening("127.0.0.1", 8091, review=False)


async def app(scope: Any, receive: Any, send: Any) -> None:
    """A page with a script, in two parts."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
        return
    kind = b"text/css" if scope["path"].endswith(".css") else b"text/html; charset=utf-8"
    given = [(b"content-type", kind), (b"content-length", b"17"), (b"server", b"x")]
    await send({"type": "http.response.start", "status": 200, "headers": given})
    await send({"type": "http.response.body", "body": b"<script>", "more_body": True})
    await send({"type": "http.response.body", "body": b"x</script>"})


def asked(
    path: str = "/map",
    method: str = "GET",
    login: Login | None = None,
    where: Listening = LOCAL,
    kind: str = "http",
    body: bytes = b"",
    **given: str,
) -> list[dict[str, Any]]:
    """The messages of the answer to one request."""
    sent: list[dict[str, Any]] = []
    fields = {"host": "127.0.0.1:8091", **given}
    scope = {
        "type": kind, "path": path, "method": method, "scheme": "https",
        "headers": [(name.replace("_", "-").encode(), value.encode())
                    for name, value in fields.items()],
    }  # fmt: skip

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    asyncio.run(Gate(app, where, login)(scope, receive, send))
    return sent


def login(refusal: str = "") -> Login:
    """A login that takes every token, or refuses all."""

    async def review(token: str) -> Verdict:
        return Verdict("eve", refusal if token else "no token")

    return Login(review)


def test_a_page_gets_headers_and_a_nonce_of_its_own() -> None:
    first, second = asked(), asked()
    headers = dict(first[0]["headers"])
    assert headers[b"content-length"] == str(len(first[1]["body"])).encode()
    assert b"server" not in headers
    assert b"content-security-policy" in headers
    assert b'<script nonce="' in first[1]["body"]
    assert first[1]["body"] != second[1]["body"]


def test_a_file_is_passed_on_with_the_headers() -> None:
    sent = asked("/muslin/web.css")
    assert b"content-security-policy" in dict(sent[0]["headers"])
    assert sent[1]["body"] == b"<script>"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_it_only_reads(method: str) -> None:
    assert asked(method=method)[0]["status"] == 405
    assert asked("/login", method)[0]["status"] == 405


def test_other_names_and_origins_get_nothing() -> None:
    assert asked(host="evil.example")[0]["status"] == 403
    assert asked(origin="http://evil.example")[0]["status"] == 403
    refused = asked("/_nicegui_ws/socket.io", kind="websocket", origin="http://evil.example")
    assert refused == [{"type": "websocket.close", "code": 1008}]
    assert asked("/_nicegui_ws/socket.io", kind="websocket")[0]["type"] == "websocket.accept"


def test_with_a_login_nothing_is_served_before() -> None:
    door = login()
    for path in ("/", "/map", "/health", "/nonsense"):
        sent = asked(path, login=door)
        assert sent[0]["status"] == 303
        assert dict(sent[0]["headers"])[b"location"] == b"/login"
        assert sent[1]["body"] == b""
    for path in ("/_nicegui/3/static/x.js", "/_nicegui_ws/socket.io"):
        assert asked(path, login=door)[0]["status"] == 401
    assert asked("/_nicegui_ws/x", kind="websocket", login=door)[0]["type"] == "websocket.close"
    assert asked("/muslin/web.css", login=door)[0]["status"] == 200
    assert asked("/healthz", login=door)[0]["status"] == 200


def test_a_token_opens_a_session_that_the_browser_cannot_read() -> None:
    door = login()
    page = asked("/login", login=door)
    assert b"Paste a token" in page[1]["body"]
    sent = asked("/login", "POST", door, body=b"token=canary")
    assert sent[0]["status"] == 303
    cookie = dict(sent[0]["headers"])[b"set-cookie"].decode()
    assert "HttpOnly; SameSite=Strict; Secure" in cookie
    assert "canary" not in str(sent)
    secret = cookie.partition(";")[0]
    assert asked(login=door, cookie=secret)[0]["status"] == 200
    assert asked(login=door, cookie=f"{COOKIE}=other")[0]["status"] == 303
    assert asked(login=door, authorization="Bearer canary")[0]["status"] == 200


def test_a_refused_token_says_why_and_opens_nothing() -> None:
    sent = asked("/login", "POST", login("eve may not"), body=b"token=canary")
    assert sent[0]["status"] == 403
    assert b"eve may not" in sent[1]["body"]
    assert b"canary" not in sent[1]["body"]
    assert b"set-cookie" not in dict(sent[0]["headers"])
    assert asked(login=login("no"), authorization="Bearer canary")[0]["status"] == 303
