"""The last resort of every program: no traceback for who types, none lost for who reads logs."""

from __future__ import annotations

import logging

import pytest

from libcalico import command_line


def broken() -> int:
    """A defect of ours."""
    raise ExceptionGroup("several", [ValueError("first\nline"), OSError("second")])


def test_a_tool_tells_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.guarded("tool", broken) == 1
    said = capsys.readouterr().err
    assert said.startswith("tool: unexpected error: ValueError: first line; this is a defect")
    assert "log level debug shows more" in said
    assert said.count("\n") == 1


def test_a_tool_shows_the_traceback_at_debug(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        assert command_line.guarded("tool", broken) == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_daemon_logs_the_traceback(caplog: pytest.LogCaptureFixture) -> None:
    assert command_line.guarded("calico-x", broken, daemon=True) == 1
    (record,) = caplog.records
    assert record.getMessage().startswith("calico-x ends: ValueError: first line")
    assert record.exc_info is not None


def test_what_ends_a_program_on_purpose_passes() -> None:
    def stops() -> int:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        command_line.guarded("tool", stops)
    assert command_line.guarded("tool", lambda: 7) == 7


def test_a_daemon_without_arguments_goes_on() -> None:
    command_line.daemon_arguments("calico-x", "says", [])
    with pytest.raises(SystemExit) as ended:
        command_line.daemon_arguments("calico-x", "says", ["run"])
    assert ended.value.code == 2
