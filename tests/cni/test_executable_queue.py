"""The executable without a daemon: "try again later", and the queue of DELs on disk (EXE-4)."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from pathlib import Path

import pytest

from cni.socket import protocol
from tests.cni.executable import (
    CONFIG,
    Build,
    away_from_daemon,
    call,
    config,
    pending,
)
from tests.support.patience import HANG


@pytest.fixture
def away(tmp_path: Path) -> dict[str, str]:
    return away_from_daemon(tmp_path)


@pytest.mark.parametrize(
    ("command", "code"), [("ADD", 11), ("CHECK", 11), ("GC", 11), ("STATUS", 50)]
)
def test_daemon_away_is_an_error_that_names_it(
    exe: Build, command: str, code: int, away: dict[str, str]
) -> None:
    started = time.monotonic()
    done = call(
        exe.plugin("calico-ipam"), away | {"CNI_COMMAND": command}, config(cniVersion="1.1.0")
    )
    assert 0.8 < time.monotonic() - started < HANG
    assert done.error["code"] == code
    assert done.error["cniVersion"] == "1.1.0"
    assert "calico-cni" in done.error["msg"]
    assert pending(away) == []


def test_delete_is_queued_and_succeeds(exe: Build, away: dict[str, str]) -> None:
    env = away | {"CNI_COMMAND": "DEL", "CNI_ARGS": 'K8S_POD_NAME=p"q;X=\u00e9\\'}
    stdin = json.dumps(config(note="\u65e5\n\U0001f600"))
    begun = time.time()
    done = call(exe.hasty("calico"), env, stdin)
    assert (done.status, done.stdout) == (0, b"")
    assert "queued" in done.stderr
    (file,) = pending(env)
    assert file.name == protocol.pending_name("calico", "net", "c0ffee", "eth0")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    queued = protocol.decode_pending(file.read_bytes())
    assert (queued.version, queued.argv0, queued.env, queued.stdin) == (1, "calico", env, stdin)
    assert begun - 2 < queued.time < time.time() + 2  # whole seconds of a coarse clock


def test_a_repeated_delete_keeps_the_first_record(exe: Build, away: dict[str, str]) -> None:
    env = away | {"CNI_COMMAND": "DEL"}
    call(exe.hasty("calico"), env | {"CNI_ARGS": "K8S_POD_NAME=p"}, CONFIG)
    assert call(exe.hasty("calico"), env, CONFIG).status == 0
    (file,) = pending(env)
    assert protocol.decode_pending(file.read_bytes()).env["CNI_ARGS"] == "K8S_POD_NAME=p"


def test_each_attachment_and_plugin_has_its_own_record(exe: Build, away: dict[str, str]) -> None:
    expected = set()
    for name, network, container, ifname in [
        ("calico", "net", "a", "eth0"),
        ("calico-ipam", "net", "a", "eth0"),
        ("calico", "other", "a", "eth0"),
        ("calico", "net", "a", "net1"),
        ("calico", "net", "c" * 300, "eth0"),
    ]:
        env = away | {"CNI_COMMAND": "DEL", "CNI_CONTAINERID": container, "CNI_IFNAME": ifname}
        assert call(exe.hasty(name), env, config(name=network)).status == 0
        expected.add(protocol.pending_name(name, network, container, ifname))
    assert {file.name for file in pending(away)} == expected


@pytest.mark.parametrize("length", [0, 1, 54, 55, 56, 63, 64, 65, 119, 120, 200])
def test_the_digest_is_sha256(exe: Build, length: int, away: dict[str, str]) -> None:
    if exe.is_twin and length:
        pytest.skip("the twin takes it from the standard library")
    env = away | {"CNI_COMMAND": "DEL", "CNI_CONTAINERID": "x" + "y" * length}
    call(exe.hasty("calico"), env, CONFIG)
    (file,) = pending(env)
    key = f"calico\0net\0{env['CNI_CONTAINERID']}\0eth0"
    assert file.stem == hashlib.sha256(key.encode()).hexdigest()


def test_the_queue_follows_no_symbolic_link(
    exe: Build, away: dict[str, str], tmp_path: Path
) -> None:
    env = away | {"CNI_COMMAND": "DEL"}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    directory = Path(env["CNI_CALICO_PENDING"])
    directory.parent.mkdir(parents=True)
    directory.symlink_to(elsewhere)
    done = call(exe.hasty("calico"), env, CONFIG)
    assert done.error["code"] == 11
    assert list(elsewhere.iterdir()) == []
    directory.unlink()
    directory.mkdir()
    name = protocol.pending_name("calico", "net", "c0ffee", "eth0")
    (directory / name).symlink_to(elsewhere / "victim")
    assert call(exe.hasty("calico"), env, CONFIG).error["code"] == 11
    assert not (elsewhere / "victim").exists()
    assert [file.name for file in directory.iterdir()] == [name]


def test_the_directory_above_the_queue_is_no_link_and_one_further_up_may_be(
    exe: Build, away: dict[str, str], tmp_path: Path
) -> None:
    elsewhere, link = tmp_path / "elsewhere", tmp_path / "link"
    (elsewhere / "inner").mkdir(parents=True)
    link.symlink_to(elsewhere)
    env = away | {"CNI_COMMAND": "DEL", "CNI_CALICO_PENDING": str(link / "pending")}
    assert call(exe.hasty("calico"), env, CONFIG).error["code"] == 11
    assert [one.name for one in elsewhere.iterdir()] == ["inner"]
    env["CNI_CALICO_PENDING"] = str(link / "inner/pending")
    assert call(exe.hasty("calico"), env, CONFIG).status == 0
    assert len(list((elsewhere / "inner/pending").iterdir())) == 1


def test_a_loose_queue_is_closed_and_a_foreign_one_refused(
    exe: Build, away: dict[str, str]
) -> None:
    env = away | {"CNI_COMMAND": "DEL"}
    directory = Path(env["CNI_CALICO_PENDING"])
    directory.mkdir(parents=True)
    directory.chmod(0o777)
    assert call(exe.hasty("calico"), env, CONFIG).status == 0
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    os.chown(directory, 65534, 65534)
    done = call(exe.hasty("calico"), env | {"CNI_CONTAINERID": "other"}, CONFIG)
    assert done.error["code"] == 11


def test_a_delete_that_failed_never_sounds_as_done(
    exe: Build, away: dict[str, str], tmp_path: Path
) -> None:
    """go-cni and dockershim take these words in a DEL error as success (ERR-17)."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    env = away | {"CNI_COMMAND": "DEL", "CNI_CALICO_PENDING": str(blocked / "pending")}
    text = call(exe.hasty("calico"), env, CONFIG).stdout.decode().lower()
    assert "not found" not in text
    assert "no such file or directory" not in text
