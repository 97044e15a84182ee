"""Colours: where they are wanted, what they paint, and that nothing else changes."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

from calicoctl.terminal import colour
from tests.calicoctl.conftest import Ctl
from tests.calicoctl.test_get_options import pool
from tests.support.etcd import Etcd
from tests.support.patience import HANG

CODES = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize(
    ("palette", "text", "painted"),
    [
        (
            "table",
            "NAME   CIDR   \np      10.0.0.0/8   \n",
            "|1:NAME   CIDR   |\np      10.0.0.0/8   \n",
        ),
        ("table", "p      ALL CAPS\n", "p      ALL CAPS\n"),
        ("verdicts", "x: DENIED\n  denied: y\n", "x: |1;31:DENIED|\n  |31:denied|: y\n"),
        ("verdicts", "ALLOWED allowed", "|1;32:ALLOWED| |32:allowed|"),
        ("sessions", "n1:\n  added  a\n  removed b\n", "n1:\n|32:  added|  a\n|31:  removed| b\n"),
        ("status", "| up | Established |", "| up | |32:Established| |"),
        ("findings", "Check complete; found 0 problems.", "|32:Check complete; found 0 problems.|"),
        (
            "findings",
            "Check complete; found 12 problems.",
            "|1;31:Check complete; found 12 problems.|",
        ),
    ],
)
def test_what_is_painted(palette: str, text: str, painted: str) -> None:
    found = colour.painted(text, palette)
    assert CODES.sub("", found) == text
    readable = found.replace("\x1b[0m", "|")
    assert re.sub(r"\x1b\[([0-9;]*)m", r"|\1:", readable) == painted


@pytest.mark.parametrize(
    ("terminal", "environ", "wanted"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_where_colours_are_wanted(terminal: bool, environ: dict[str, str], wanted: bool) -> None:
    assert colour.expected(terminal, environ) is wanted


def test_the_option_before_and_behind_the_command(ctl: Ctl) -> None:
    assert ctl("apply", "-f", "-", stdin=pool("p1", "10.1.0.0/16")).code == 0
    plain = ctl("get", "pools").out
    assert "\x1b" not in plain
    for words in (("--color", "always", "get", "pools"), ("get", "pools", "--color=always")):
        told = ctl(*words).out
        assert told.startswith("\x1b[1mNAME")
        assert CODES.sub("", told) == plain
    assert ctl("--color", "always", "get", "pools", "--color", "never").out == plain
    wrong = ctl("get", "pools", "--color", "sometimes")
    assert "'sometimes' is not one of 'auto', 'always', 'never'" in wrong.err


def on_a_terminal(environ: dict[str, str], *words: str) -> str:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "calicoctl.main", *words],
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", **environ},
    ) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                part = os.read(ours, 10000)
            except OSError:
                break
            if not part:
                break
            seen += part
        process.wait(HANG)
    os.close(ours)
    return seen.decode().replace("\r\n", "\n")


def test_on_a_real_terminal(ctl: Ctl, etcd: Etcd) -> None:
    assert ctl("apply", "-f", "-", stdin=pool("p1", "10.1.0.0/16")).code == 0
    plain = ctl("get", "pools").out
    told = on_a_terminal(etcd.environment(), "get", "pools")
    assert told.startswith("\x1b[1mNAME")
    assert CODES.sub("", told) == plain
    for off in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert on_a_terminal({**etcd.environment(), **off}, "get", "pools") == plain
    # YAML and JSON are for programs, on a terminal too.
    assert "\x1b" not in on_a_terminal(etcd.environment(), "get", "pools", "-o", "json")
