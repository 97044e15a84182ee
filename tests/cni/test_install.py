"""Installation: what a runtime that watches could see at any instant is whole."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from cni.install import NoExecutable, default_conflist, install, own_interpreter, uninstall
from cni.install.main import parser, run
from tests.cni.executable import plugin


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "opt/cni/bin", tmp_path / "etc/cni/net.d"


def test_both_names_and_the_conflist(places: tuple[Path, Path]) -> None:
    bin_dir, net_dir = places
    os.umask(old := os.umask(0o077))
    try:
        install(bin_dir, net_dir, executable=plugin())
    finally:
        os.umask(old)
    assert sorted(os.listdir(bin_dir)) == ["calico", "calico-ipam"]
    assert os.listdir(net_dir) == ["10-calico.conflist"]
    for name in ("calico", "calico-ipam"):
        assert stat.S_IMODE((bin_dir / name).stat().st_mode) == 0o755
        env = {"CNI_COMMAND": "VERSION"}
        done = subprocess.run([bin_dir / name], env=env, input=b"", capture_output=True, check=True)
        assert "1.1.0" in json.loads(done.stdout)["supportedVersions"]
    conflist = net_dir / "10-calico.conflist"
    assert stat.S_IMODE(conflist.stat().st_mode) == 0o600
    written = json.loads(conflist.read_text())
    assert written == default_conflist()
    assert (written["name"], written["cniVersion"]) == ("k8s-pod-network", "1.0.0")
    (first,) = written["plugins"]
    assert (first["type"], first["ipam"]) == ("calico", {"type": "calico-ipam"})
    assert first["capabilities"] == {"io.kubernetes.cri.pod-annotations": True}


def test_an_own_conflist_and_mtu(places: tuple[Path, Path]) -> None:
    install(*places, {"name": "x", "plugins": []}, executable=plugin())
    assert json.loads((places[1] / "10-calico.conflist").read_text())["name"] == "x"
    assert default_conflist(mtu=1440)["plugins"][0]["mtu"] == 1440


def test_a_loose_mode_or_a_link_is_replaced_and_what_is_right_is_left_alone(
    places: tuple[Path, Path], tmp_path: Path
) -> None:
    bin_dir, net_dir = places
    install(bin_dir, net_dir, executable=plugin())
    conflist = net_dir / "10-calico.conflist"
    before = conflist.stat().st_ino
    install(bin_dir, net_dir, executable=plugin())
    assert conflist.stat().st_ino == before
    conflist.chmod(0o644)
    (bin_dir / "calico").chmod(0o4755)
    (bin_dir / "calico-ipam").unlink()
    victim = tmp_path / "victim"
    victim.write_bytes(plugin().read_bytes())
    (bin_dir / "calico-ipam").symlink_to(victim)
    install(bin_dir, net_dir, executable=plugin())
    assert stat.S_IMODE(conflist.stat().st_mode) == 0o600
    assert stat.S_IMODE((bin_dir / "calico").stat().st_mode) == 0o755
    assert not (bin_dir / "calico-ipam").is_symlink()


def answer(path: Path) -> list[str]:
    done = subprocess.run(
        [path], env={"CNI_COMMAND": "VERSION"}, input=b"", capture_output=True, check=True
    )
    return list(json.loads(done.stdout)["supportedVersions"])


def test_without_an_executable_its_twin_is_installed(places: tuple[Path, Path]) -> None:
    install(*places, executable=places[0] / "nothing")
    for name in ("calico", "calico-ipam"):
        path = places[0] / name
        assert path.read_bytes().startswith(f"#!{own_interpreter()} -IS\n".encode())
        assert stat.S_IMODE(path.stat().st_mode) == 0o755
        assert "1.1.0" in answer(path)


def test_the_twin_can_be_asked_for_and_replaced(places: tuple[Path, Path]) -> None:
    at = [f"--bin-dir={places[0]}", f"--net-dir={places[1]}", "--host=/nowhere"]
    run(parser().parse_args([*at, "--twin", "--interpreter=/usr/bin/env-of-the-host"]), {})
    assert (places[0] / "calico").read_bytes().startswith(b"#!/usr/bin/env-of-the-host -IS\n")
    run(parser().parse_args([*at, "--twin"]), {})
    assert "1.1.0" in answer(places[0] / "calico")
    install(*places, executable=plugin())
    assert (places[0] / "calico").read_bytes() == plugin().read_bytes()


@pytest.mark.parametrize("interpreter", ["python3", "/with a/space", "/" + "x" * 200])
def test_without_executable_and_interpreter_no_configuration_appears(
    places: tuple[Path, Path], interpreter: str
) -> None:
    with pytest.raises(NoExecutable, match="musl-tools"):
        install(*places, executable=places[0] / "nothing", interpreter=interpreter)
    assert not (places[1] / "10-calico.conflist").exists()


def test_uninstall_removes_only_ours(places: tuple[Path, Path]) -> None:
    bin_dir, net_dir = places
    install(bin_dir, net_dir, executable=plugin())
    (bin_dir / "portmap").write_text("")
    (net_dir / "99-other.conf").write_text("{}")
    uninstall(bin_dir, net_dir)
    uninstall(bin_dir, net_dir)
    assert (os.listdir(bin_dir), os.listdir(net_dir)) == (["portmap"], ["99-other.conf"])


def test_a_plugin_can_be_called_at_any_instant_of_an_installation(
    places: tuple[Path, Path], tmp_path: Path
) -> None:
    bin_dir, net_dir = places
    other = tmp_path / "other"
    other.write_bytes(plugin().read_bytes() + b"\0")
    install(bin_dir, net_dir, executable=plugin())
    stop = threading.Event()

    def keep_installing() -> None:
        while not stop.is_set():
            install(bin_dir, net_dir, {"name": "a"}, executable=other)
            install(bin_dir, net_dir, {"name": "b"}, executable=plugin())

    thread = threading.Thread(target=keep_installing)
    thread.start()
    try:
        for _ in range(50):
            env = {"CNI_COMMAND": "VERSION"}
            subprocess.run([bin_dir / "calico"], env=env, input=b"", check=True, stdout=-3)
            visible = [name for name in os.listdir(net_dir) if not name.startswith(".")]
            assert visible == ["10-calico.conflist"]
            assert not any(
                name.endswith((".conf", ".conflist", ".json"))
                for name in os.listdir(net_dir)
                if name.startswith(".")
            )
            json.loads((net_dir / "10-calico.conflist").read_text())
    finally:
        stop.set()
        thread.join()
