"""A document that cannot be read any more: its last readable version stays in force (LRD-1)."""

from __future__ import annotations

import asyncio
import json
import signal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felix.agent import Agent, Paths
from felix.calc.last_readable import LastReadable, Remembered
from felix.reports.metrics import of_unreadable
from libcalico.datastore.etcd.entries import entry_of
from libcalico.datastore.interface import Entry
from libcalico.datastore.syncer import SyncBatch, Update
from libcalico.model import Key, ResourceKey
from libcalico.process.prometheus_text import text
from tests.felix.stage import Stage, allow, conditions_of, make_stage
from tests.felix.store.test_readable_store import written as written_by
from tests.felix.world import RESOURCES, Pod
from tests.support.patience import HANG, wait_for

GNP = ResourceKey("GlobalNetworkPolicy", "p")
TIER = ResourceKey("Tier", "t")
CLUSTER = ResourceKey("ClusterInformation", "default")


def stored(key: ResourceKey, revision: int, spec: Any, uid: str = "") -> Entry:
    kind = {"kind": key.kind, "apiVersion": "projectcalico.org/v3"}
    tree = {**kind, "metadata": {"name": key.name, "uid": uid}, "spec": spec}
    entry, _ = entry_of(key, json.dumps(tree).encode(), revision)
    assert entry is not None
    return entry


def garbage(key: ResourceKey, revision: int) -> Entry:
    entry, reason = entry_of(key, b"not json", revision)
    assert entry is not None
    assert reason
    return entry


def good(revision: int, uid: str = "") -> Entry:
    return stored(GNP, revision, {"selector": "has(x)", "order": revision}, uid)


class Forgetful:
    """A memory that does not outlive a restart."""

    def keep(self, key: ResourceKey, revision: int, raw: bytes) -> None:
        """Nothing is kept."""

    def forget(self, key: ResourceKey) -> None:
        """There is nothing to forget."""

    def has_other(self, key: ResourceKey, revision: int, raw: bytes) -> bool:
        """It has none."""
        return False


class Remembering(Forgetful):
    """A disk that never fails."""

    def __init__(self) -> None:
        self.has: dict[ResourceKey, tuple[int, bytes]] = {}

    def keep(self, key: ResourceKey, revision: int, raw: bytes) -> None:
        self.has[key] = (revision, raw)

    def forget(self, key: ResourceKey) -> None:
        self.has.pop(key, None)

    def has_other(self, key: ResourceKey, revision: int, raw: bytes) -> bool:
        return self.has.get(key, (revision, raw)) != (revision, raw)

    def recall(self, keys: frozenset[ResourceKey]) -> dict[ResourceKey, Remembered]:
        found = {}
        for key in keys & self.has.keys():
            entry, _ = entry_of(key, self.has[key][1], self.has[key][0])
            assert entry is not None
            found[key] = Remembered(entry.revision, entry.value)
        return found


def test_what_was_readable_stays_and_both_revisions_are_named() -> None:
    last = LastReadable(Forgetful())
    assert last.apply_entry(GNP, good(3)).value.spec.order == 3
    assert last.apply_entry(GNP, garbage(GNP, 5)).stands
    told = last.unreadable[GNP].message
    assert "revision 3 is in force; revision 5 is stored" in told
    page = text(of_unreadable(last.unreadable))
    assert 'object="GlobalNetworkPolicy(p)",in_force="3",stored="5"} 1.0' in page
    assert page.count("# TYPE muslin_felix_unreadable_document gauge") == 1
    assert last.apply_entry(GNP, garbage(GNP, 6)).stands
    assert last.unreadable[GNP].stored == 6
    # Mended, and deleted, it is what the datastore says.
    assert last.apply_entry(GNP, good(7)) == (good(7).value, False)
    assert not last.unreadable
    assert last.apply_entry(GNP, garbage(GNP, 8)).stands
    assert last.apply_entry(GNP, None) == (None, False)
    assert not last.unreadable
    word = last.apply_entry(GNP, garbage(GNP, 9))
    assert not word.stands
    assert word.value.spec.types == ["Ingress", "Egress"]
    assert last.unreadable[GNP].in_force is None


def test_another_object_of_the_name_inherits_nothing() -> None:
    last = LastReadable(Forgetful())
    last.settle([], {})
    last.apply_entry(GNP, good(3, "one"))
    entry = stored(GNP, 5, {"selector": 7}, "two")
    assert entry.broken
    assert last.apply_entry(GNP, entry).value == entry.value
    assert last.unreadable[GNP].in_force is None
    last.apply_entry(GNP, good(6, "two"))
    assert last.apply_entry(GNP, stored(GNP, 7, {"selector": 7}, "two")).stands


def test_other_kinds_pass() -> None:
    last = LastReadable(Forgetful())
    key = ResourceKey("FelixConfiguration", "default")
    for entry in (stored(key, 1, {"ipv6Support": True}), stored(key, 2, {"healthPort": "x"})):
        assert last.apply_entry(key, entry) == (entry.value, False)
    assert not last.unreadable


@pytest.mark.parametrize(
    "spec", [{"selector": "x = 'y'"}, {"types": ["Sideways"]}, {"tier": "Not A Tier"}]
)
def test_a_policy_that_nobody_can_place_counts_as_unreadable_if_another_version_was_not(
    spec: dict[str, Any],
) -> None:
    memory = Remembering()
    last = LastReadable(memory)
    last.settle([], {})
    bad = stored(GNP, 5, spec)
    assert not bad.broken
    # Never readable here: it closes what it may select.
    assert last.apply_entry(GNP, bad) == (bad.value, False)
    last.apply_entry(GNP, None)
    last.apply_entry(GNP, good(6))
    assert last.apply_entry(GNP, stored(GNP, 7, spec)).stands
    assert "revision 6 is in force; revision 7 is stored" in last.unreadable[GNP].message
    again = LastReadable(memory)
    again.apply_entry(GNP, stored(GNP, 7, spec))
    ((key, value),) = again.settle(list(memory.has), memory.recall(again.doubtful))
    assert (key, value.spec.order) == (GNP, 6)
    # A rule that cannot be understood closes whom its policy selects, as ever.
    rule = stored(GNP, 8, {"selector": "has(x)", "ingress": [{"action": "Permit"}]})
    assert last.apply_entry(GNP, rule) == (rule.value, False)


class Model:
    """What ought to be in force of two objects, by the words of the datastore alone."""

    def __init__(self) -> None:
        self.readable: dict[Key, Any] = {}
        self.stored: dict[Key, Entry] = {}

    def say(self, key: Key, entry: Entry | None) -> None:
        if entry is None:
            self.readable.pop(key, None)
            self.stored.pop(key, None)
            return
        self.stored[key] = entry
        if not entry.broken:
            self.readable[key] = entry.value

    def in_force(self) -> dict[Key, Any]:
        return {key: self.readable.get(key, one.value) for key, one in self.stored.items()}


@cache
def version(key: ResourceKey, revision: int, what: str) -> Entry | None:
    if what == "gone":
        return None
    return garbage(key, revision) if what == "bad" else stored(key, revision, {"order": revision})


STEP = st.tuples(st.sampled_from([GNP, TIER]), st.sampled_from(["good", "bad", "gone"]))


@given(st.lists(STEP | st.sampled_from(["restart", "listed anew"]), max_size=24))
def test_what_is_in_force_depends_on_the_datastores_words_alone(steps: list[Any]) -> None:
    memory, model = Remembering(), Model()
    last = LastReadable(memory)
    last.settle([], {})
    force: dict[Key, Any] = {}

    def take(key: Key, entry: Entry | None) -> None:
        word = last.apply_entry(key, entry)
        if word.stands:
            assert key in force
        elif word.value is None:
            force.pop(key, None)
        else:
            force[key] = word.value

    for revision, step in enumerate(steps, 1):
        if isinstance(step, tuple):
            key, what = step
            entry = version(key, revision, what)
            model.say(key, entry)
            take(key, entry)
        else:
            if step == "restart":
                last, force = LastReadable(memory), {}
            for key, entry in model.stored.items():
                take(key, entry)
            if step == "restart":
                force |= last.settle(list(memory.has), memory.recall(last.doubtful))
        assert force == model.in_force()
        broken = {key for key, one in model.stored.items() if one.broken}
        assert set(last.unreadable) == broken
        assert memory.has.keys() == model.readable.keys()


def agent_of(folder: Path) -> Agent:
    names = ("socket", "config", "status", "felix/last-readable")
    return Agent("n1", {}, Paths(*(folder / name for name in names)))


async def started(agent: Agent, entries: list[Entry], cluster: str = "g") -> asyncio.Task[None]:
    """An agent that has read a datastore with these objects."""
    await agent.objects.readable.open()
    writing = asyncio.create_task(agent.objects.readable.run())
    about = stored(CLUSTER, 1, {"clusterGUID": cluster, "datastoreReady": True})
    # ClusterInformation may come last.
    updates = [Update(one.key, one) for one in (*entries, about)]
    await agent.apply_batch(SyncBatch(updates, False))
    await agent.apply_batch(SyncBatch([], True))
    return writing


@pytest.mark.parametrize("ends", ["orderly", "killed"])
def test_a_restart_changes_nothing_and_files_of_another_cluster_are_not_believed(
    tmp_path: Path, ends: str
) -> None:
    async def life(entries: list[Entry], order: int | None, cluster: str = "g") -> None:
        agent = agent_of(tmp_path)
        writing = await started(agent, entries, cluster)
        policy: Any = agent.calc.policy.stored(GNP)
        assert (None if policy is None else policy.spec.order) == order
        assert len(agent.objects.readable.unreadable) == sum(bool(one.broken) for one in entries)
        if ends == "killed":
            await written_by(agent.objects.readable._store)
        writing.cancel()
        await asyncio.wait([writing])
        if ends == "orderly":
            agent.objects.readable.close()

    async def lives() -> None:
        await life([good(4)], 4)
        await life([garbage(GNP, 5)], 4)
        await life([garbage(GNP, 5)], 4)
        await life([good(6)], 6)
        await life([], None)
        # Deleted while felix was down: what it said does not come back.
        await life([garbage(GNP, 7)], None)
        await life([good(8)], 8)
        await life([garbage(GNP, 8)], None, "another")
        # Nor does it when the first cluster is back.
        await life([garbage(GNP, 8)], None)

    asyncio.run(lives())
    about = tmp_path / "felix"
    assert about.stat().st_mode & 0o777 == 0o700
    assert (about / "last-readable").stat().st_mode & 0o777 == 0o600


def test_a_late_cluster_information_is_waited_for(tmp_path: Path) -> None:
    async def lives() -> None:
        first = agent_of(tmp_path)
        writing = await started(first, [good(4)])
        writing.cancel()
        await asyncio.wait([writing])
        first.objects.readable.close()
        agent = agent_of(tmp_path)
        await agent.objects.readable.open()
        await agent.apply_batch(SyncBatch([Update(GNP, garbage(GNP, 5))], True))
        assert not agent.calc.ready
        about = stored(CLUSTER, 6, {"clusterGUID": "g", "datastoreReady": True})
        await agent.apply_batch(SyncBatch([Update(CLUSTER, about)], True))
        policy: Any = agent.calc.policy.stored(GNP)
        assert agent.calc.ready
        assert policy.spec.order == 4

    asyncio.run(lives())


def garble(stage: Stage, name: str, plural: str = "globalnetworkpolicies") -> None:
    stage.world.etcd.put(f"{RESOURCES}/{plural}/{name}", b'{"spec": {"selector": "role')


def admits(stage: Stage, *who: Pod) -> bool:
    """Whether one ping of these comes through, however late, and none of the others."""
    there = stage.server.address
    return all(
        pod.reaches(there, wait=HANG) if pod in who else not pod.reaches(there, wait=0.3)
        for pod in (stage.client, stage.other)
    )


def restart(stage: Stage, how: signal.Signals) -> None:
    stage.world.stop_felix(how)
    stage.world.start_felix()
    stage.world.wait_ready()


@pytest.mark.parametrize("backend", ["iptables", "nftables"])
def test_verdicts_of_an_unreadable_policy_are_those_of_its_last_readable_version(
    tmp_path: Path, backend: str
) -> None:
    probes = {"client 4 ping", "other 4 ping"}
    only_client = {"client 4 ping"}
    with make_stage(tmp_path, backend) as stage:
        stage.policy("default.case", [allow(source={"selector": "role == 'client'"})])
        stage.comes_to(only_client, probes - only_client)
        wait_for(lambda: written(stage, "default.case"))
        garble(stage, "default.case")
        wait_for(lambda: "in force" in str(conditions_of(stage.world, "default.case")))
        (condition,) = conditions_of(stage.world, "default.case")
        assert admits(stage, stage.client)
        metric = "muslin_felix_unreadable_documents"
        wait_for(lambda: stage.world.metric(metric) == 1)
        for how in (signal.SIGTERM, signal.SIGKILL):
            restart(stage, how)
            assert admits(stage, stage.client)
            wait_for(lambda: conditions_of(stage.world, "default.case") == [condition])
        # Mended it counts at once.
        stage.policy("default.case", [allow()])
        stage.comes_to(probes, set())
        wait_for(lambda: not conditions_of(stage.world, "default.case"))
        garble(stage, "default.case")
        wait_for(lambda: conditions_of(stage.world, "default.case"))
        assert admits(stage, stage.client, stage.other)
        # Deleted it is forgotten: what is unreadable from its beginning closes what it may select.
        stage.clear()
        wait_for(lambda: not conditions_of(stage.world, "default.case"))
        garble(stage, "default.case")
        stage.comes_to(set(), probes)
        wait_for(lambda: "ever readable" in str(conditions_of(stage.world, "default.case")))
        stage.clear()
        stage.comes_to(probes, set())


def written(stage: Stage, name: str) -> bool:
    path = stage.world.folder / "run/var-lib/calico/felix/last-readable"
    return path.exists() and name in path.read_text()
