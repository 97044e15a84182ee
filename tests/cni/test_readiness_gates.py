"""URLs that must answer before a pod's network is made."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cni.request import readiness_gates
from cni.request.config import parse_config
from cni.request.errors import CNIError
from tests.support.patience import HANG


@contextmanager
def server(*statuses: int) -> Iterator[tuple[str, list[str]]]:
    """Answers with these, the last one for ever."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(statuses[min(len(asked), len(statuses)) - 1])
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    http = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}/ready", asked
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


@pytest.mark.asyncio
@pytest.mark.cni("CAL-19")
async def test_an_add_waits_until_each_has_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness_gates, "ANSWER_SECONDS", HANG)
    with server(503, 404, 204) as (slow, slow_asked), server(200, 503) as (quick, quick_asked):
        await readiness_gates.wait([quick, slow], seconds=HANG, interval=0.02)
        assert (len(quick_asked), len(slow_asked)) == (1, 3)


@pytest.mark.asyncio
async def test_one_that_does_not_answer_is_named() -> None:
    for seconds in (0.3, 5, 50):
        with server(500) as (url, _), pytest.raises(CNIError) as caught:
            await readiness_gates.wait([url], seconds=seconds, interval=0.02)
        assert caught.value.code == 11
        assert url in caught.value.msg
        if caught.value.details != "it was not asked":
            break  # there was time for an answer: where not, more is given
    assert "500" in caught.value.details


def test_gates_are_urls_of_the_web() -> None:
    for bad in (["file:///etc/passwd"], "http://x", [5]):
        with pytest.raises(CNIError, match="readiness_gates must be"):
            parse_config({"name": "net", "readiness_gates": bad})
