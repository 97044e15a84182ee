"""Processes: name, signals, death of the parent, logs, status file, back-off, durations."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcalico import durations
from libcalico.process import status_file
from libcalico.process.backoff import Backoff, spread
from tests.support.patience import HANG, wait_for


def run(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_signal_ends_main_through_its_finally() -> None:
    child = run(
        "import asyncio\n"
        "from libcalico.process import process\n"
        "async def main():\n"
        "    print('up', flush=True)\n"
        "    try:\n"
        "        await asyncio.sleep(60)\n"
        "    finally:\n"
        "        print('cleaned', flush=True)\n"
        "process.set_name('calico-test')\n"
        "raise SystemExit(process.run_until_signal(main()))\n"
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    assert Path(f"/proc/{child.pid}/cmdline").read_bytes().startswith(b"calico-test")
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=HANG)
    assert (out, err, child.returncode) == ("cleaned\n", "", 0)


def test_the_result_of_main_is_the_exit_code() -> None:
    child = run(
        "from libcalico.process import process\n"
        "async def main():\n"
        "    return 3\n"
        "raise SystemExit(process.run_until_signal(main()))\n"
    )
    assert child.wait(HANG) == 3


def test_a_child_dies_with_its_parent() -> None:
    parent = run(
        "import subprocess, sys, time\n"
        "code = 'import time; from libcalico.process.process import die_with_parent as die'\\\n"
        "       '; die(); '\\\n"
        "       'print(\"ready\", flush=True); time.sleep(60)'\n"
        "child = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE)\n"
        "assert child.stdout.readline() == b'ready\\n'\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    wait_for(lambda: not _lives(child))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:  # also ESRCH, where it goes between the opening and the reading
        return False


@pytest.mark.parametrize("fmt", ["text", "json"])
def test_logs_are_lines_with_fields(fmt: str) -> None:
    child = run(
        "import logging\n"
        "from libcalico.process import logs\n"
        f"logs.configure('felix', 'warning', '{fmt}')\n"
        "log = logging.getLogger('felix.x')\n"
        "log.info('quiet')\n"
        "log.warning('it %s', 'broke', extra={'object': 'Node(n1)', 'count': 2})\n"
        "try:\n"
        "    1 / 0\n"
        "except ZeroDivisionError:\n"
        "    log.exception('why')\n"
    )
    out, err = child.communicate(timeout=HANG)
    assert out == ""
    assert "quiet" not in err
    if fmt == "text":
        assert "WARNING felix felix.x: it broke object=Node(n1) count=2" in err
        assert "ZeroDivisionError" in err
    else:
        first, second = (json.loads(line) for line in err.splitlines())
        assert first["message"] == "it broke"
        assert (first["object"], first["count"], first["process"]) == ("Node(n1)", 2, "felix")
        assert "ZeroDivisionError" in second["exception"]


def test_a_status_file_is_whole_and_readable_by_all(tmp_path: Path) -> None:
    assert status_file.read("bgp", tmp_path) is None
    status_file.write("bgp", {"peers": [1]}, tmp_path / "deep")
    status_file.write("bgp", {"peers": [2]}, tmp_path / "deep")
    found = status_file.read("bgp", tmp_path / "deep")
    assert found is not None
    assert (found["peers"], found["pid"]) == ([2], os.getpid())
    assert found["time"].endswith("Z")
    assert (tmp_path / "deep" / "bgp.json").stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path / "deep") == ["bgp.json"]
    (tmp_path / "bgp.json").write_text("{")
    assert status_file.read("bgp", tmp_path) is None


def test_delays_grow_to_a_cap_and_begin_anew() -> None:
    middle = Backoff(1, 5, random_unit=lambda: 0.5)
    assert [middle.next() for _ in range(5)] == [1, 2, 4, 5, 5]
    middle.reset()
    assert middle.next() == 1
    low = Backoff(1, 5, jitter=0.2, random_unit=lambda: 0.0)
    assert low.next() == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("objects", "most"), [(0, 0), (10, 0.001), (1000, 0.1), (100_000, 10), (1_000_000, 30)]
)
def test_a_long_list_is_read_again_at_another_time_on_each_node(objects: int, most: float) -> None:
    assert spread(objects, lambda: 0.0) == 0
    assert spread(objects, lambda: 1.0) == pytest.approx(most)
    assert spread(objects, lambda: 0.5) == pytest.approx(most / 2)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0), ("0", 0), ("90s", 90), ("1m30s", 90), ("1h0m0s", 3600), ("250ms", 0.25),
        ("1.5s", 1.5), ("-2m", -120), ("10us", 1e-5),
    ],
)  # fmt: skip
def test_go_durations(text: str, seconds: float) -> None:
    assert durations.parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "1", "s", "1 s", "1d", "1s1", "--1s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError):
        durations.parse(text)


def test_durations_are_written_as_go_does() -> None:
    wanted = {0: "0s", 90: "1m30s", 3600: "1h0m0s", 0.25: "250ms", 1.5: "1.5s", -60: "-1m0s"}
    assert {seconds: durations.text(seconds) for seconds in wanted} == wanted


@given(st.integers(0, 10**6).map(lambda ms: ms / 1000))
def test_every_duration_is_read_back(seconds: float) -> None:
    assert durations.parse(durations.text(seconds)) == pytest.approx(seconds)
