"""`node.sock` with a real felix: paths become routes, offers become endpoints."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path as FilePath
from types import UnionType
from typing import Any, cast

import msgspec
import pytest

from felix import offers
from felix.calc.graph import Calculator
from felix.calc.learned_routes import PathTable
from felix.config.parameters import Config
from felix.dataplane.loop import Dataplane
from felix.node_server import NodeServer
from libcalico.local.framing import Connection, connect_unix
from libcalico.local.node_api import (
    Await,
    Borrowed,
    BorrowedEnd,
    Fact,
    Hello,
    InForce,
    Offer,
    Path,
    Paths,
    PathsBegin,
    PathsEnd,
    RefusedPath,
    Retract,
    Stored,
    Unreleased,
    Vanished,
)
from libcalico.local.trace_messages import CountDrops, DropCounts
from libcalico.model import ResourceKey, WorkloadEndpoint
from tests.felix.stage import conditions_of
from tests.felix.world import BLOCK, CONTAINER, NODE, Pod, World, endpoint_spec
from tests.support import stopping
from tests.support.netns import Namespace
from tests.support.patience import HANG, patient, wait_for

REMOTE, REMOTE6 = "10.65.1.0/26", "fd65::1:0/122"
OTHER = "d" * 64


@asynccontextmanager
async def connected(world: World, process: str) -> AsyncIterator[Connection]:
    async with await connect_unix(world.socket, Hello(process)) as connection:
        yield connection


async def soon(check: Any) -> Any:
    return await asyncio.to_thread(wait_for, check)


async def message(connection: Connection, kind: type | UnionType) -> Any:
    async with asyncio.timeout(patient(5)):
        while True:
            found = await connection.receive()
            if isinstance(found, kind):
                return found


@pytest.mark.asyncio
async def test_own_addresses_are_told_at_once_and_when_they_change(world: World) -> None:
    async with connected(world, "bgp") as bgp:
        fact = await message(bgp, Fact)
        assert fact.local_addresses == ["10.99.7.1", "2001:db8:7::1"]
        assert fact.networks == {"10.99.7.0/24": "eth0", "2001:db8:7::/64": "eth0"}
        world.node.run("ip", "addr", "add", "10.99.7.77/24", "dev", "eth0")
        assert "10.99.7.77" in (await message(bgp, Fact)).local_addresses
        world.node.run("ip", "addr", "del", "10.99.7.77/24", "dev", "eth0")
        assert "10.99.7.77" not in (await message(bgp, Fact)).local_addresses


@pytest.mark.promise("M-139")
@pytest.mark.asyncio
async def test_paths_become_routes_and_outlive_the_speaker(world: World) -> None:
    stale = "10.65.2.0/26"
    world.ip(f"route add {stale} via 10.99.7.2 proto 109 metric 1024")
    async with connected(world, "bgp") as bgp:
        await bgp.send(PathsBegin())
        await bgp.send(
            Paths(
                updated=[
                    Path(REMOTE, ["10.99.7.2"]),
                    Path(REMOTE6, ["2001:db8:7::2"]),
                    Path("10.65.3.0/26", ["10.99.7.2", "10.99.7.3"]),
                    Path("10.65.4.0/26", ["10.99.8.1"]),
                    Path("198.51.100.0/24", ["10.99.7.2"], "external"),
                ]
            )
        )
        await soon(lambda: world.route(REMOTE))
        assert world.route(stale), "kept until the snapshot is complete"
        await bgp.send(PathsEnd())
        await soon(lambda: not world.route(stale))
        assert world.route(REMOTE) == f"{REMOTE} via 10.99.7.2 dev eth0 metric 1024"
        assert "via 2001:db8:7::2 dev eth0" in world.route(REMOTE6)
        multipath = world.route("10.65.3.0/26")
        assert "nexthop via 10.99.7.2 dev eth0" in multipath
        assert "nexthop via 10.99.7.3 dev eth0" in multipath
        # A peer in another rack is reached by the rack's router.
        assert world.route("10.65.4.0/26") == "10.65.4.0/26 via 10.99.7.2 dev eth0 metric 1024"
        assert world.route("198.51.100.0/24")
        await bgp.send(Paths(updated=[Path(REMOTE, ["10.99.7.3"])], withdrawn=["10.65.3.0/26"]))
        await soon(lambda: "10.99.7.3" in world.route(REMOTE))
        await soon(lambda: not world.route("10.65.3.0/26"))
    await asyncio.sleep(0.3)
    assert world.route(REMOTE), "the speaker is gone, its routes stay"
    async with connected(world, "bgp") as bgp:
        await bgp.send(PathsBegin())
        await bgp.send(Paths(updated=[Path(REMOTE, ["10.99.7.2"])]))
        await bgp.send(PathsEnd())
        await soon(lambda: not world.route("10.65.4.0/26"))
        assert world.route(REMOTE)


@pytest.mark.asyncio
async def test_next_hops_follow_the_kernels_routes(world: World) -> None:
    async with connected(world, "bgp") as bgp:
        await bgp.send(PathsBegin())
        await bgp.send(Paths(updated=[Path("10.65.5.0/26", ["10.99.9.1"])]))
        await bgp.send(PathsEnd())
        await soon(lambda: "via 10.99.7.2" in world.route("10.65.5.0/26"))
        world.ip("route add 10.99.9.0/24 via 10.99.7.9")
        await soon(lambda: "via 10.99.7.9" in world.route("10.65.5.0/26"))
        world.ip("route replace 10.99.9.0/24 nexthop via 10.99.7.8 nexthop via 10.99.7.9")
        await soon(lambda: world.route("10.65.5.0/26").count("nexthop via") == 2)
        world.ip("route replace unreachable 10.99.9.0/24")
        await soon(lambda: not world.route("10.65.5.0/26"))
        refused = await message(bgp, RefusedPath)
        assert refused.reason == "no route leads to its next hop"
        world.ip("route del unreachable 10.99.9.0/24")
        assert await message(bgp, RefusedPath) == RefusedPath("10.65.5.0/26", "")
        await soon(lambda: "via 10.99.7.2" in world.route("10.65.5.0/26"))


@pytest.mark.asyncio
async def test_an_uplink_that_was_down_has_its_routes_again(world: World) -> None:
    async with connected(world, "bgp") as bgp:
        await bgp.send(PathsBegin())
        await bgp.send(Paths(updated=[Path(REMOTE, ["10.99.7.2"])]))
        await bgp.send(PathsEnd())
        await soon(lambda: world.route(REMOTE))
        world.node.run("ip", "-batch", "-", input="link set eth0 down\nlink set eth0 up\n")
        await soon(lambda: world.route(REMOTE))
        world.ip("route replace default via 10.99.7.2")


@pytest.mark.asyncio
async def test_paths_that_pull_traffic_away_are_refused_by_name(world: World) -> None:
    refused = {
        "10.65.0.5/32": "inside a block of this node",
        "10.99.7.1/32": "address of this node",
        "192.0.2.0/24": "in no pool",
        "169.254.0.0/16": "link-local",
        "10.65.9.1/26": "host bits set",
    }
    async with connected(world, "bgp") as bgp:
        await bgp.send(PathsBegin())
        await bgp.send(Paths(updated=[Path(prefix, ["10.99.7.2"]) for prefix in refused]))
        await bgp.send(PathsEnd())
        while refused:
            answer = await message(bgp, RefusedPath)
            assert refused.pop(answer.prefix) in answer.reason
    await soon(lambda: world.metric("muslin_felix_refused_paths") == 5)


def borrow(world: World, address: str) -> str:
    """A pod of node2 has an address of this node's block; returns the name of its endpoint."""
    name = world.endpoint_name("theirs", "node2")
    spec = {"orchestrator": "k8s", "node": "node2", "pod": "theirs", "endpoint": "eth0"}
    spec |= {"interfaceName": "cali00theirs", "containerID": OTHER}
    more = {"ipNetworks": [f"{address}/32"], "profiles": ["kns.default"]}
    world.put("workloadendpoints", name, "WorkloadEndpoint", spec | more, "default")
    return name


@pytest.mark.asyncio
async def test_an_address_lent_to_another_node_is_routed_there(world: World) -> None:
    name = borrow(world, "10.65.0.7")
    async with connected(world, "bgp") as bgp:
        await bgp.send(PathsBegin())
        await bgp.send(Paths(updated=[Path("10.65.0.7/32", ["10.99.7.2"])]))
        await bgp.send(PathsEnd())
        await soon(lambda: "via 10.99.7.2" in world.route("10.65.0.7/32"))
        world.delete("workloadendpoints", "default", name)
        await soon(lambda: not world.route("10.65.0.7/32"))


@pytest.mark.asyncio
async def test_bgp_is_told_what_is_borrowed_at_once_and_as_it_changes(world: World) -> None:
    """NSV-4: all of it to a speaker that connects, then changes."""
    said = Borrowed(BLOCK, {"10.65.0.7": "node2"})
    async with connected(world, "bgp") as bgp:
        assert isinstance(await message(bgp, Borrowed | BorrowedEnd), BorrowedEnd), "nothing yet"
        name = borrow(world, "10.65.0.7")
        assert await message(bgp, Borrowed) == said
    async with connected(world, "bgp") as bgp:
        assert await message(bgp, Borrowed | BorrowedEnd) == said
        assert isinstance(await message(bgp, Borrowed | BorrowedEnd), BorrowedEnd)
        world.delete("workloadendpoints", "default", name)
        assert await message(bgp, Borrowed) == Borrowed(BLOCK, {})
    world.add_pod("mine", "cali00mine", "10.65.0.50")
    await soon(lambda: world.route("10.65.0.50/32"))
    async with connected(world, "bgp") as bgp:
        assert isinstance(await message(bgp, Borrowed | BorrowedEnd), BorrowedEnd), "of our block"
        family, block = "ipv4", BLOCK.replace("/", "-")
        world.etcd.ctl("del", f"/calico/ipam/v2/host/{NODE}/{family}/block/{block}")
        assert await message(bgp, Borrowed) == Borrowed(BLOCK, {"10.65.0.50": NODE})
        await soon(lambda: conditions_of(world, f"BlockAffinity({BLOCK})"))
        world.put_block(BLOCK, NODE)
        assert await message(bgp, Borrowed) == Borrowed(BLOCK, {})
        await soon(lambda: not conditions_of(world, f"BlockAffinity({BLOCK})"))
    world.delete_endpoint("mine")
    await soon(lambda: not world.route("10.65.0.50/32"))
    world.ip("link delete cali00mine")


@pytest.mark.asyncio
async def test_an_offered_endpoint_is_in_force_before_it_is_stored(world: World) -> None:
    name = world.endpoint_name("offered")
    async with connected(world, "cni") as cni:
        pod = world.wire("cali00offered", "10.65.0.20")
        value = world.put_endpoint("offered", pod).decode()
        await soon(lambda: world.route("10.65.0.20/32"))
        world.delete_endpoint("offered")
        await soon(lambda: not world.route("10.65.0.20/32"))
        await cni.send(Await("default", name, CONTAINER))
        await cni.send(Offer("default", name, value))
        answer = await message(cni, InForce)
        assert answer == InForce("default", name, CONTAINER)
        # In force means: now, not soon.
        assert world.route("10.65.0.20/32")
        assert "ESTABLISHED" in world.chain("cali-fw-cali00offered").upper()
        assert pod.reaches("203.0.113.9", wait=HANG)
        writes = world.metric("muslin_felix_route_writes_total")
        world.put_endpoint("offered", pod)
        await cni.send(Await("default", name, CONTAINER, 7))
        assert await message(cni, InForce) == InForce("default", name, CONTAINER, "", 7)
        assert world.metric("muslin_felix_route_writes_total") == writes
        await cni.send(Retract("default", name, OTHER))
        await asyncio.sleep(0.2)
        assert world.route("10.65.0.20/32"), "another container's retraction"
        await cni.send(Retract("default", name, CONTAINER))
        await soon(lambda: not world.route("10.65.0.20/32"))
        world.delete_endpoint("offered")


@pytest.mark.asyncio
async def test_who_asks_while_the_datastore_is_locked_keeps_felix_from_nothing(
    world: World,
) -> None:
    """No turn judges until it is unlocked: to ask for one at the end of each would never end."""
    name, interface = world.endpoint_name("locked"), "cali00locked"
    pod = world.wire(interface, "10.65.0.31")

    def lock(ready: bool) -> None:
        spec = {"clusterGUID": "g", "clusterType": "bgp", "datastoreReady": ready}
        world.put("clusterinformations", "default", "ClusterInformation", spec)

    async with connected(world, "cni") as cni:
        world.put_endpoint("locked", pod)
        await cni.send(Await("default", name, CONTAINER, 1))
        assert (await message(cni, InForce)).number == 1
        # A turn that looks at everything, so that everybody is answered after the next ones.
        world.kernel.flush("cali-FORWARD")
        await soon(lambda: "cali-from-wl-dispatch" in world.chain("cali-FORWARD"))
        lock(False)
        await soon(lambda: conditions_of(world, "ClusterInformation(default)"))
        world.ip(f"link set {interface} mtu 1400")
        await cni.send(Await("default", name, CONTAINER, 2))
        await cni.send(CountDrops(1))
        told = await message(cni, DropCounts | InForce)
        lock(True)
        answers = [told, await message(cni, DropCounts | InForce)]
        assert {type(one) for one in answers} == {DropCounts, InForce}
    world.delete_endpoint("locked")


@pytest.mark.asyncio
async def test_in_force_waits_for_the_interface(world: World) -> None:
    name = world.endpoint_name("waits")
    ghost = Pod(world.outside, "cali000waits", "10.65.0.21", "")
    async with connected(world, "cni") as cni:
        world.put_endpoint("waits", ghost)
        await cni.send(Await("default", name, CONTAINER))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await message(cni, InForce)
        world.wire("cali000waits", "10.65.0.21")
        assert (await message(cni, InForce)).error == ""


@pytest.mark.asyncio
async def test_who_wires_himself_hears_of_the_rules_and_of_the_routes_that_lack(
    world: World,
) -> None:
    """NSV-3, STL-1: no link is needed, but the rules are; a foreign route is not replaced."""
    name, interface, address = world.endpoint_name("wired"), "cali000wired", "10.65.0.24"
    ghost = Pod(world.outside, interface, address, "")
    async with connected(world, "cni") as cni:
        value = world.put_endpoint("wired", ghost).decode()
        world.delete_endpoint("wired")
        world.ip(f"route add {address}/32 via 10.99.7.2 metric 1024")
        # felix has heard of it when it answers what happened after it.
        world.ip(f"route del blackhole {BLOCK}")
        await soon(lambda: world.route(BLOCK))
        await cni.send(Offer("default", name, value))
        await cni.send(Await("default", name, CONTAINER, 1, wired=True))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await message(cni, InForce)
        world.ip(f"route del {address}/32 via 10.99.7.2 metric 1024")
        routes = [f"{address}/32"]
        assert await message(cni, InForce) == InForce("default", name, CONTAINER, "", 1, routes)
        assert "ESTABLISHED" in world.chain(f"cali-fw-{interface}").upper()
        writes = world.metric("muslin_felix_route_writes_total")
        world.wire(interface, address)
        world.ip(f"route replace {address}/32 dev {interface} proto 109 metric 1024 scope link")
        await cni.send(Await("default", name, CONTAINER, 3))
        assert await message(cni, InForce) == InForce("default", name, CONTAINER, "", 3)
        # Whoever of the two was second wrote what was there.
        assert world.metric("muslin_felix_route_writes_total") <= writes + 1
        world.ip(f"route del {address}/32")
        await soon(lambda: world.route(f"{address}/32"))
        await cni.send(Retract("default", name, CONTAINER))
        await soon(lambda: not world.route(f"{address}/32"))


@pytest.mark.asyncio
@pytest.mark.parametrize("wired", [False, True])
async def test_what_was_in_force_on_a_link_that_is_gone_is_no_answer(
    world: World, wired: bool
) -> None:
    """NSV-3: felix is asked before it has heard that the link went, and its route with it."""
    pod_name, interface = f"went-{wired:d}", f"cali00went{wired:d}"
    address = f"10.65.0.{27 + wired}"
    name, pod = world.endpoint_name(pod_name), world.wire(interface, address)
    assert world.process is not None
    async with connected(world, "cni") as cni:
        world.put_endpoint(pod_name, pod)
        await cni.send(Await("default", name, CONTAINER, 1))
        assert (await message(cni, InForce)).number == 1
        stopping.pause(world.process.pid)
        try:
            world.ip(f"link delete {interface}")
            await cni.send(Await("default", name, CONTAINER, 2, wired))
            await cni.send(CountDrops(1))
        finally:
            world.process.send_signal(signal.SIGCONT)
        heard = [await message(cni, InForce | DropCounts)]
        if not wired:
            assert isinstance(heard[0], DropCounts), "no link, no route, and no word"
            world.wire(interface, address)
        while not any(isinstance(one, InForce) for one in heard):
            heard.append(await message(cni, InForce))
        routes = [f"{address}/32"] if wired else []
        answers = [one for one in heard if isinstance(one, InForce)]
        assert answers == [InForce("default", name, CONTAINER, "", 2, routes)]
        assert wired or world.route(f"{address}/32")
    world.delete_endpoint(pod_name)


@pytest.mark.asyncio
async def test_what_never_will_be_in_force_is_answered_with_the_reason(world: World) -> None:
    async with connected(world, "cni") as cni:
        await cni.send(Offer("default", "x", "{}"))
        await cni.send(Await("default", "x", CONTAINER))
        assert "WorkloadEndpoint(default/x)" in (await message(cni, InForce)).error
        pod = world.add_pod("first", "cali00shared", "10.65.0.22")
        await soon(lambda: world.route("10.65.0.22/32"))
        world.put_endpoint("second", Pod(pod.space, "cali00shared", "10.65.0.23", ""), OTHER)
        await cni.send(Await("default", world.endpoint_name("second"), OTHER))
        assert "belongs to" in (await message(cni, InForce)).error


@pytest.mark.asyncio
async def test_thousands_of_paths_are_written_while_the_process_answers(world: World) -> None:
    prefixes = [f"198.18.{n // 256}.{n % 256}/32" for n in range(5000)]
    async with connected(world, "bgp") as bgp:
        await bgp.send(PathsBegin())
        paths = [Path(prefix, ["10.99.7.2"], "external") for prefix in prefixes]
        await bgp.send(Paths(updated=paths))
        await bgp.send(PathsEnd())
        await soon(lambda: len(own_routes(world)) == len(prefixes))
        assert world.get("/liveness")[0] == 200
        await bgp.send(Paths(withdrawn=prefixes[1:]))
        await soon(lambda: own_routes(world) == ["198.18.0.0"])


def own_routes(world: World) -> list[str]:
    lines = world.routes("proto", "109").splitlines()
    return [line.split()[0] for line in lines if line.startswith("198.18.")]


@pytest.mark.asyncio
async def test_an_offer_that_is_repeated_outlives_its_first_connection(
    tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    graces = held_timers(monkeypatch, offers.OFFER_GRACE)
    plane = Dataplane(Calculator(NODE), PathTable(), Config(), lambda: None)
    server, socket = NodeServer(NODE, plane), tmp_path / "private" / "node.sock"
    await server.start(socket)
    name, value = offered("again")
    offer = Offer("default", name, json.dumps(value))

    def known() -> bool:
        key = ResourceKey("WorkloadEndpoint", name, "default")
        return plane.calc.endpoints.get(key) is not None

    try:
        for number in (1, 2):
            async with await connect_unix(socket, Hello("cni")) as cni:
                await cni.send(offer)
                await soon(known)
            await soon(lambda: len(graces) == number)  # noqa: B023
        async with await connect_unix(socket, Hello("cni")) as cni:
            await cni.send(offer)
            await soon(lambda: any(peer.offers for peer in server._peers))
            for ends in graces:
                ends()
            assert known(), "the connection that offers it stands"
        await soon(lambda: len(graces) == 3)
        assert known()
        graces[-1]()
        assert not known()
    finally:
        await server.stop()


@pytest.mark.parametrize("told", ["stored", "not stored", "stored, and cni ends before it says so"])
@pytest.mark.asyncio
async def test_only_what_was_never_stored_is_called_so(
    tmp_path: FilePath,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    told: str,
) -> None:
    """NSV-1, with a store whose endpoints have uids of their own (Kubernetes)."""
    monkeypatch.setattr(offers, "OFFER_GRACE", 0.05)
    plane = Dataplane(Calculator(NODE), PathTable(), Config(), lambda: None)
    server, socket = NodeServer(NODE, plane), tmp_path / "private" / "node.sock"
    await server.start(socket)
    name, value = offered("once")
    key = ResourceKey("WorkloadEndpoint", name, "default")
    labelled = msgspec.convert(value, WorkloadEndpoint)
    metadata = msgspec.structs.replace(labelled.metadata, uid="the pod's", labels={"is": "new"})
    labelled = msgspec.structs.replace(labelled, metadata=metadata)

    def labels() -> dict[str, str] | None:
        found = plane.calc.endpoints.get(key)
        return dict(found.labels) if found is not None else None

    try:
        async with await connect_unix(socket, Hello("cni")) as cni:
            await cni.send(Offer("default", name, json.dumps(value)))
            await soon(lambda: labels() is not None)
            if told == "stored":
                await cni.send(Stored("default", name, CONTAINER, 7))
                await soon(lambda: not any(peer.offers for peer in server._peers))
            if told != "not stored":
                plane.calc.update(key, labelled, 7)
        await soon(lambda: not server._peers)
        if told == "not stored":
            await soon(lambda: labels() is None)
        else:
            await soon(lambda: (labels() or {}).get("is") == "new")
        assert ("never stored" in caplog.text) == (told == "not stored")
    finally:
        await server.stop()


@pytest.mark.asyncio
async def test_what_waits_in_the_journal_is_known_until_cni_says_otherwise(
    tmp_path: FilePath,
) -> None:
    plane = Dataplane(Calculator(NODE), PathTable(), Config(), lambda: None)
    server, socket = NodeServer(NODE, plane), tmp_path / "private" / "node.sock"
    await server.start(socket)
    try:
        async with await connect_unix(socket, Hello("cni")) as cni:
            await cni.send(Unreleased([CONTAINER]))
            await soon(lambda: plane.calc.endpoints.unreleased)
        await soon(lambda: not server._peers)
        assert plane.calc.endpoints.unreleased == {CONTAINER}
        async with await connect_unix(socket, Hello("cni")) as cni:
            await cni.send(Unreleased([]))
            await soon(lambda: not plane.calc.endpoints.unreleased)
    finally:
        await server.stop()


@pytest.mark.asyncio
async def test_a_late_end_of_another_container_leaves_an_offer_its_makers(
    tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NSV-1: it goes with who made it, whatever was said of an earlier sandbox."""
    monkeypatch.setattr(offers, "OFFER_GRACE", 0.05)
    plane = Dataplane(Calculator(NODE), PathTable(), Config(), lambda: None)
    server, socket = NodeServer(NODE, plane), tmp_path / "private" / "node.sock"
    await server.start(socket)
    name, value = offered("left")
    key = ResourceKey("WorkloadEndpoint", name, "default")
    try:
        async with await connect_unix(socket, Hello("cni")) as cni:
            await cni.send(Offer("default", name, json.dumps(value)))
            await cni.send(Retract("default", name, OTHER))
            await cni.send(Stored("default", name, OTHER, 3))
            await soon(lambda: plane.calc.endpoints.get(key))
        await soon(lambda: plane.calc.endpoints.get(key) is None)
    finally:
        await server.stop()


def held_timers(monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[Callable[[], object]]:
    """What this loop is asked to do after so many seconds: it is done when the test does it."""
    loop, held = asyncio.get_running_loop(), list[Callable[[], object]]()
    call_later = loop.call_later

    def later(delay: float, act: Callable[..., object], *given: Any, **more: Any) -> Any:
        if delay != seconds:
            return call_later(delay, act, *given, **more)
        held.append(lambda: act(*given))
        return call_later(HANG, lambda: None)

    monkeypatch.setattr(loop, "call_later", later)
    return held


def offered(pod: str) -> tuple[str, dict[str, Any]]:
    """Name and value of an endpoint that is offered."""
    name = f"{NODE}-k8s-{pod}-eth0"
    ghost = Pod(cast("Namespace", None), f"cali000{pod}", "10.65.0.31", "")
    return name, {
        "kind": "WorkloadEndpoint",
        "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": name, "namespace": "default", "uid": "made up"},
        "spec": endpoint_spec(pod, ghost),
    }


@pytest.mark.asyncio
async def test_cni_is_told_of_an_endpoint_that_the_datastore_lost(tmp_path: FilePath) -> None:
    plane = Dataplane(Calculator(NODE), PathTable(), Config(), lambda: None)
    server, socket = NodeServer(NODE, plane), tmp_path / "private" / "node.sock"
    await server.start(socket)
    name, value = offered("lost")
    key = ResourceKey("WorkloadEndpoint", name, "default")
    plane.calc.update(key, msgspec.convert(value, WorkloadEndpoint), 7)
    try:
        async with (
            await connect_unix(socket, Hello("cni")) as cni,
            await connect_unix(socket, Hello("bgp")) as bgp,
        ):
            await message(cni, Fact)
            await message(bgp, Fact)
            plane.calc.update(key, None, 8)
            server.publish()
            assert await message(cni, Vanished) == Vanished("default", name, CONTAINER)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await message(bgp, Vanished)
    finally:
        await server.stop()
