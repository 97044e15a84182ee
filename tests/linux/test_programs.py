"""Programs run without a shell; failure, absence and slowness are clear errors."""

from __future__ import annotations

import asyncio
import time

import pytest

from linux import programs
from linux.errors import CommandError
from tests.support.patience import HANG


def test_output_and_input() -> None:
    assert asyncio.run(programs.run(["cat"], b"$(id) `id`")) == b"$(id) `id`"
    assert programs.find("ip") is not None


def test_each_program_that_was_waited_for_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """In microseconds, whether it ended well or not."""
    told: list[float] = []
    monkeypatch.setattr(programs.WAITED, "told", told.append)
    asyncio.run(programs.run(["true"]))
    with pytest.raises(CommandError):
        asyncio.run(programs.run(["false"]))
    asyncio.run(programs.Prepared(["cat"]).run(b"x"))
    assert len(told) == 3
    assert all(1 < micros < HANG * 1e6 for micros in told)


def test_failures_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandError, match=r"ls exited with status 2.*No such file"):
        asyncio.run(programs.run(["ls", "/no/such/file"]))
    with pytest.raises(CommandError, match="not installed"):
        asyncio.run(programs.run(["no-such-program"]))
    start = time.monotonic()
    with pytest.raises(CommandError, match=r"no answer within 0.05 s"):
        asyncio.run(programs.run(["sleep", "60"], limit=0.05))
    assert time.monotonic() - start < HANG
    monkeypatch.setenv("PATH", "/nowhere")
    assert asyncio.run(programs.run(["true"])) == b""


def test_a_prepared_program_runs_like_any_other() -> None:
    async def story() -> None:
        program = programs.Prepared(["cat"])
        assert await program.run(b"cold") == b"cold"
        for _ in range(3):
            program.prepare()
            await asyncio.sleep(0.05)
            assert await program.run(b"x" * 300_000) == b"x" * 300_000
        program.prepare(60.0)
        assert await program.run(b"not yet") == b"not yet"
        program.prepare()
        await asyncio.sleep(0.05)
        program.close()
        with pytest.raises(CommandError, match="not installed"):
            await programs.Prepared(["no-such-program"]).run(b"")
        with pytest.raises(CommandError, match=r"false exited with status 1"):
            await programs.Prepared(["false"]).run(b"")
        with pytest.raises(CommandError, match=r"no answer within 0.05 s"):
            await programs.Prepared(["sleep", "60"], limit=0.05).run(b"")

    asyncio.run(story())


def test_a_copy_that_died_while_it_waited_is_replaced() -> None:
    async def story() -> None:
        program = programs.Prepared(["cat"])
        program.prepare()
        await asyncio.sleep(0.05)
        assert program._spare is not None
        program._spare.kill()
        program._spare.wait()
        assert await program.run(b"alive") == b"alive"

    asyncio.run(story())
