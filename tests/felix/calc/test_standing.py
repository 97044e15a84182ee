"""Whose word counts: offer or store, in every order, with both datastores' ways of telling."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from ipaddress import ip_network

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from felix.calc import local_endpoints
from felix.calc.endpoints import Endpoint
from felix.calc.local_endpoints import LocalEndpoints
from libcalico.model import ResourceKey
from tests.size import examples

KEY = ResourceKey("WorkloadEndpoint", "node1-k8s-web-eth0", "default")
DATASTORES = ("etcd", "kubernetes")


def endpoint(
    container: str, address: str, label: str = "", uid: str = "", mac: str = ""
) -> Endpoint:
    return Endpoint(
        KEY,
        container,
        "cali1",
        (ip_network(f"10.0.0.{address}"),) if address else (),
        mac,
        (),
        "k8s",
        "default/web",
        "eth0",
        labels=(("label", label),),
        uid=uid,
    )


def shown(table: LocalEndpoints) -> tuple[str, str, str] | None:
    """Container, last number of the address, label."""
    found = table.get(KEY)
    if found is None:
        return None
    address = str(found.networks[0].network_address).rpartition(".")[2] if found.networks else ""
    return found.container_id, address, dict(found.labels)["label"]


@dataclass
class Store:
    """One pod's endpoint as a datastore has it, and each word that it tells of it."""

    kubernetes: bool
    exists: bool = False
    uid: str = ""
    container: str = ""
    given: str = ""
    """The address that cni wrote."""
    reported: str = ""
    """Kubernetes: the address that the kubelet reported."""
    label: str = "0"
    words: list[Endpoint | None] = field(default_factory=list)

    @property
    def revision(self) -> int:
        return len(self.words)

    def _say(self) -> int:
        word = None
        if self.exists:
            attached = self.container if self.given else ""
            address = self.reported or self.given
            word = endpoint(attached, address, self.label, self.uid)
        self.words.append(word)
        return self.revision

    def create(self) -> None:
        """Kubernetes: the pod is there, without a container."""
        assert self.kubernetes
        self.exists, self.uid = True, f"pod{self.revision}"
        self.container = self.given = self.reported = ""
        self._say()

    def remove(self) -> None:
        self.exists = False
        self._say()

    def attach(self, offered: Endpoint) -> int:
        """What an ADD commits; 0: the pod is gone."""
        if self.kubernetes and not self.exists:
            return 0
        if not self.kubernetes:
            self.exists, self.uid = True, offered.uid
            self.label = dict(offered.labels)["label"]
        self.container = offered.container_id
        self.given = str(offered.networks[0].network_address).rpartition(".")[2]
        return self._say()

    def release(self, container: str) -> None:
        if self.exists and self.container == container:
            if self.kubernetes:
                self.given = ""
                self._say()
            else:
                self.remove()

    def report(self) -> None:
        """The kubelet has seen the sandbox."""
        if self.kubernetes and self.exists and self.given not in ("", self.reported):
            self.reported = self.given
            self._say()

    def relabel(self) -> None:
        if self.exists:
            self.label = str(self.revision)
            self._say()


class Node:
    """A pod's life on a node: a store, the ADDs and DELs of cni, and felix, which hears late."""

    def __init__(self, datastore: str) -> None:
        self.store = Store(datastore == "kubernetes")
        self.table = LocalEndpoints()
        self.heard = 0
        self.offered: Endpoint | None = None
        self.committed = 0
        self.settled: tuple[str, int] | None = None
        self.dead: set[str] = set()
        self.given: dict[str, str] = {}
        """Each container's address."""
        self.unreleased: list[str] = []
        self.containers = self.addresses = 0
        self.listing = False
        if self.store.kubernetes:
            self.store.create()

    def play(self, step: str) -> None:
        getattr(self, step)()
        self.check()

    # -- cni ---------------------------------------------------------------------------------

    def _offer(self, container: str) -> None:
        self.addresses += 1
        store = self.store
        # What cni writes over keeps its uid; of a Pod it knows none.
        uid = store.uid if store.exists and not store.kubernetes else f"new{self.addresses}"
        address, mac = str(self.addresses), f"02::{container}"
        self.given[container] = address
        self.offered = endpoint(container, address, store.label, uid, mac)
        self.committed, self.settled = 0, None
        self.dead.discard(container)
        self.table.offer(self.offered)

    def add(self) -> None:
        """An ADD of a new sandbox; where one runs it goes on."""
        if self.offered is None:
            self.containers += 1
            self._offer(f"c{self.containers}")
        elif not self.committed:
            self.committed = self.store.attach(self.offered)
            if not self.committed:
                self.fail()
        else:
            container = self.offered.container_id
            self.settled = container, self.committed
            self.table.settle(KEY, container, self.committed)
            self.offered = None

    def retry(self) -> None:
        """The same sandbox once more, after an attempt that failed: what that left goes first."""
        if self.offered is None and f"c{self.containers}" in self.dead:
            self.release()
            self._offer(f"c{self.containers}")

    def fail(self) -> None:
        """An ADD that fails takes back what it wrote."""
        if self.offered is not None:
            container, self.offered = self.offered.container_id, None
            self.store.release(container)
            self._retract(container)

    def die(self) -> None:
        """cni ends in the middle of an ADD."""
        if self.offered is not None:
            self.table.abandon(self.offered)
            self.offered = None

    def delete(self) -> None:
        """A DEL whose release in the datastore is for later."""
        if self.offered is None and self.containers:
            container = f"c{self.containers}"
            self.unreleased.append(container)
            self._retract(container)

    def release(self) -> None:
        while self.unreleased:
            self.store.release(self.unreleased.pop())

    def _retract(self, container: str) -> None:
        self.dead.add(container)
        self.table.retract(KEY, container)

    # -- others ------------------------------------------------------------------------------

    def relabel(self) -> None:
        self.store.relabel()

    def report(self) -> None:
        self.store.report()

    def replace(self) -> None:
        """The pod is deleted, and another one of its name comes (a StatefulSet)."""
        if self.store.kubernetes:
            self.store.remove()
            self.store.create()

    # -- felix -------------------------------------------------------------------------------

    def hear(self) -> None:
        if self.heard < self.store.revision:
            self.heard += 1
            self.table.store(KEY, self.store.words[self.heard - 1], self.heard)

    def hear_all(self) -> None:
        while self.heard < self.store.revision:
            self.hear()

    def list_begins(self) -> None:
        """A new listing: what is heard no more meanwhile, it tells at its end."""
        self.table.listing_begins()
        self.listing = True

    def list_ends(self) -> None:
        if self.listing:
            self._listed()

    def relist(self) -> None:
        """What came between is never told."""
        self.table.listing_begins()
        self._listed()

    def _listed(self) -> None:
        self.listing = False
        if self.heard < self.store.revision:
            self.heard = self.store.revision - 1
            self.hear()
        self.table.listing_ended()

    # -- what holds --------------------------------------------------------------------------

    def check(self) -> None:
        now = shown(self.table)
        if self.offered is not None:
            assert now is not None, "an ADD runs"
            assert now[0] == self.offered.container_id
            return
        if now is not None:
            assert now[0] not in self.dead, "it was taken away"
        if self.settled is None or self.settled[0] in self.dead:
            return
        container, since = self.settled
        if self.heard < since:
            assert now is not None, "what was offered is stored"
            assert now[0] == container
            return
        word = self.store.words[self.heard - 1]
        if word is None:
            assert now is None
        elif word.container_id == container:
            assert now is not None
            assert now[::2] == (container, dict(word.labels)["label"]), "the datastore decides"
            assert now[1] == self.given[container], "of the addresses that cni gave none is older"

    def finish(self) -> None:
        """All is said and heard: the datastore's last word is what counts."""
        while self.offered is not None:
            self.play("add")
        self.store.report()
        self.hear_all()
        self.check()
        word = self.store.words[-1] if self.store.words else None
        now = self.table.get(KEY)
        if word is None or word.container_id in self.dead:
            assert now is None
        elif word.container_id:
            assert now is not None
            assert replace(now, mac="") == word
        standing = dict(self.table.standings()).get(KEY)
        assert standing is None or standing.offered is None, "no offer wins for ever"


STEPS = (
    ["add"] * 4
    + ["hear"] * 3
    + ["hear_all", "relabel", "relabel", "report", "report", "relist", "relist"]
    + ["list_begins", "list_ends"]
    + ["retry", "fail", "die", "delete", "delete", "release", "replace"]
)


@pytest.mark.parametrize("datastore", DATASTORES)
@settings(max_examples=examples(600), deadline=None)
@given(steps=st.lists(st.sampled_from(STEPS), max_size=40))
@example(steps=["add", "add", "hear", "report", "die", "add", "add", "relist"])
@example(steps=["add", "add", "die", "delete", "relist"])
@example(steps=["add", "add", "report", "die", "hear", "add", "add", "relist", "add"])
@example(steps=["add", "add", "report", "add", "delete", "add", "add", "hear", "relist", "add"])
def test_in_every_order_the_newer_word_counts(datastore: str, steps: list[str]) -> None:
    """STD-1 to STD-6."""
    node = Node(datastore)
    for step in steps:
        node.play(step)
    node.finish()


def played(datastore: str, steps: str) -> Node:
    node = Node(datastore)
    for step in steps.split():
        node.play(step)
    return node


@pytest.mark.parametrize("datastore", DATASTORES)
def test_a_label_that_a_running_pod_gets_counts_on_its_own_node(datastore: str) -> None:
    """STD-1: the store's uid of a Pod is not the one that was offered."""
    node = played(datastore, "hear add add add report hear_all relabel hear")
    assert shown(node.table) == ("c1", "1", node.store.label)


@pytest.mark.parametrize("datastore", DATASTORES)
def test_a_label_given_before_the_store_was_heard_counts(datastore: str) -> None:
    node = played(datastore, "add add relabel hear_all add")
    assert shown(node.table) == ("c1", "1", node.store.label)


def test_what_is_told_late_of_an_earlier_sandbox_ends_no_offer() -> None:
    for datastore in DATASTORES:
        node = played(datastore, "add add add hear_all relabel delete add add")
        node.play("hear")
        assert shown(node.table) is not None
        node.play("add")
        node.play("hear")
        found = shown(node.table)
        assert found is not None
        assert found[0] == "c2"


def test_a_pod_of_the_same_name_takes_nothing_of_its_predecessor() -> None:
    """A StatefulSet: all that is told of the old pod comes after the new one's offer."""
    node = played("kubernetes", "hear_all add add add report delete release replace add add")
    while node.heard < node.store.revision:
        node.play("hear")
        found = shown(node.table)
        assert found is not None
        assert found[:2] == ("c2", "2")
    node.play("add")
    node.finish()


def test_before_the_kubelet_reports_all_but_the_addresses_is_the_stores() -> None:
    """STD-3: the word that names the new sandbox still has the old one's address."""
    node = played("kubernetes", "add add add report hear_all delete release hear_all")
    node.play("add")
    node.play("add")
    node.play("add")
    for _ in range(3):
        node.play("relabel")
        node.play("hear_all")
        assert shown(node.table) == ("c2", "2", node.store.label)
    node.play("report")
    node.play("hear_all")
    assert shown(node.table) == ("c2", "2", node.store.label)
    standing = dict(node.table.standings())[KEY]
    assert standing.offered is None


def test_addresses_of_a_sandbox_that_the_store_never_told_of_do_not_count() -> None:
    """STD-3: a new listing left out all that was told while the old sandbox ran."""
    for old in ("", "delete", "delete release"):
        node = played("kubernetes", f"hear add add add report {old} add add relist")
        assert shown(node.table) == ("c2", "2", node.store.label)
        node.play("add")
        assert shown(node.table) == ("c2", "2", node.store.label)
        node.play("relist")
        assert shown(node.table) == ("c2", "2", node.store.label)


def test_a_listing_takes_no_address_that_is_not_reported_yet() -> None:
    """STD-3 and STD-6: the listing was begun after the new sandbox was stored."""
    node = played("kubernetes", "add add add report add add add relist")
    assert shown(node.table) == ("c2", "2", node.store.label)
    node.play("report")
    node.play("hear")
    assert shown(node.table) == ("c2", "2", node.store.label)
    assert dict(node.table.standings())[KEY].offered is None


def test_addresses_that_others_decided_count() -> None:
    """STD-3: neither offered nor known before."""
    table = LocalEndpoints()
    table.store(KEY, endpoint("c1", "5"), 1)
    table.offer(endpoint("c2", "9"))
    table.settle(KEY, "c2", 2)
    table.store(KEY, endpoint("c2", "7"), 3)
    assert shown(table) == ("c2", "7", "")


def test_addresses_that_others_decided_count_after_a_listing_at_the_latest() -> None:
    """STD-6: of another sandbox nothing was told before, and it may have been one."""
    table = LocalEndpoints()
    table.offer(endpoint("c1", "9"))
    table.settle(KEY, "c1", 2)
    table.listing_begins()
    table.store(KEY, endpoint("c1", "7"), 3)
    table.listing_ended()
    assert shown(table) == ("c1", "7", "")


def test_a_container_that_was_taken_away_while_a_listing_runs_stays_away() -> None:
    """STD-5."""
    table = LocalEndpoints()
    table.offer(endpoint("c1", "1"))
    table.retract(KEY, "c1")
    table.listing_begins()
    table.offer(endpoint("c2", "2"))
    table.settle(KEY, "c2", 5)
    table.retract(KEY, "c2")
    table.listing_ended()
    table.store(KEY, endpoint("c2", "2"), 5)
    assert shown(table) is None


def test_a_pod_that_ended_has_no_address_any_more() -> None:
    table = LocalEndpoints()
    table.store(KEY, endpoint("", ""), 1)
    table.offer(endpoint("c1", "9"))
    table.settle(KEY, "c1", 2)
    table.store(KEY, endpoint("c1", ""), 3)
    assert shown(table) == ("c1", "", "")


def test_a_hardware_address_that_is_not_stored_stays_the_containers() -> None:
    table = LocalEndpoints()
    table.offer(endpoint("c1", "1", mac="02::1"))
    table.settle(KEY, "c1", 1)
    assert not table.store(KEY, endpoint("c1", "1"), 1), "nothing to programme"
    assert not table.store(KEY, endpoint("c1", "1"), 2)
    assert table.store(KEY, endpoint("c2", "1"), 3)
    found = table.get(KEY)
    assert found is not None
    assert found.mac == ""


def test_what_the_store_never_named_ends_with_a_listing() -> None:
    """STD-6: a backup was put back, whose revisions are smaller."""
    table = LocalEndpoints()
    table.offer(endpoint("c1", "1"))
    table.settle(KEY, "c1", 1000)
    table.listing_begins()
    table.store(KEY, endpoint("c0", "7"), 5)
    assert shown(table) == ("c1", "1", "")
    assert table.listing_ended()
    assert shown(table) == ("c0", "7", "")
    # One that was offered meanwhile may be younger than the listing.
    table.listing_begins()
    table.offer(endpoint("c2", "2"))
    table.settle(KEY, "c2", 9)
    assert not table.listing_ended()
    assert shown(table) == ("c2", "2", "")


def test_where_the_revision_is_not_known_the_next_word_counts() -> None:
    table = LocalEndpoints()
    table.offer(endpoint("c1", "1"))
    table.settle(KEY, "c1", 0)
    assert shown(table) == ("c1", "1", "")
    table.store(KEY, endpoint("c1", "1", "new"), 0)
    assert shown(table) == ("c1", "1", "new")


def test_little_is_remembered_of_what_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_endpoints, "BYGONE", 2)
    table = LocalEndpoints()
    for number in range(5):
        key = ResourceKey("WorkloadEndpoint", f"n{number}", "default")
        table.settle(key, "c1", 3)
        assert key not in dict(table.standings())
        table.retract(key, "c1")
    assert [key.name for key, _ in table.standings()] == ["n3", "n4"]
    table.listing_begins()
    table.listing_ended()
    assert dict(table.standings()) == {}
