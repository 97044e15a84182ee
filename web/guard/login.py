"""Who may look, in a cluster: a token of Kubernetes is reviewed, a session of random bits stands
for it, and the browser keeps neither token nor name.

Invariants:
  WEB-3  With token review nothing but the login page is served to a request without a session
         or a bearer token that the API server takes, and a token is asked about again after AGAIN
         seconds.
Tested in tests/web/test_login.py.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from libcalico.errors import MuslinError
from web.drawing.markup import Html, notice, tag
from web.guard.reviews import Verdict

COOKIE = "muslin-web"
AGAIN = 60.0
LASTS = 8 * 3600.0
MOST = 1000
LARGEST = 32_768
"""Bytes of a login's body."""
FAILURES, WINDOW = 20, 60.0
"""Refused logins that are taken within so many seconds; after these, none is until it passes."""

Reviewing = Callable[[str], Awaitable[Verdict]]


@dataclass(slots=True)
class _Session:
    token: str
    began: float
    reviewed: float


class Login:
    """Sessions of those who showed a token that may look."""

    def __init__(self, review: Reviewing, clock: Callable[[], float] = time.monotonic) -> None:
        self._review, self._clock = review, clock
        self._sessions: dict[str, _Session] = {}
        self._bearers: dict[str, float] = {}
        self._failures: list[float] = []

    async def admits(self, given: Mapping[str, str]) -> bool:
        """Whether a request with these headers comes from one who may look."""
        scheme, _, token = given.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token:
            return await self._bearer(token.strip())
        return await self._session(_cookie(given.get("cookie", "")))

    async def _bearer(self, token: str) -> bool:
        name, now = _digest(token), self._clock()
        if now - self._bearers.get(name, float("-inf")) < AGAIN:
            return True
        if not await self._allowed(token):
            self._bearers.pop(name, None)
            return False
        if len(self._bearers) >= MOST:
            self._bearers.clear()
        self._bearers[name] = now
        return True

    async def _session(self, secret: str) -> bool:
        name, now = _digest(secret), self._clock()
        session = self._sessions.get(name)
        if session is None:
            return False
        if now - session.began > LASTS:
            del self._sessions[name]
            return False
        if now - session.reviewed < AGAIN:
            return True
        if not await self._allowed(session.token):
            self._sessions.pop(name, None)
            return False
        session.reviewed = now
        return True

    async def _allowed(self, token: str) -> bool:
        try:
            return not (await self._review(token)).refusal
        except MuslinError:
            return False

    async def page(self, scope: Mapping[str, object], receive: object, send: object) -> None:
        """GET shows the form; POST takes a token and begins a session."""
        assert callable(receive)
        assert callable(send)
        if scope["method"] != "POST":
            await _html(send, 200, form(""))
            return
        body = bytearray()
        while len(body) <= LARGEST:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        status, refusal, secret = await self.begin(bytes(body))
        if refusal:
            await _html(send, status, form(refusal))
            return
        secure = "; Secure" if scope.get("scheme") == "https" else ""
        cookie = (
            f"{COOKIE}={secret}; Path=/; HttpOnly; SameSite=Strict{secure}; Max-Age={LASTS:.0f}"
        )
        given = [(b"location", b"/"), (b"set-cookie", cookie.encode()), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 303, "headers": given})
        await send({"type": "http.response.body", "body": b""})

    async def begin(self, body: bytes) -> tuple[int, str, str]:
        """The status, why there is no session, and the secret of the new one."""
        now = self._clock()
        self._failures = [one for one in self._failures if now - one < WINDOW]
        if len(self._failures) >= FAILURES:
            return 429, f"too many refused logins; try again in {WINDOW:.0f} seconds", ""
        if len(body) > LARGEST:
            return 413, "that is no token", ""
        given = parse_qs(body.decode("latin-1"), max_num_fields=5)
        token = (given.get("token") or [""])[0].strip()
        try:
            verdict = await self._review(token)
        except MuslinError as problem:
            return 503, str(problem), ""
        if verdict.refusal:
            self._failures.append(now)
            return 403, verdict.refusal, ""
        secret = secrets.token_urlsafe(32)
        if len(self._sessions) >= MOST:
            oldest = min(self._sessions, key=lambda name: self._sessions[name].began)
            del self._sessions[oldest]
        self._sessions[_digest(secret)] = _Session(token, now, now)
        return 303, "", secret


def form(refusal: str) -> str:
    """The login page."""
    head = Html(
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        '<title>Muslin: log in</title><link rel="stylesheet" href="/muslin/web.css">'
    )
    field = Html('<input name="token" type="password" autocomplete="off" required autofocus>')
    inner = tag(
        "main",
        tag("h1", "Muslin"),
        tag("p", "Paste a token of a user who may look:"),
        tag("pre", "kubectl create token NAME -n NAMESPACE"),
        notice("error", refusal) if refusal else "",
        tag(
            "form",
            tag("label", "Token ", field),
            tag("button", "Log in", type="submit"),
            method="post",
            action="/login",
        ),
        class_="login",
    )
    return f"<!doctype html><html lang=en><head>{head}</head><body>{inner}</body></html>"


async def _html(
    send: Callable[[dict[str, object]], Awaitable[None]], status: int, text: str
) -> None:
    body = text.encode()
    given = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": given})
    await send({"type": "http.response.body", "body": body})


def _cookie(header: str) -> str:
    try:
        result = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return result.value if result is not None else ""


def _digest(secret: str) -> str:
    """Sessions are looked up by their hash: the time that takes says nothing of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
