"""Progress: nothing for short work, a bar on a terminal, lines elsewhere, never on stdout."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from libcalico.process import progress
from libcalico.process.progress import Progress, text
from tests.support.patience import HANG, wait_for

ALWAYS: dict[str, str] = {}


class Terminal(io.StringIO):
    """A stream that is one, as far as it says."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting for the first word, none between two of them."""
    monkeypatch.setattr(progress, "QUIET", 0.0)
    monkeypatch.setattr(progress, "REWRITTEN", 0.001)
    monkeypatch.setattr(progress, "LINES", (0.001, 0.001))


def test_the_line() -> None:
    assert text("plan", "", (0, 0), 2.4, bar=True) == "plan, 2 s"
    assert text("plan", "reading", (17, 0), 12, bar=True) == "plan: reading 17, 12 s"
    assert text("plan", "comparing", (120, 400), 12.2, bar=False) == (
        "plan: comparing 120 of 400 (30 %), 12 s"
    )
    assert text("plan", "", (1, 2), 3, bar=True) == (
        "plan [############............] 1 of 2 (50 %), 3 s"
    )
    # A count that ran over what was foreseen is no more than all of it.
    assert "[########################] 5 of 4 (100 %)" in text("x", "", (5, 4), 3, bar=True)


def test_short_work_says_nothing() -> None:
    stream = io.StringIO()
    with Progress("short", stream, ALWAYS) as told:
        told.begin("now", 3)
    assert stream.getvalue() == ""


@pytest.mark.usefixtures("at_once")
def test_lines_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    with Progress("long", stream, ALWAYS) as told:
        wait_for(lambda: "long, 0 s\n" in stream.getvalue())
        told.begin("second", 4)
        told.done = 1
        wait_for(lambda: "long: second 1 of 4 (25 %), 0 s\n" in stream.getvalue())
    assert "\r" not in stream.getvalue()
    assert "\x1b" not in stream.getvalue()
    ended = stream.getvalue()
    time.sleep(0.01)
    assert stream.getvalue() == ended, "the thread has ended"


@pytest.mark.usefixtures("at_once")
def test_a_bar_on_a_terminal_that_goes_away() -> None:
    stream = Terminal()
    with Progress("long", stream, ALWAYS) as told:
        told.begin("now", 2)
        told.done = 1
        wait_for(lambda: "[############............] 1 of 2" in stream.getvalue())
    assert stream.getvalue().endswith("\r\x1b[K")
    assert "\n" not in stream.getvalue()


@pytest.mark.usefixtures("at_once")
def test_off_and_gone() -> None:
    stream = io.StringIO()
    with Progress("long", stream, {"MUSLIN_PROGRESS": "never"}) as told:
        assert told._thread is None
    assert stream.getvalue() == ""

    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    with Progress("long", Gone(), ALWAYS) as told:
        assert told._thread is not None
        told._thread.join(HANG)
        assert not told._thread.is_alive()


@pytest.mark.usefixtures("at_once")
def test_an_error_ends_it_too() -> None:
    stream = Terminal()

    def failing() -> None:
        with Progress("long", stream, ALWAYS):
            wait_for(stream.getvalue)
            raise KeyError("x")

    with pytest.raises(KeyError):
        failing()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_on_a_real_terminal_only_stderr_has_it() -> None:
    script = (
        "import sys, time; from libcalico.process import progress\n"
        "progress.QUIET = 0.0\n"
        "with progress.Progress('work') as told:\n"
        "    told.begin('counting', 10)\n"
        "    told.done = 5\n"
        "    while told._thread.is_alive() and not sys.stdin.read(1): pass\n"
        "print('the answer')\n"
    )
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "MUSLIN_PROGRESS": ""},
    ) as process:
        os.close(theirs)
        seen = b""
        while b"5 of 10" not in seen:
            seen += os.read(ours, 1000)
        out, _ = process.communicate(b"x", HANG)
    os.close(ours)
    assert out == b"the answer\n"
    assert b"work: counting [############............] 5 of 10 (50 %)" in seen


def installing(work: str) -> subprocess.Popen[str]:
    """`work` with the functions of `./run`."""
    run = (Path(__file__).parents[2] / "run").read_text()
    functions = "".join(
        run[run.index(f"{name}() {{") :].partition("\n}\n")[0] + "\n}\n"
        for name in ("ticking", "ticked")
    )
    return subprocess.Popen(
        ["sh", "-c", f"set -eu\nsay() {{ printf '%s\\n' \"$*\" >&2; }}\n{functions}{work}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"]},
    )


def test_the_installer_tells_alike() -> None:
    with installing('ticking working\nread -r go\nticked\necho "$go"\n') as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "working, 2 s\n"
        out, _ = process.communicate("on\n", HANG)
    assert (process.returncode, out) == (0, "on\n")


def test_an_installer_that_fails_leaves_no_teller_behind() -> None:
    """Its output ends, though nothing has waited for it yet."""
    with installing("ticking working\nread -r go\nfalse\nticked\n") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "working, 2 s\n"
        process.communicate("on\n", HANG)
    assert process.returncode == 1
