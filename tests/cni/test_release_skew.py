"""Executable, daemon and felix of neighbouring releases work together, in any order of upgrade.

Real processes; what one of them says passes a relay that makes it the word of another release:
a later one has fields and messages that nobody here knows, an earlier one lacks those that came
since protocol version 1 was written down.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from libcalico.local.framing import connect_unix
from libcalico.local.node_api import Hello, Paths, PathsBegin, PathsEnd
from libcalico.local.node_api import Path as BestPath
from tests.cni.faulty_node import reachable
from tests.cni.world import WAITS, World, changed, node_world, pod_namespace, result_of
from tests.support.frames import Change, Json, relayed
from tests.support.patience import until

SINCE_VERSION_1 = {"await": {"number", "wired"}, "in_force": {"number", "routes"}}
NEW_SINCE_VERSION_1 = {"stored", "vanished"}


def later(message: Json) -> list[Json]:
    """A later release says more, and things that are new."""
    more = {"of_a_later_release": {"any": ["thing"]}}
    if message["type"] == "hello":
        features = [*message["features"], "of-a-later-release"]
        return [message | more | {"features": features}, {"type": "of_a_later_release", "id": 1}]
    return [{"type": "of_a_later_release", "id": 2}, message | more]


def earlier(message: Json) -> list[Json]:
    """An earlier release says less, and has not read what it does not know."""
    if message["type"] in NEW_SINCE_VERSION_1:
        return []
    unknown = SINCE_VERSION_1.get(message["type"], set())
    return [{name: value for name, value in message.items() if name not in unknown}]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with node_world(tmp_path_factory.mktemp("skew")) as found:
        yield found


@pytest.mark.promise("PAIN-33")
@pytest.mark.parametrize("change", [later, earlier])
@pytest.mark.parametrize("call", [later, earlier])
@pytest.mark.asyncio
async def test_a_pod_comes_and_goes_between_releases(
    node: World, tmp_path: Path, change: Change, call: Change
) -> None:
    """`change`: what felix and the daemon say to each other; `call`: executable and daemon."""
    plain = node.settings
    async with node.felix() as felix:
        with (
            relayed(tmp_path / "node.sock", felix.socket, change) as to_felix,
            relayed(tmp_path / "cni.sock", plain.socket, call) as to_daemon,
        ):
            async with node.daemon(felix_socket=tmp_path / "node.sock"):
                node.settings = changed(plain, socket=tmp_path / "cni.sock")
                try:
                    with pod_namespace() as pod:
                        done = await node.add(pod, config=WAITS)
                        address = result_of(done)["ips"][0]["address"].split("/")[0]
                        assert reachable(node, address)
                        assert (await node.delete(pod)).status == 0
                        await until(lambda: " dev cali" not in node.space.run("ip", "route"))
                        node.assert_clean()
                finally:
                    node.settings = plain
        await until(lambda: {"offer", "in_force", "retract"} <= to_felix.seen.keys())
        assert to_daemon.seen["request"] == to_daemon.seen["result"] == 2


@pytest.mark.promise("PAIN-33")
@pytest.mark.asyncio
async def test_paths_of_a_later_speaker_become_routes(node: World, tmp_path: Path) -> None:
    async with node.felix() as felix:
        with relayed(tmp_path / "node.sock", felix.socket, later) as relay:
            connection = await connect_unix(tmp_path / "node.sock", Hello(process="bgp"))
            async with connection:
                found = BestPath("10.77.0.0/24", ["10.99.1.7"], origin="external")
                for each in (PathsBegin(), Paths(updated=[found]), PathsEnd()):
                    await connection.send(each)
                await until(lambda: "10.77.0.0/24" in node.space.run("ip", "route"))
        assert relay.seen["paths"] == 1
