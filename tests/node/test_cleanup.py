"""`calico-node cleanup --force` under agents that live: done, and it says that they write again."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from libcalico.errors import MuslinError
from libcalico.process import paths
from node import cleanup, hostports
from tests.support.netns import network_namespace
from tests.support.patience import HANG


def test_forced_under_living_agents_it_says_that_they_write_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    monkeypatch.setattr(paths, "RUN", run)
    monkeypatch.setattr(paths, "LIB", tmp_path / "lib")
    monkeypatch.setattr(cleanup, "AGENTS", {run / "node.sock": "calico-felix"})
    said: list[str] = []
    listening = socket.socket(socket.AF_UNIX)
    with listening, network_namespace("clean") as space, space.entered():
        listening.bind(str(run / "node.sock"))
        listening.listen()
        with pytest.raises(MuslinError, match=r"calico-felix runs: .*use --force"):
            asyncio.run(cleanup.clean({}, keep_cni=True, say=said.append))
        assert said == []
        asyncio.run(cleanup.clean({}, force=True, keep_cni=True, say=said.append))
    assert said[-1] == (
        "still running, will write everything again: calico-felix; end that, then clean up again"
    )


PORTMAP = """\
*nat
:CNI-HOSTPORT-DNAT - [0:0]
:CNI-HOSTPORT-MASQ - [0:0]
:CNI-HOSTPORT-SETMARK - [0:0]
:CNI-DN-0123456789abcdef01234 - [0:0]
:MINE - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A PREROUTING -p tcp --dport 80 -j MINE
-A OUTPUT -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j CNI-HOSTPORT-MASQ
-A CNI-HOSTPORT-DNAT -p tcp -m multiport --dports 8080 -j CNI-DN-0123456789abcdef01234
-A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE
-A CNI-HOSTPORT-SETMARK -j MARK --set-xmark 0x2000/0x2000
COMMIT
"""
"""As portmap 1.1.1 writes them, with one port."""


@pytest.mark.parametrize("program", ["iptables", "ip6tables"])
@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_portmaps_chains_go_once_they_forward_nothing(program: str, variant: str) -> None:
    said: list[str] = []
    with network_namespace("ports") as space:
        restore, save = f"{program}-{variant}-restore", f"{program}-{variant}-save"
        space.run("sh", "-c", f"{restore} <<'END'\n{PORTMAP}END")

        def rules() -> list[str]:
            lines = space.run(save, "-t", "nat").splitlines()
            own = [line.partition(" [")[0] for line in lines if line.startswith((":C", ":M", "-A"))]
            return sorted(own)

        def clean() -> dict[str, str]:
            with space.entered():
                return asyncio.run(hostports.remove(HANG, said.append))

        before = rules()
        assert len(before) == 12
        assert clean() == {}
        assert rules() == before, "a port is forwarded"
        assert "still forwards ports, and stays" in said[-1]
        space.run(f"{program}-{variant}", "-t", "nat", "-F", "CNI-HOSTPORT-DNAT")
        space.run(f"{program}-{variant}", "-t", "nat", "-X", "CNI-DN-0123456789abcdef01234")
        assert clean() == {}
        assert rules() == ["-A PREROUTING -p tcp -m tcp --dport 80 -j MINE", ":MINE -"]
        assert len(said) == 2
        assert clean() == {}
        assert len(said) == 2, "nothing is left to do"
