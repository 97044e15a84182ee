"""Programs run without a shell; failure, absence and slowness are clear errors."""

from __future__ import annotations

import asyncio
import time

import pytest

from linux import programs
from linux.errors import CommandError


def test_output_and_input() -> None:
    assert asyncio.run(programs.run(["cat"], b"$(id) `id`")) == b"$(id) `id`"
    assert programs.find("ip") is not None


def test_failures_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandError, match=r"ls exited with status 2.*No such file"):
        asyncio.run(programs.run(["ls", "/no/such/file"]))
    with pytest.raises(CommandError, match="not installed"):
        asyncio.run(programs.run(["no-such-program"]))
    start = time.monotonic()
    with pytest.raises(CommandError, match=r"no answer within 0.05 s"):
        asyncio.run(programs.run(["sleep", "60"], limit=0.05))
    assert time.monotonic() - start < 10
    monkeypatch.setenv("PATH", "/nowhere")
    assert asyncio.run(programs.run(["true"])) == b""
