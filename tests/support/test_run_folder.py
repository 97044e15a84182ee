"""What a run of tests writes to the disk: gone with it, or when the next one begins."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests import run_folder, tiers
from tests.support.etcd import Etcd
from tests.support.patience import HANG, wait_for

STRANGER = f"{run_folder.PREFIX}of-another"
RUN = """\
import sys, time
from tests import run_folder
with run_folder.made() as folder:
    (folder / "file").write_text("much")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def folders(place: Path) -> set[Path]:
    return {one for one in place.iterdir() if one.is_dir()} - {place / STRANGER}


def test_a_killed_run_is_swept_up_by_the_next_and_one_that_lasts_is_not(place: Path) -> None:
    words = [sys.executable, "-c", RUN]
    runs = [
        subprocess.Popen(
            words, cwd=tiers.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    (place / STRANGER).mkdir()
    try:
        killed, lasting = (Path(str(one.stdout and one.stdout.readline()).strip()) for one in runs)
        runs[0].send_signal(signal.SIGKILL)
        runs[0].wait(HANG)
        assert folders(place) == {killed, lasting}
        with run_folder.made() as third:
            assert folders(place) == {lasting, third}
        assert third.exists(), "what failed can be looked at"
        with run_folder.made([third]) as later:
            assert folders(place) == {lasting, third, later}, "the next part of the same run"
        with run_folder.made() as fourth:
            assert fourth.stat().st_mode & 0o7777 == 0o1777, "another user's program lies in it"
            assert folders(place) == {lasting, fourth}
        run_folder.remove(fourth)
        assert folders(place) == {lasting}
        assert (lasting / "file").read_text() == "much"
        assert (place / STRANGER).exists()
    finally:
        for one in runs:
            one.kill()
            one.communicate()


def test_too_little_room_is_told_before_anything_fails(place: Path) -> None:
    with run_folder.made() as folder:
        assert run_folder.short_of_room(folder, enough=1) == ""
        told = run_folder.short_of_room(folder, enough=1 << 60)
        assert f"MiB are free in {place}, and the tests need 1099511627776" in told


def test_a_servers_data_goes_with_its_object(tmp_path: Path) -> None:
    server = Etcd(tmp_path / "etcd").start()
    server.stop()
    server.start()
    assert (tmp_path / "etcd" / "data" / "member").exists(), "it stays over restarts"
    server.stop()
    del server

    def gone() -> bool:
        gc.collect()
        return not (tmp_path / "etcd" / "data").exists()

    wait_for(gone)
