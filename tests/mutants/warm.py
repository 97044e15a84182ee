"""Many mutants meet quick tests in one process that has read code and tests once.

A plugin of pytest. A child is forked for each mutant; it puts the changed code into the function
that is changed, and runs the tests until one fails. Where the mutants are many, the tests run once
before as the code is: that says how long each takes, which functions it enters and whether it
passes at all, and a mutant then meets those alone that enter its function, the shortest first.
What no function holds (a constant of a module), and what no test here notices, is left to a
process of its own (tests/mutants/running.py).
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import re
import resource
import select
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

JOBS = ".mutants.json"
HANG = 600.0
"""Seconds for the tests of one mutant, which take a tenth of that without it at most."""
SLOW = 1.0
"""Seconds from which on a test that was not measured is kept for the end by later mutants."""
MANY = 5
"""Mutants for each file of tests from which on it pays to measure the tests."""
HARMLESS = frozenset(
    {"tmp_path", "tmp_path_factory", "monkeypatch", "caplog", "capsys", "capfd", "request"}
    | {"event_loop_policy"}
)
"""Fixtures that start nothing."""
STARTS = re.compile(r"(?i)etcd|popen|subprocess|launch|apiserver|_world$|stage$|^lab$|daemon$")
"""Names in a test or fixture that starts a daemon or makes a lab."""
Place = tuple[str, str]
"""A file and the qualified name of a function in it."""


def functions(text: str, name: str) -> dict[tuple[str, int], CodeType]:
    """The functions of a source that lie in no other one, by name and how many had it before."""
    found: dict[tuple[str, int], CodeType] = {}

    def walk(code: CodeType) -> None:
        for one in code.co_consts:
            if not isinstance(one, CodeType) or "<" in one.co_name.replace("<lambda>", ""):
                continue
            if one.co_flags & 0x2:  # CO_NEWLOCALS: a function, not the body of a class
                number = sum(1 for known, _ in found if known == one.co_qualname)
                found[one.co_qualname, number] = one
            else:
                walk(one)

    walk(compile(text, name, "exec", dont_inherit=True))
    return found


def changed(before: str, after: str, name: str) -> list[tuple[CodeType, CodeType]]:
    """The function that a change lies in, as it is and as it would be; none outside of all."""
    old, new = functions(before, name), functions(after, name)
    if old.keys() != new.keys():
        return []
    pairs = [(old[key], new[key]) for key in old]
    return [pair for pair in pairs if _said(pair[0]) != _said(pair[1])]


def _said(code: CodeType) -> tuple[object, ...]:
    """What a function does, wherever it stands."""
    inner = tuple(
        _said(one) if isinstance(one, CodeType) else (type(one).__name__, repr(one))
        for one in code.co_consts
    )
    return code.co_code, code.co_names, code.co_varnames, code.co_freevars, inner


def put_in(pairs: Sequence[tuple[CodeType, CodeType]]) -> bool:
    """Change the functions of this process; False where one of them is not to be found."""
    met = set()
    gc.unfreeze()  # what tests/conftest.py has set aside is among it
    for one in gc.get_objects():
        if isinstance(one, FunctionType):
            for old, new in pairs:
                code = one.__code__
                if (code.co_qualname, code.co_filename, code.co_firstlineno) == (
                    old.co_qualname,
                    old.co_filename,
                    old.co_firstlineno,
                ):
                    one.__code__ = new
                    met.add(old)
    return len(met) == len(pairs) > 0


def _outermost(code: CodeType) -> Place:
    return code.co_filename, code.co_qualname.partition(".<locals>")[0]


@contextlib.contextmanager
def _entered(places: set[Place]) -> Iterator[None]:
    """Which functions are entered, in every thread."""

    def seen(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            places.add(_outermost(frame.f_code))

    threading.setprofile(seen)
    sys.setprofile(seen)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _silently() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)


def in_child(work: Callable[[], object], limit: float, cpu: float = 0.0) -> Any:
    """What `work` returns in a child, through JSON; None when it ends otherwise, "hung" late.

    `limit`: seconds that pass. `cpu`: seconds of its own work, after which the kernel ends it;
    0: no such limit.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            if cpu:
                resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(cpu), math.ceil(cpu) + 1))
            _silently()
            said = json.dumps(work()).encode()
            while said:
                said = said[os.write(writer, said) :]
        finally:
            os._exit(0)
    os.close(writer)
    told, until, hung = b"", time.monotonic() + limit, False
    while not hung:
        ready, _, _ = select.select([reader], [], [], max(0.0, until - time.monotonic()))
        part = os.read(reader, 65536) if ready else b""
        hung = not ready
        if not part:
            break
        told += part
    os.close(reader)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hung" if hung else json.loads(told) if told else None


def is_quick(item: pytest.Item) -> bool:
    """Whether a test, with its fixtures, starts nothing. Pure."""
    found: dict[str, Any] = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    parts = [getattr(item, "function", None)]
    parts += [found[name][-1].func for name in found if name not in HARMLESS]
    codes = [getattr(one, "__code__", None) for one in parts]
    return all(code is not None and not any(map(STARTS.search, code.co_names)) for code in codes)


class Tests:
    """The quick ones of the collected tests of one session."""

    def __init__(self, session: pytest.Session, root: Path) -> None:
        self._session, self._root = session, root
        self._items = {item.nodeid: item for item in session.items if is_quick(item)}
        self._seconds: dict[str, float] = {}
        self._slow: set[str] = set()
        self._reached: dict[Place, list[str]] = defaultdict(list)

    def _failed(self, item: pytest.Item) -> bool:
        before = self._session.testsfailed
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return self._session.testsfailed > before

    def measure(self, files: set[str]) -> None:
        """Run all as the code is, and remember what passes, how long it takes, what it enters."""

        def work() -> list[tuple[str, float, list[Place]]]:
            told = []
            for name, item in self._items.items():
                places: set[Place] = set()
                began = time.process_time()
                with _entered(places):
                    failed = self._failed(item)
                if not failed:
                    spent = time.process_time() - began
                    told.append((name, spent, [one for one in places if one[0] in files]))
            return told

        for name, spent, places in in_child(work, 3600.0) or []:
            self._seconds[name] = spent
            for file, function in places:
                self._reached[file, function].append(name)

    def first_that_fails(
        self, pairs: Sequence[tuple[CodeType, CodeType]], files: Sequence[str], measured: bool
    ) -> str:
        """The test that notices the change, or an empty text. `files`: the nearest first."""
        if measured:
            reaching = {name for old, _ in pairs for name in self._reached[_outermost(old)]}
            names = sorted(reaching, key=self._seconds.__getitem__)
        else:
            names = [n for file in files for n in self._items if n.partition("::")[0] == file]
            names.sort(key=self._slow.__contains__)
        if not names:
            return ""

        def work() -> tuple[str, list[str]]:
            slow = list[str]()
            if put_in(pairs):
                for name in names:
                    began = time.monotonic()
                    if self._failed(self._items[name]):
                        return name, slow
                    if time.monotonic() - began > SLOW:
                        slow.append(name)
            return "", slow

        # An endless loop is found by its work, on a slow machine as on a fast one.
        usual = sum(self._seconds[name] for name in names) if measured else 0.0
        answer = in_child(work, HANG, 10 * usual + 60 if measured else 0.0)
        if answer == "hung":
            quick = measured and usual < HANG / 10
            return "nothing ended" if quick else ""
        if answer is None:
            return names[0]
        by, slow = answer
        self._slow.update(slow)
        return str(by)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Instead of the tests themselves: a line of JSON for each mutant, its number and its end.

    The end is the test that notices it, an empty text, or null where no function holds the change.
    """
    root = session.config.rootpath
    jobs = json.loads((root / JOBS).read_text())
    out = os.fdopen(os.dup(1), "w")
    tests = Tests(session, root)
    measured = len(jobs) > MANY * len({file for job in jobs for file in job["tests"]})
    if measured:
        tests.measure({str(root / job["file"]) for job in jobs})
    for number, job in enumerate(jobs):
        path = root / job["file"]
        text = path.read_text()
        after = text[: job["start"]] + job["new"] + text[job["end"] :]
        pairs = changed(text, after, str(path))
        by = tests.first_that_fails(pairs, job["tests"], measured) if pairs else None
        print(json.dumps([number, by]), file=out, flush=True)
    return True
