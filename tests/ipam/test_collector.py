"""What proves death, what does not, and a release that harms no successor."""

from __future__ import annotations

import asyncio
import gc
import time
from dataclasses import replace
from ipaddress import ip_address, ip_network

import msgspec
import pytest

from ipam.allocator.view import View
from ipam.collector.collector import Collector, concerning
from ipam.collector.leak_evidence import (
    Held,
    Judgement,
    LeakEvidence,
    Listed,
    Suspect,
    confirmed,
    judge,
    widowed,
)
from ipam.collector.release_plan import plan_release
from ipam.records import blocks, handles
from ipam.records.block_editor import cooling
from libcalico.datastore.interface import ABSENT, Entry, Put
from libcalico.model import Block, IPAMConfig, Metadata, WorkloadEndpoint, WorkloadEndpointSpec
from libcalico.model.keys import BlockKey, HandleKey, IPAMConfigKey, ResourceKey
from tests.ipam.memory import MemoryStore
from tests.ipam.world import put_pool

CIDR = ip_network("10.0.0.0/29")
CID = "a" * 64
HANDLE = f"net.{CID}"
POD = {"node": "n1", "namespace": "default", "pod": "web"}
WEP = ResourceKey("WorkloadEndpoint", "n1-k8s-web-eth0", "default")
GONE = LeakEvidence(frozenset({"eth0"}), frozenset(), sandboxes_configured=True)


def block_with(handle: str = HANDLE, *, owner: str = "host:n1", **attributes: str) -> Entry:
    block = blocks.create(CIDR, owner, None, 100)
    given, _ = blocks.assign(block, 1, handle, attributes or POD)
    return Entry(BlockKey(CIDR), given, 7, b"")


def endpoint(cid: str = CID, interface: str = "cali1", address: str = "10.0.0.0") -> Entry:
    spec = WorkloadEndpointSpec(
        node="n1", containerID=cid, interfaceName=interface, ipNetworks=[f"{address}/32"]
    )
    value = WorkloadEndpoint(metadata=Metadata(name=WEP.name, namespace="default"), spec=spec)
    return Entry(WEP, value, 9, b"")


def reason(block: Entry, endpoints: list[Entry], evidence: LeakEvidence) -> str:
    """Why the only handle is in use; "" if it is dead."""
    judged = judge("n1", [block], endpoints, evidence)
    return "" if judged.dead else next(iter(judged.kept.values()), "not judged")


def test_dead_is_whose_interface_and_sandbox_are_gone() -> None:
    judged = judge("n1", [block_with()], [endpoint()], GONE)
    suspect = judged.dead[HANDLE]
    assert suspect.allocations == {Held(ip_address("10.0.0.0"), 100, CIDR)}
    assert suspect.endpoints == {WEP: 9}
    assert "cali1 does not exist, nor does the sandbox" in suspect.reason


@pytest.mark.promise("PAIN-2")
@pytest.mark.parametrize(
    ("evidence", "why"),
    [
        (replace(GONE, interfaces=None), "links could not be read"),
        (replace(GONE, interfaces=frozenset({"cali1"})), "cali1 exists"),
        (replace(GONE, sandboxes=None), "sandbox list could not be read"),
        (replace(GONE, sandboxes=frozenset({CID})), "its sandbox exists"),
        (replace(GONE, busy=frozenset({CID})), "in progress"),
        (replace(GONE, listed=Listed("net", frozenset({CID}))), "lists its attachment"),
    ],
)
def test_missing_information_means_in_use(evidence: LeakEvidence, why: str) -> None:
    assert why in reason(block_with(), [endpoint()], evidence)


@pytest.mark.promise("PAIN-2")
def test_an_endpoint_that_names_no_interface_proves_nothing() -> None:
    assert "no host interface" in reason(block_with(), [endpoint(interface="")], GONE)


@pytest.mark.promise("PAIN-2")
@pytest.mark.parametrize(
    ("block", "why"),
    [
        (block_with(node="n2", pod="web", namespace="default"), "not judged"),
        (block_with("ipip-tunnel-addr-n1", node="n1", type="ipipTunnelAddress"), "no container"),
        (block_with("plain", node="n1"), "names no container"),
        (block_with("net.vmi.ns.vm", **POD, **{"vmi-name": "vm"}), "virtual machine"),
        (block_with(timestamp="t"), "not judged"),
    ],
)
def test_what_is_no_dead_container_of_this_node_stays(block: Entry, why: str) -> None:
    assert why in reason(block, [], replace(GONE, listed=Listed("net", frozenset())))


def test_a_borrowed_address_is_judged_by_its_own_node_only() -> None:
    borrowed = block_with(owner="host:n2")
    assert judge("n1", [borrowed], [endpoint()], GONE).dead
    judged = judge("n2", [borrowed], [], GONE)
    assert not judged.dead
    assert not judged.kept


def test_without_an_endpoint_only_the_runtimes_word_counts() -> None:
    blind = replace(GONE, sandboxes=None, sandboxes_configured=False)
    assert "nothing here proves" in reason(block_with(), [], blind)
    assert reason(block_with(), [], GONE) == ""
    # A container that is no pod is unknown to the sandbox list while it lives.
    assert "nothing here proves" in reason(block_with(node="n1"), [], GONE)
    assert (
        reason(block_with(node="n1"), [], replace(blind, listed=Listed("net", frozenset()))) == ""
    )
    other = replace(blind, listed=Listed("other", frozenset()))
    assert "nothing here proves" in reason(block_with(node="n1"), [], other)


@pytest.mark.promise("PAIN-2")
def test_a_list_says_nothing_about_a_container_with_a_call_since() -> None:
    evidence = replace(GONE, listed=Listed("net", frozenset()), called=frozenset({CID}))
    assert "came after the runtime's list" in reason(block_with(), [], evidence)


@pytest.mark.promise("PAIN-2")
def test_the_cable_of_one_network_proves_nothing_about_anothers_addresses() -> None:
    blind = replace(GONE, sandboxes=None, sandboxes_configured=False)
    second = endpoint(address="10.0.0.9")
    assert "nothing here proves" in reason(block_with(), [second], blind)
    assert reason(block_with(), [endpoint()], blind) == ""


@pytest.mark.promise("PAIN-2")
def test_a_living_container_with_a_dot_in_its_id_keeps_its_address() -> None:
    """CNI allows it: `net.pod.two` may be container `two` of network `net.pod`, or not."""
    dotted = block_with("net.pod.two")
    sandbox = replace(GONE, sandboxes=frozenset({"pod.two"}))
    assert "its sandbox exists" in reason(dotted, [], sandbox)
    assert "its sandbox exists" in reason(dotted, [endpoint("pod.two")], sandbox)
    link = replace(GONE, interfaces=frozenset({"cali1"}))
    assert "cali1 exists" in reason(dotted, [endpoint("pod.two")], link)
    assert "in progress" in reason(dotted, [], replace(GONE, busy=frozenset({"pod.two"})))
    assert widowed("n1", [dotted], [endpoint("pod.two")], [ip_network("10.0.0.0/16")]) == []


def test_a_dead_container_with_a_dot_in_its_id_takes_its_endpoint_along() -> None:
    judged = judge("n1", [block_with("net.pod.two")], [endpoint("pod.two")], GONE)
    suspect = judged.dead["net.pod.two"]
    assert (suspect.container_id, suspect.endpoints) == ("pod.two", {WEP: 9})


@pytest.mark.asyncio
@pytest.mark.promise("F-27")
async def test_what_is_collected_cools_where_the_operator_asked() -> None:
    store = await stored()
    config = IPAMConfig(auto_allocate_blocks=True, ipCooldownSeconds=60)
    await store.commit([Put(IPAMConfigKey(), config)])

    async def observe() -> LeakEvidence:
        return GONE

    assert (await Collector(store, "n1", observe, gap=0).sweep()).collected
    block = store.entries[BlockKey(CIDR)].value
    assert list(cooling(block))
    assert 0 not in block.unallocated


@pytest.mark.asyncio
async def test_thousands_of_foreign_blocks_do_not_hold_up_the_loop() -> None:
    foreign = []
    for number in range(3000):
        cidr = ip_network((0x0B000000 + number * 64, 26))
        block = blocks.create(cidr, "host:n2", None, 1)
        for pod in range(2):
            block, _ = blocks.assign(block, 15, f"net.{number}-{pod}", {"node": "n2", "pod": "p"})
        foreign.append(Entry(BlockKey(cidr), block, 1, b""))
    far, _ = blocks.assign(foreign[7].value, 1, HANDLE, {"node": "n2"})
    foreign[7] = msgspec.structs.replace(foreign[7], value=far)
    entries = [*foreign, block_with()]
    longest = 0.0

    async def ticks() -> None:
        nonlocal longest
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - before)

    ticking = asyncio.create_task(ticks())
    gc.disable()  # of a process with all tests it takes as long by itself
    try:
        found = await concerning("n1", entries, [endpoint(address="11.0.0.70")])
    finally:
        gc.enable()
    ticking.cancel()
    assert [str(e.value.cidr) for e in found] == ["11.0.0.64/26", "11.0.1.192/26", str(CIDR)]
    assert longest < 0.05
    # A block left out changes no judgement.
    whole = judge("n1", entries, [endpoint(address="11.0.0.70")], GONE)
    assert judge("n1", found, [endpoint(address="11.0.0.70")], GONE) == whole


def test_confirmed_is_the_same_allocation_twice() -> None:
    held = frozenset({Held(ip_address("10.0.0.0"), 100, CIDR)})
    later = frozenset({Held(ip_address("10.0.0.0"), 103, CIDR)})
    first = Judgement({HANDLE: Suspect(HANDLE, CID, held, {}, "")})
    assert confirmed(first, first) == [first.dead[HANDLE]]
    assert confirmed(first, Judgement({HANDLE: Suspect(HANDLE, CID, later, {}, "")})) == []
    assert confirmed(Judgement(), first) == []


def test_endpoints_without_their_address_are_named() -> None:
    pool = [ip_network("10.0.0.0/16")]
    assert widowed("n1", [block_with()], [endpoint()], pool) == []
    lost = endpoint(address="10.0.0.3")
    assert widowed("n1", [block_with()], [lost], pool) == [(WEP, ip_address("10.0.0.3"))]
    assert widowed("n1", [block_with()], [endpoint(address="192.0.2.1")], pool) == []


async def stored(sequence: int = 100) -> MemoryStore:
    store = MemoryStore()
    await put_pool(store, "p", "10.0.0.0/28", 29)
    block = replace_sequence(block_with().value, sequence)
    await store.commit(
        [
            Put(BlockKey(CIDR), block, ABSENT),
            Put(HandleKey(HANDLE), handles.add(None, str(CIDR), 1), ABSENT),
            Put(WEP, endpoint().value, ABSENT),
        ]
    )
    return store


def replace_sequence(block: Block, sequence: int) -> Block:
    block.sequenceNumberForAllocation["0"] = sequence
    return block


@pytest.mark.asyncio
@pytest.mark.promise("F-28", "PAIN-1")
async def test_a_sweep_releases_block_handle_and_endpoint_in_one_commit() -> None:
    store = await stored()
    commits = store.commits

    async def observe() -> LeakEvidence:
        return GONE

    flushed: list[object] = []

    async def flush(addresses: object) -> None:
        flushed.append(addresses)

    sweep = await Collector(store, "n1", observe, flush=flush, gap=0).sweep()
    assert [c.addresses for c in sweep.collected] == [(ip_address("10.0.0.0"),)]
    assert flushed == [[ip_address("10.0.0.0")]]
    assert store.commits == commits + 1
    assert store.handles() == {}
    assert WEP not in store.entries
    again = await Collector(store, "n1", observe, gap=0).sweep()
    assert not again.collected
    assert store.commits == commits + 1


@pytest.mark.asyncio
@pytest.mark.promise("PAIN-2")
async def test_a_successor_under_the_same_handle_is_unharmed() -> None:
    store = await stored(sequence=105)
    view = View()
    view.learn(store.entries)
    held = frozenset({Held(ip_address("10.0.0.0"), 100, CIDR)})
    old = Suspect(HANDLE, CID, held, {WEP: store.entries[WEP].revision}, "")
    assert not plan_release(view, old).changes
    current = frozenset({Held(ip_address("10.0.0.0"), 105, CIDR)})
    assert plan_release(view, replace(old, allocations=current)).changes
    # Somebody wrote the endpoint since: the whole suspect stays.
    assert not plan_release(view, replace(old, allocations=current, endpoints={WEP: 1})).changes


@pytest.mark.asyncio
async def test_a_handle_that_counts_too_few_stays_with_what_it_still_holds() -> None:
    store = await stored()
    key = BlockKey(CIDR)
    entry = store.entries[key]
    both, _ = blocks.assign(entry.value, 1, HANDLE, {"node": "n1"})
    await store.commit([Put(key, both, entry.revision, entry)])
    view = View()
    view.learn(store.entries)
    held = frozenset({Held(ip_address("10.0.0.0"), 100, CIDR)})
    await store.commit(plan_release(view, Suspect(HANDLE, CID, held, {}, "")).changes)
    assert store.handles() == {HANDLE: handles.add(None, str(CIDR), 1)}
