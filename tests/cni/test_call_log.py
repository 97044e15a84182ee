"""`log_level` of a configuration: what one call says, whatever others do."""

from __future__ import annotations

import asyncio
import logging

import pytest

from cni.socket import call_log

log = call_log.logger("tests.call_log")


def said(caplog: pytest.LogCaptureFixture, wish: str, level: int) -> list[str]:
    async def call() -> None:
        call_log.set_level(wish)
        log.debug("debug")
        log.info("info")
        await asyncio.create_task(later())

    async def later() -> None:
        log.error("error")

    caplog.clear()
    before = log.level
    log.setLevel(level)
    try:
        asyncio.run(call())
    finally:
        log.setLevel(before)
    return caplog.messages


@pytest.mark.promise("M-155")
@pytest.mark.parametrize(
    ("wish", "level", "expected"),
    [
        ("debug", logging.INFO, ["debug", "info", "error"]),
        ("DEBUG", logging.ERROR, ["debug", "info", "error"]),
        ("info", logging.INFO, ["info", "error"]),
        ("", logging.INFO, ["info", "error"]),
        ("loud", logging.INFO, ["info", "error"]),
        ("error", logging.INFO, ["error"]),
        ("Error", logging.DEBUG, ["debug", "info", "error"]),
        ("info", logging.DEBUG, ["debug", "info", "error"]),
    ],
)
def test_a_level_belongs_to_a_call(
    caplog: pytest.LogCaptureFixture, wish: str, level: int, expected: list[str]
) -> None:
    assert said(caplog, wish, level) == expected


def test_calls_do_not_hear_of_each_other(caplog: pytest.LogCaptureFixture) -> None:
    async def call(wish: str, turns: int) -> None:
        call_log.set_level(wish)
        for turn in range(turns):
            log.debug("%s %d", wish, turn)
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(call("debug", 2), call("info", 2))

    log.setLevel(logging.INFO)
    asyncio.run(both())
    log.setLevel(logging.NOTSET)
    assert caplog.messages == ["debug 0", "debug 1"]
