"""Peers of a node that still runs BIRD, read from a real BIRD's control socket."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from calicoctl.node import bird, processes, report
from libcalico.process import paths
from tests.support.ended import ended
from tests.support.netns import network_namespace
from tests.support.patience import wait_for

pytestmark = pytest.mark.skipif(shutil.which("bird") is None, reason="BIRD is not installed")
_LOCAL = "local as 64512; neighbor"
_ROUTES = "{ import all; export none; };"
CONFIG = f"""
router id 10.99.1.1;
protocol device {{}}
protocol bgp Mesh_10_99_1_2 {{ {_LOCAL} 10.99.1.2 as 64512; ipv4 {_ROUTES} }}
protocol bgp Node_10_99_1_254 {{ {_LOCAL} 10.99.1.254 as 64500; ipv4 {_ROUTES} }}
protocol bgp others {{ {_LOCAL} 10.99.1.9 as 64512; ipv4 {_ROUTES} }}
protocol bgp Global_fd00__9 {{ {_LOCAL} fd00::9 as 64512; ipv6 {_ROUTES} }}
"""


def listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as caller:
        return bool(caller.connect_ex(str(path)) == 0)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "bird.conf").write_text(CONFIG)
    with (
        network_namespace("bird") as space,
        ended(
            space.popen(
                "bird", "-f", "-c", str(tmp_path / "bird.conf"), "-s", str(tmp_path / "bird.ctl")
            )
        ),
    ):
        wait_for(lambda: listens(tmp_path / "bird.ctl"), "BIRD did not start")
        yield tmp_path


def test_peers_of_a_real_bird(folder: Path) -> None:
    found = bird.peers(4, [folder])
    assert [(one["address"], one["type"]) for one in found] == [
        ("10.99.1.2", "node-to-node mesh"),
        ("10.99.1.254", "node specific"),
    ]
    assert all(one["state"] in ("start", "down") and one["since"] for one in found)
    with pytest.raises(bird.NoBird, match="BIRDv6 process: 'bird6' is not running"):
        bird.peers(6, [folder])


def test_bird_6_speaks_on_a_socket_of_its_own(folder: Path) -> None:
    (folder / "bird6.ctl").symlink_to(folder / "bird.ctl")
    assert [one["address"] for one in bird.peers(6, [folder])] == ["fd00::9"]


def test_node_status_shows_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bird, "FOLDERS", (folder,))
    monkeypatch.setattr(paths, "STATUS", folder / "status")
    monkeypatch.setattr(processes, "running_here", lambda names: 77)
    text = report.as_text(report.gather())
    assert text.startswith("Calico process is running.\n\nIPv4 BGP status\n+")
    assert "| 10.99.1.254  | node specific     |" in text
    assert text.endswith("INFO: BIRDv6 process: 'bird6' is not running.\n\n")


def test_a_dead_socket_is_no_bird(tmp_path: Path) -> None:
    (tmp_path / "bird.ctl").touch()
    with pytest.raises(bird.NoBird, match="does not answer"):
        bird.peers(4, [tmp_path])


def test_lines_of_show_protocols() -> None:
    text = (
        "2002-Name       Proto      Table      State  Since         Info\n"
        "1002-device1    Device     ---        up     2026-11-21    \n"
        " Mesh_10_0_0_2 BGP        ---        up     17:11:42      Established   \n"
        " Mesh_10_0_0_3 BGP        ---        start  17:11:42      Active        Socket: refused\n"
        " Mesh_bad      BGP        ---        up     17:11:42      Established\n"
        "0000 \n"
    )
    found = bird.parsed(text, 4)
    assert [one["info"] for one in found] == ["Established", "Active        Socket: refused"]
    assert bird.parsed(text, 6) == []
