"""Supervision of real processes: restarts, leftovers, stopping, and the supervisor's own death."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from node.restart import RestartPolicy
from node.supervisor import Program, Supervisor, agents
from tests.support.patience import HANG, until, wait_for

SLEEPER = (sys.executable, "-c", "import time; time.sleep(600)")
AGENT = """\
import os, sys, time
open(os.environ["MARK"], "a").write(f"{os.getpid()} {sys.argv[0]}\\n")
def main(): time.sleep(600)
"""


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Noted(RestartPolicy):
    """Notes the delays of all programs."""

    delays: list[float]

    def delay(self, lived: float) -> float:
        self.delays.append(super().delay(lived))
        return self.delays[-1]


@pytest.fixture
def delays(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the supervisor waits before each restart, in seconds; each life counts as a short one.

    A busy machine may need long to start and end a program.
    """
    monkeypatch.setattr("node.restart.STEADY_SECONDS", 2 * HANG)
    monkeypatch.setattr(Noted, "delays", [], raising=False)
    monkeypatch.setattr("node.supervisor.RestartPolicy", Noted)
    return Noted.delays


@asynccontextmanager
async def running(*programs: Program, log_dir: Path | None = None) -> Any:
    supervisor = Supervisor(programs, os.environ, log_dir)
    task = asyncio.create_task(supervisor.run())
    await until(lambda: len(supervisor.pids()) == len(programs))
    try:
        yield supervisor
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.asyncio
async def test_a_killed_agent_is_back_at_once(delays: list[float]) -> None:
    async with running(Program("a", SLEEPER), Program("b", SLEEPER)) as supervisor:
        first = supervisor.pids()
        os.kill(first["a"], signal.SIGKILL)
        killed = time.monotonic()
        await until(lambda: supervisor.pids().get("a", first["a"]) != first["a"], pause=0.002)
        print(f"restarted after {(time.monotonic() - killed) * 1000:.0f} ms")
        assert delays == [0]
        assert supervisor.pids()["b"] == first["b"]


@pytest.mark.asyncio
async def test_a_restart_on_demand_ends_each_once() -> None:
    async with running(Program("a", SLEEPER), Program("b", SLEEPER)) as supervisor:
        first = supervisor.pids()
        supervisor.restart()
        await until(
            lambda: (
                first.keys() == supervisor.pids().keys()
                and not (set(first.values()) & set(supervisor.pids().values()))
            )
        )


@pytest.mark.asyncio
async def test_a_crash_loop_waits_longer_and_longer(tmp_path: Path, delays: list[float]) -> None:
    mark = tmp_path / "starts"
    code = f"open({str(mark)!r}, 'a').write('x')"
    begun = time.monotonic()
    async with running(Program("a", (sys.executable, "-c", code))):
        await until(lambda: mark.exists() and len(mark.read_text()) >= 4)
        assert delays[:3] == [0, 0.25, 0.5]
        assert time.monotonic() - begun >= 0.75, "and they are kept"


@pytest.mark.asyncio
async def test_a_program_that_cannot_start_does_not_stop_the_others() -> None:
    supervisor = Supervisor([Program("a", ("/nothing/here",)), Program("b", SLEEPER)], os.environ)
    task = asyncio.create_task(supervisor.run())
    await until(lambda: list(supervisor.pids()) == ["b"])
    await asyncio.sleep(0.1)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.asyncio
async def test_leftovers_die_before_the_successor_starts(tmp_path: Path) -> None:
    note = tmp_path / "grandchild"
    code = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen({list(SLEEPER)!r})\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    async with running(Program("a", (sys.executable, "-c", code))) as supervisor:
        await until(lambda: note.exists() and note.read_text())
        grandchild, first = int(note.read_text()), supervisor.pids()["a"]
        os.kill(first, signal.SIGKILL)
        await until(lambda: not alive(grandchild))
        await until(lambda: supervisor.pids().get("a", first) != first)


@pytest.mark.asyncio
async def test_stopping_is_in_reverse_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.supervisor.STOP_SECONDS", HANG)
    order = tmp_path / "order"
    polite = (
        "import signal, sys, time\n"
        f"def stop(*_): open({str(order)!r}, 'a').write(sys.argv[1] + ' '); sys.exit()\n"
        "signal.signal(signal.SIGTERM, stop); open(sys.argv[2], 'w')\n"
        "while True: time.sleep(1)\n"
    )
    programs = [
        Program(name, (sys.executable, "-c", polite, name, str(tmp_path / f"{name}.ready")))
        for name in ("felix", "bgp", "cni")
    ]
    async with running(*programs) as supervisor:
        for program in programs:
            await until((tmp_path / f"{program.name}.ready").exists)
        pids = supervisor.pids()
    assert order.read_text().split() == ["cni", "bgp", "felix"]
    assert not any(alive(pid) for pid in pids.values())


@pytest.mark.asyncio
async def test_stopping_ends_the_stubborn_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.supervisor.STOP_SECONDS", 0.2)
    stubborn = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); open(sys.argv[1], 'w')\n"
        "while True: time.sleep(1)\n"
    )
    programs = [
        Program(name, (sys.executable, "-c", stubborn, str(tmp_path / f"{name}.ready")))
        for name in ("felix", "bgp")
    ]
    async with running(*programs) as supervisor:
        for program in programs:
            await until((tmp_path / f"{program.name}.ready").exists)
        pids = supervisor.pids()
    assert not any(alive(pid) for pid in pids.values())


@pytest.mark.asyncio
async def test_an_agent_that_ends_while_we_stop_holds_up_nobody(tmp_path: Path) -> None:
    """SUP-4: a service manager signals the whole group, so an agent may be gone before its turn."""
    bye, ready = tmp_path / "bye", tmp_path / "ready"
    polite = (
        "import signal, sys, time\n"
        f"def stop(*_): open({str(bye)!r}, 'w'); sys.exit()\n"
        f"signal.signal(signal.SIGTERM, stop); open({str(ready)!r}, 'w')\n"
        "while True: time.sleep(1)\n"
    )
    felix = Program("felix", (sys.executable, "-c", polite))
    async with running(felix, Program("cni", SLEEPER)) as supervisor:
        await until(ready.exists)
        gone = supervisor.pids()["cni"]
        os.kill(gone, signal.SIGKILL)
        # Without giving the loop a turn: the supervisor hears of both in the same instant.
        wait_for(lambda: not alive(gone))
    assert bye.exists(), "felix was asked to stop"


@pytest.mark.asyncio
async def test_output_goes_to_a_file_when_asked(tmp_path: Path) -> None:
    program = Program("calico-x", (sys.executable, "-c", "print('hello')"))
    async with running(program, log_dir=tmp_path / "log"):
        file = tmp_path / "log" / "calico-x.log"
        await until(lambda: file.exists() and "hello" in file.read_text())


def test_agents_of_each_backend() -> None:
    assert [one.name for one in agents("bird")] == ["calico-felix", "calico-bgp", "calico-cni"]
    assert [one.name for one in agents("none")] == ["calico-felix", "calico-cni"]
    assert [one.name for one in agents("bird", "felix")] == ["calico-felix"]


@pytest.fixture
def agent(tmp_path: Path) -> dict[str, str]:
    """Environment in which the room `pretend` can be supervised; `MARK` collects its starts."""
    room = tmp_path / "pretend"
    room.mkdir()
    (room / "__init__.py").touch()
    (room / "main.py").write_text(AGENT)
    return {**os.environ, "PYTHONPATH": str(tmp_path), "MARK": str(tmp_path / "mark")}


def test_an_agent_dies_with_its_supervisor_and_bears_its_name(agent: dict[str, str]) -> None:
    supervise = (
        "import asyncio, os, sys\n"
        "from node.supervisor import Program, Supervisor\n"
        "argv = (sys.executable, '-m', 'node.child', 'pretend', str(os.getpid()))\n"
        "asyncio.run(Supervisor([Program('calico-pretend', argv)], os.environ).run())\n"
    )
    mark = Path(agent["MARK"])
    supervisor = subprocess.Popen([sys.executable, "-c", supervise], env=agent)
    try:
        wait_for(lambda: mark.exists() and mark.read_text().endswith("\n"))
        pid, name = mark.read_text().split()
        assert name == "calico-pretend"
        assert Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"calico-pretend")
        supervisor.kill()
        supervisor.wait()
        wait_for(lambda: not alive(int(pid)))
    finally:
        supervisor.kill()
        supervisor.wait()


def test_an_agent_does_not_outlive_a_supervisor_that_is_gone_already(
    agent: dict[str, str],
) -> None:
    other = str(os.getppid())
    done = subprocess.run(
        [sys.executable, "-m", "node.child", "pretend", other],
        env=agent,
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 1
    assert f"the supervisor {other} is gone" in done.stderr
    assert not Path(agent["MARK"]).exists()
