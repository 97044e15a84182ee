"""Mutated stdin and environments: valid CNI JSON or the right result, never a half done call.

Three that must agree to the byte on each of 100,000 calls: the executable, its build with
AddressSanitizer and UndefinedBehaviorSanitizer, and the twin; 98,000 in process (the two builds
in a driver that forks: tests/cni/fuzz_driver.c), 2,000 as programs. The daemon's own check of the
same input gives the code. The daemon is there, or away, and then DELs go to the queue. Some calls
also go to the real daemon with a real namespace, and leave all or nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import struct
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from build_hook import EXECUTABLE_SOURCE, ROOT
from cni.python_plugin import line
from cni.python_plugin.main import main
from cni.request.errors import CNIError
from cni.request.request import parse_request
from cni.socket import protocol
from tests.cni.executable import (
    BASE,
    FULL_SIZE,
    QUICK,
    SANITIZERS,
    Daemon,
    Done,
    accept,
    built,
    call,
    impatient_twin,
)
from tests.cni.test_vectors import SMALL, configuration, environment, mutated

CALLS, PROGRAMS = (98_000, 2_000) if FULL_SIZE else (1_200, 16)
TOGETHER = 200
"""So many calls are answered by the two builds and the twin at the same time."""
RETRY = 0.005
HASTY = f"-DRETRY_MS={1000 * RETRY:g}"
"""One more attempt at a daemon that is away: what waits longer is no other call."""
U32 = struct.Struct("=I")
VERBS = ("ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION", "add", "")
ODD = (
    "", "/", "..", "../../etc/passwd", "a" * 300, "\x7f", "é", "\udcff", "%s%n", "a;b=c",
    "/proc/self/ns/net", "eth0\n", "0", "-1", "/dev/zero", "/proc/self/mem",
)  # fmt: skip
Case = tuple[str, dict[str, str], bytes]
Answer = tuple[int, bytes, str]


class Driver:
    """A build of the executable that answers case after case."""

    def __init__(self, *flags: str) -> None:
        named = f'-DSOURCE="{EXECUTABLE_SOURCE.relative_to(ROOT)}"'
        source = Path(__file__).with_name("fuzz_driver.c")
        program = built("calico", *flags, "-I.", named, source=source)
        self.process = subprocess.Popen(
            [program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1"},
        )

    def ask_all(self, cases: Sequence[Case]) -> list[Answer]:
        """One after another."""
        return [self.ask(case) for case in cases]

    def ask(self, case: Case) -> Answer:
        """Status, stdout and stderr of one call."""
        name, env, stdin = case
        assert self.process.stdin
        texts = [name.encode(), *(os.fsencode(f"{key}={value}") for key, value in env.items())]
        frame = [U32.pack(len(texts))]
        for text in (*texts, stdin):
            frame += [U32.pack(len(text)), text]
        self.process.stdin.write(b"".join(frame))
        self.process.stdin.flush()
        (status,) = U32.unpack(self._take(4))
        out, err = self._text(), self._text().decode(errors="replace")
        assert status in (0, 1), (case, status, err)
        assert "Sanitizer" not in err, (case, err)
        assert "runtime error" not in err, (case, err)
        return status, out, err

    def _take(self, length: int) -> bytes:
        assert self.process.stdout
        data = self.process.stdout.read(length)
        assert len(data) == length, "the driver ended"
        return data

    def _text(self) -> bytes:
        (length,) = U32.unpack(self._take(4))
        return self._take(length)


def hasty(flags: Sequence[str]) -> list[str]:
    """These flags of a build, with the shorter wait."""
    return [*(flag for flag in flags if not flag.startswith("-DRETRY_MS")), HASTY]


@pytest.fixture(scope="module")
def drivers() -> Iterator[list[Driver]]:
    with contextlib.ExitStack() as stack:
        found = [Driver(*hasty(flags)) for flags in (QUICK, SANITIZERS)]
        for driver in found:
            stack.enter_context(driver.process)
            stack.callback(driver.process.kill)
        yield found


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A daemon that accepts, and where it would queue."""
    folder = tmp_path_factory.mktemp("cni")
    with Daemon(folder / "cni.sock", accept):
        yield {
            "CNI_CALICO_SOCKET": str(folder / "cni.sock"),
            "CNI_CALICO_PENDING": str(folder / "pending"),
        }


def cases(dice: random.Random, places: dict[str, str]) -> Iterator[Case]:
    """Calls with something odd in most of them, without end."""
    away = places | {"CNI_CALICO_SOCKET": places["CNI_CALICO_SOCKET"] + ".none"}
    while True:
        name = dice.choice(("calico", "calico-ipam", "calico-ipam"))
        env = dict(BASE) | {"CNI_COMMAND": dice.choice(VERBS[:5])}
        stdin = configuration(dice.choice(SMALL) if dice.random() < 0.6 else {})
        kind = dice.random()
        if kind < 0.15:
            env = environment(dice.choice(SMALL))
        elif kind < 0.45:
            env = odd(env, dice)
        if dice.random() < 0.8:
            stdin = mutated(stdin, dice)
        env |= places if dice.random() < 0.9 else away
        if name == "calico" and dice.random() < 0.5:
            env |= {"CNI_NETNS": "/proc/self/ns/net", "CNI_NETNS_OVERRIDE": "1"}
        yield name, env, stdin


def odd(env: dict[str, str], dice: random.Random) -> dict[str, str]:
    """An environment with a variable gone, replaced or damaged."""
    env = dict(env) | {"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=b"}
    for _ in range(dice.randint(1, 2)):
        key = dice.choice(list(env))
        action = dice.randrange(3)
        if action == 0 and len(env) > 1:
            del env[key]
        elif action == 1:
            env[key] = dice.choice(VERBS if key == "CNI_COMMAND" else ODD)
        else:
            damaged = mutated(os.fsencode(env[key]), dice).replace(b"\0", b"")
            env[key] = os.fsdecode(damaged)
    return env


def in_process(case: Case) -> Answer:
    """The twin's answer, as tests.cni.test_vectors has it, under either name."""
    name, env, stdin = case
    ends = [os.memfd_create(each) for each in ("stdin", "stdout", "stderr")]
    try:
        os.write(ends[0], stdin)
        os.lseek(ends[0], 0, os.SEEK_SET)
        encoded = {os.fsencode(key): os.fsencode(value) for key, value in env.items()}
        status = main([name.encode()], encoded, *ends)
        out, err = (os.pread(end, 1 << 22, 0) for end in ends[1:])
        return status, out, err.decode(errors="replace")
    finally:
        for end in ends:
            os.close(end)


def judge(case: Case, status: int, out: bytes, err: str) -> None:
    """What the specification asks of any call, and the daemon's own opinion of the input."""
    name, env, stdin = case
    verb = env.get("CNI_COMMAND", "")
    assert "Traceback" not in err
    if not verb:
        assert (status, out) == (0, b"")
        return
    if verb == "VERSION":
        assert status == 0
        assert "supportedVersions" in json.loads(out)
        return
    if status:
        code = Done(status, out, err).error["code"]
        assert code != 999, (case, out)
    else:
        code = 0
        assert out == b"" if verb != "ADD" else json.loads(out) == {"accepted": True}, case
    odd_bytes = any("\udc80" <= one <= "\udcff" for one in "".join(env.values()))
    if name == "calico" or code in (11, 50) or odd_bytes:
        return  # what only the executable sees: namespaces, an absent daemon, no text at all
    try:
        parse_request(name, env, stdin)
        expected = 0
    except CNIError as error:
        expected = error.code
    # The daemon alone refuses what is its own configuration.
    assert code == expected or (code == 0 and expected in (4, 7)), (case, code, expected)


def judge_queue(places: dict[str, str], asked: int) -> None:
    """Every record of the queue is whole, and nothing else is there."""
    folder = Path(places["CNI_CALICO_PENDING"])
    records = list(folder.iterdir())
    assert 0 < len(records) <= asked
    for record in records:
        assert record.suffix == ".json"
        assert record.name[0] != "."
        found = protocol.decode_pending(record.read_bytes())
        assert found.env["CNI_COMMAND"] == "DEL"


def test_mutated_calls(
    drivers: list[Driver], places: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executable, sanitized build, twin and daemon agree."""
    monkeypatch.setattr(line, "RETRY", RETRY)
    queued = 0
    endless = cases(random.Random(100), places)
    with ThreadPoolExecutor(len(drivers)) as pool:
        for _ in range(CALLS // TOGETHER):
            some = list(itertools.islice(endless, TOGETHER))
            asked = [pool.submit(driver.ask_all, some) for driver in drivers]
            of_twin = [in_process(case) for case in some]
            told = zip(some, of_twin, *(each.result() for each in asked), strict=True)
            for case, twin, executable, strict in told:
                judge(case, *executable)
                assert strict == executable, case
                assert twin == executable, case
                queued += "DEL queued" in executable[2]
    judge_queue(places, queued)


def test_mutated_calls_of_programs(places: dict[str, str]) -> None:
    """As a runtime calls: the twin's and the executable's processes."""
    for case, _ in zip(cases(random.Random(101), places), range(PROGRAMS), strict=False):
        name, env, stdin = case
        done = call(built(name, *QUICK), env, stdin)
        judge(case, done.status, done.stdout, done.stderr)
        assert call(impatient_twin(name), env, stdin) == done, case
