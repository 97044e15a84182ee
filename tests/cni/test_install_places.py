"""Directories and files of the installer that are not as they should be."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cni.install import binaries
from cni.install.files import Busy, opened
from cni.install.settings import NotMounted
from tests.cni.installer import FIRST_GENERATION, PEM, TEMPLATE, Host
from tests.support.patience import HANG


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_no_link_is_followed_and_no_directory_taken_for_a_file(host: Host, tmp_path: Path) -> None:
    """INST-3: a link that somebody planted leads nowhere."""
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    for place in (host.bin / "calico", host.net / "10-calico.conflist"):
        place.symlink_to(victim)
    (host.net / "calico-kubeconfig").symlink_to(victim)
    host.run(CNI_NETWORK_CONFIG=TEMPLATE)
    assert victim.read_text() == "untouched"
    assert host.written()["name"] == "k8s-pod-network"
    assert not (host.net / "calico-kubeconfig").is_symlink()
    for name, text in PEM.items():
        (host.secrets / name).write_text(text)
    (tmp_path / "elsewhere").mkdir()
    (host.net / "calico-tls").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        host.run(CNI_NETWORK_CONFIG=FIRST_GENERATION)
    assert not list((tmp_path / "elsewhere").iterdir())
    (host.net / "calico-tls").unlink()
    (host.bin / "calico").unlink()
    (host.bin / "calico").mkdir()
    with pytest.raises(IsADirectoryError):
        host.run()


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_what_is_no_regular_file_is_not_read_and_makes_way(tmp_path: Path, kind: str) -> None:
    """A link to a file with the very same content, and a pipe that no process writes into."""
    place, victim = tmp_path / "place", tmp_path / "victim"
    victim.write_bytes(b"same")
    victim.chmod(0o4755)
    with opened(place) as folder:
        if kind == "link":
            (place / "name").symlink_to(victim)
        else:
            os.mkfifo(place / "name", 0o755)
        assert folder.read("name") is None
        assert not folder.restrict("name")
        assert folder.replace("name", b"same", 0o4755)
        assert not folder.replace("name", b"same", 0o4755), "it is there by now"
        assert folder.restrict("name")
    assert stat.S_ISREG((place / "name").lstat().st_mode)
    assert stat.S_IMODE((place / "name").stat().st_mode) == 0o755
    assert (victim.read_bytes(), stat.S_IMODE(victim.stat().st_mode)) == (b"same", 0o4755)


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_is_no_directory_is_not_entered_and_keeps_its_mode(tmp_path: Path, kind: str) -> None:
    place, victim = tmp_path / "place", tmp_path / "victim"
    if kind == "link":
        victim.mkdir(mode=0o755)
    with opened(place) as folder:
        if kind == "link":
            (place / "name").symlink_to(victim)
        else:
            victim.write_text("precious")
            victim.chmod(0o755)
            (place / "name").hardlink_to(victim)
        with pytest.raises(NotADirectoryError), folder.inner("name"):
            raise AssertionError("entered")
    assert stat.S_IMODE(victim.stat().st_mode) == 0o755


def test_a_directory_that_another_installer_holds(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cni.install.files.LOCK_SECONDS", 0.1)
    with opened(host.net), pytest.raises(Busy, match="another installer has held it"):
        host.run()
    host.run()


def test_in_a_container_every_directory_must_be_mounted(host: Host) -> None:
    host.net.rename(host.host / "etc/cni/other")
    with pytest.raises(NotMounted, match=r"/etc/cni/net\.d is not mounted at"):
        host.run()
    host.run("--binaries-only")
    (host.host / "etc/cni/other").rename(host.net)
    host.bin.rename(host.host / "opt/cni/other")
    with pytest.raises(NotMounted, match="/opt/cni/bin is not mounted at"):
        host.run()
    host.run("--configuration-only")
    assert host.visible() == ["10-calico.conflist"]


def test_without_an_executable_nothing_of_the_configuration_appears(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries, "BUILT", host.host / "none")
    with pytest.raises(binaries.NoExecutable):
        host.run("--interpreter=not absolute")
    assert not host.visible()


def test_by_hand_it_installs_and_ends(tmp_path: Path) -> None:
    """INST-4 as well: no environment, no mounts, the directories named."""
    program: list[Any] = [Path(sys.executable).with_name("install-cni"), "--host=/nowhere"]
    program += [f"--bin-dir={tmp_path / 'a'}", f"--bin-dir={tmp_path / 'b'}"]
    program += [f"--net-dir={tmp_path / 'net.d'}"]
    environ = {"PATH": os.environ["PATH"], "CNI_MTU": "1440", "LOG_LEVEL": "debug"}
    for _ in range(2):
        done = subprocess.run(
            program, env=environ, capture_output=True, text=True, timeout=HANG, check=False
        )
        assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(tmp_path / "b")) == ["calico", "calico-ipam"]
    (plugin,) = msgspec.json.decode((tmp_path / "net.d/10-calico.conflist").read_bytes())["plugins"]
    assert (plugin["mtu"], plugin["log_level"]) == (1440, "debug")
