"""Sessions end, are reviewed again, and guesses are slowed down."""

from __future__ import annotations

import asyncio

from libcalico.errors import MuslinError
from web.guard.login import AGAIN, COOKIE, FAILURES, LASTS, MOST, WINDOW, Login, form
from web.guard.reviews import Verdict


class Server:
    """An API server that takes one token while it is told to."""

    def __init__(self) -> None:
        self.takes, self.away, self.asked = {"good"}, False, 0

    async def review(self, token: str) -> Verdict:
        """Its verdict."""
        self.asked += 1
        if self.away:
            raise MuslinError("the API server does not answer")
        return Verdict("eve", "" if token in self.takes else "not known")


def test_a_session_is_reviewed_again_and_ends() -> None:
    server, now = Server(), [0.0]

    async def story() -> None:
        door = Login(server.review, lambda: now[0])
        status, refusal, secret = await door.begin(b"token=good")
        assert (status, refusal) == (303, "")
        given = {"cookie": f"other=1; {COOKIE}={secret}"}
        assert await door.admits(given)
        asked = server.asked
        now[0] += AGAIN / 2
        assert await door.admits(given)
        assert server.asked == asked
        now[0] += AGAIN
        server.takes.clear()
        assert not await door.admits(given)
        server.takes.add("good")
        assert not await door.admits(given)

    asyncio.run(story())


def test_a_session_has_an_end_and_an_api_server_that_is_away_lets_no_user_in() -> None:
    server, now = Server(), [0.0]

    async def story() -> None:
        door = Login(server.review, lambda: now[0])
        _, _, secret = await door.begin(b"token=good")
        now[0] += LASTS + 1
        assert not await door.admits({"cookie": f"{COOKIE}={secret}"})
        server.away = True
        assert (await door.begin(b"token=good"))[0] == 503
        assert not await door.admits({"authorization": "Bearer good"})

    asyncio.run(story())


def test_a_bearer_token_is_asked_about_once_a_while() -> None:
    server, now = Server(), [0.0]

    async def story() -> None:
        door = Login(server.review, lambda: now[0])
        for _ in range(5):
            assert await door.admits({"authorization": "Bearer good"})
        assert server.asked == 1
        now[0] += AGAIN
        server.takes.clear()
        assert not await door.admits({"authorization": "Bearer good"})
        assert not await door.admits({"authorization": "Basic good"})
        assert not await door.admits({"cookie": "\x00=;;"})

    asyncio.run(story())


def test_guesses_are_slowed_down() -> None:
    server, now = Server(), [0.0]

    async def story() -> None:
        door = Login(server.review, lambda: now[0])
        for _ in range(FAILURES):
            assert (await door.begin(b"token=bad"))[0] == 403
        assert (await door.begin(b"token=good"))[0] == 429
        now[0] += WINDOW
        assert (await door.begin(b"token=good"))[0] == 303
        assert (await door.begin(b"x" * 40_000))[0] == 413

    asyncio.run(story())


def test_sessions_are_bounded() -> None:
    server, now = Server(), [0.0]

    async def story() -> None:
        door = Login(server.review, lambda: now[0])
        secrets = []
        for _ in range(MOST + 1):
            now[0] += 0.001
            secrets.append((await door.begin(b"token=good"))[2])
        assert not await door.admits({"cookie": f"{COOKIE}={secrets[0]}"})
        assert await door.admits({"cookie": f"{COOKIE}={secrets[-1]}"})

    asyncio.run(story())


def test_a_refusal_is_escaped() -> None:
    assert "<script" not in form("<script>")
