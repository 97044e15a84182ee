"""A run of tests that is killed leaves no process, no network namespace and no mount."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import box, tiers
from tests.support.patience import HANG, wait_for

MESS = """\
import os, subprocess, sys, time
name, folder, mark = sys.argv[1:]
subprocess.run(["ip", "netns", "add", name], check=True)
subprocess.Popen(["ip", "netns", "exec", name, "sleep", mark], start_new_session=True)
os.mkdir(folder)
subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
open(folder + ".ready", "w").close()
time.sleep(1000)
"""
OUTER = "import sys; from pathlib import Path; from tests import box; " + (
    "sys.exit(box.run(sys.argv[1:], Path.cwd()))"
)
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")


def lives(mark: str) -> bool:
    """Whether a process has the word among its arguments."""
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in one.read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_leaves_nothing(tmp_path: Path, how: signal.Signals) -> None:
    name, folder, mark = f"mt-box-{os.getpid()}", tmp_path / "mess", f"{os.getpid()}.{how}123"
    words = [sys.executable, "-c", MESS, name, str(folder), mark]
    outer = subprocess.Popen([sys.executable, "-c", OUTER, *words], cwd=tiers.ROOT)

    def ready() -> bool:
        assert outer.poll() is None
        return folder.with_suffix(".ready").exists()

    wait_for(ready, "the mess is there")
    assert lives(mark)
    outer.send_signal(how)
    outer.wait(HANG)
    wait_for(lambda: not lives(mark), "what it started ends")
    assert not Path("/run/netns", name).exists()
    assert str(folder) not in Path("/proc/self/mounts").read_text()


MUTANTS = """\
import sys
from pathlib import Path
from tests.mutants import running
words = [*running.BOX, "sh", "-c", running.SET_UP, "sh", str(Path.cwd()), "", *sys.argv[1:]]
running._boxed = lambda *_: words
running.in_box(Path.cwd(), [])
"""


def test_a_killed_run_of_mutants_leaves_no_test_behind() -> None:
    mark = f"{os.getpid()}.77123"
    sleep = [sys.executable, "-c", "import time; time.sleep(1000)", mark]
    outer = subprocess.Popen([sys.executable, "-c", MUTANTS, *sleep], cwd=tiers.ROOT)
    inside = "".join(f"{word}\0" for word in sleep).encode()

    def runs() -> bool:
        return any(_read(one) == inside for one in Path("/proc").glob("[0-9]*/cmdline"))

    def begun() -> bool:
        assert outer.poll() is None
        return runs()

    wait_for(begun, "the test runs")
    outer.kill()
    outer.wait(HANG)
    wait_for(lambda: not runs(), "it ends")


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def test_a_box_tells_the_exit_code_and_reaps_orphans() -> None:
    text = (
        "import os, subprocess, sys, time\n"
        "told = subprocess.run('sleep 0 & echo $!', shell=True, capture_output=True).stdout\n"
        "while os.path.exists(f'/proc/{int(told)}'): time.sleep(0.01)\n"
        "sys.exit(7)\n"
    )
    assert box.run([sys.executable, "-c", text], tiers.ROOT) == 7
