"""A test that fails leaves no program behind."""

from __future__ import annotations

import signal
import subprocess

import pytest

from tests.support.ended import ended


def test_a_program_ends_with_a_block_that_fails() -> None:
    with (
        pytest.raises(AssertionError, match="planted"),
        ended(subprocess.Popen(["sleep", "600"])) as process,
    ):
        raise AssertionError("planted")
    assert process.returncode == -signal.SIGKILL


def test_one_that_has_ended_keeps_its_code() -> None:
    with ended(subprocess.Popen(["false"])) as process:
        process.wait()
    assert process.returncode == 1
