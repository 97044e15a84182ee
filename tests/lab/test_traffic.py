"""What traffic counts as lost: on a wire that is slow, and loses nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lab.demo import traffic
from lab.machine import FAST_PYTHON
from lab.pod_containers import RESPONDER
from tests.support.netns import Namespace, network_namespace

ADDRESSES = ("10.98.0.1", "10.98.0.2")
PORT = 7000
SLOW = "tc qdisc add dev eth0 root tbf rate 120kbit burst 1600 latency 60s"
"""Less than the pings of both ways take, so that more and more of them are under way."""


@dataclass
class Place:
    """A pod and its node in one namespace, as far as traffic needs them."""

    space: Namespace
    folder: Path

    def path(self, name: str) -> Path:
        """A file inside."""
        return self.folder / Path(name).name

    def start(
        self, command: Sequence[str], *, netns: str, output: str = ""
    ) -> subprocess.Popen[bytes]:
        """A process inside."""
        words = self.space.command(*command)
        if not output:
            return subprocess.Popen(words, stdout=subprocess.PIPE)
        with self.path(output).open("ab") as log:
            return subprocess.Popen(words, stdout=log)


@pytest.fixture
def places(tmp_path: Path) -> Iterator[list[Place]]:
    """Two, on one wire."""
    with network_namespace("ta") as a, network_namespace("tb") as b:
        a.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", b.name)
        made = []
        for space, address in zip((a, b), ADDRESSES, strict=True):
            space.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
            space.run("ip", "link", "set", "eth0", "up")
            made.append(Place(space, tmp_path / space.name))
            made[-1].folder.mkdir()
        yield made


def test_what_is_under_way_at_the_end_is_not_lost(places: list[Place]) -> None:
    spaces = [place.space for place in places]
    by_node = {place.space.name: place for place in places}
    lab: Any = SimpleNamespace(machine=by_node.__getitem__)
    one, other = (
        cast(Any, SimpleNamespace(name=s.name, node=s.name, netns=s.name, address=address))
        for s, address in zip(spaces, ADDRESSES, strict=True)
    )
    words = [*FAST_PYTHON, str(RESPONDER), f"tcp:{PORT}"]
    responder = spaces[1].popen(*words, stdout=subprocess.PIPE)
    try:
        assert responder.stdout
        assert responder.stdout.readline() == "listening\n"
        spaces[0].run("ping", "-c", "1", "-W", "60", ADDRESSES[1])
        with traffic.between(lab, one, other, PORT) as seen:
            for space in spaces:
                space.run(*SLOW.split())
            seen.go_on(100)
            seen.settled()
    finally:
        responder.kill()
        responder.communicate()
    assert (seen.lost, seen.lost_after) == (0, 0), seen.lines
    assert seen.sent > 300
