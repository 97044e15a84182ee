"""The engine's manners: silent before in-sync, right order, offers, hints, conditions."""

from __future__ import annotations

from msgspec.structs import replace

from felix.calc.endpoints import from_resource
from felix.calc.graph import CLUSTER, Calculator, selections
from felix.calc.policy import KINDS, PolicyEngine
from felix.calc.policy_model import PolicyChanges
from libcalico.model import ClusterInformation, ClusterInformationSpec, Metadata, ResourceKey
from tests.felix.policy_objects import (
    ME,
    Object,
    Told,
    World,
    allow,
    deny,
    global_policy,
    namespace,
    network_set,
    pod,
    pod_key,
    policy,
    profile,
    tier,
)

PEER = pod("peer", "10.0.0.2", {"app": "b"}, node="n2")
HERE = pod("here", "10.0.0.1", {"app": "a"})
OPEN = policy("open", selector="app == 'a'", types=["Ingress"],
              ingress=[allow(source={"selector": "app == 'b'"})])  # fmt: skip


def calculator(*objects: Object) -> tuple[Calculator, Told]:
    calc, told = Calculator(ME), Told()
    information = ClusterInformation(
        metadata=Metadata(name="default"), spec=ClusterInformationSpec(datastoreReady=True)
    )
    for key, value in ((CLUSTER, information), *objects):
        calc.update(key, value)
    calc.in_sync = True
    told.apply(calc.policy.flush())
    return calc, told


def test_nothing_is_told_and_nothing_matched_before_the_snapshot_is_whole() -> None:
    engine = PolicyEngine(ME)
    for key, value in (namespace("default"), HERE, PEER, OPEN, tier("default", 1)):
        assert not engine.update(key, value)
    assert engine.flush() == PolicyChanges()
    assert engine.operations.total == 0
    engine.start()
    engine.start()
    assert engine.dirty
    assert engine.flush()
    assert not engine.flush()


def test_felix_watches_what_the_engine_takes() -> None:
    assert {one.family for one in selections()} >= set(KINDS)


def test_an_offered_endpoint_has_its_policy_in_the_same_flush() -> None:
    calc, told = calculator(namespace("default"), PEER, OPEN)
    assert not told.policies
    key, value = HERE
    calc.endpoints.offer(from_resource(key, value))
    told.apply(calc.policy.flush())
    assert [view.ingress for view in told.endpoints[key].tiers] == [(OPEN[0],)]
    assert calc.policy.endpoint(key) == told.endpoints[key]
    # The watch agrees: nothing more is to be done (EPT-1).
    assert not calc.update(key, value)
    assert not calc.policy.flush()


def test_a_retracted_endpoint_goes_and_stays_gone_when_the_watch_agrees() -> None:
    calc, told = calculator(namespace("default"), HERE, PEER, OPEN)
    calc.endpoints.retract(HERE[0], "here")
    changes = calc.policy.flush()
    assert changes.endpoints == {HERE[0]: None}
    told.apply(changes)
    assert told == Told()
    calc.update(HERE[0], None)
    assert not calc.policy.flush()


def test_an_offer_outlives_the_late_deletion_of_its_predecessor() -> None:
    calc, told = calculator(namespace("default"), HERE, OPEN)
    key, successor = pod("here", "10.0.0.9", {"app": "new"})
    successor = replace(
        successor,
        metadata=replace(successor.metadata, uid="of the successor"),
        spec=replace(successor.spec, containerID="successor"),
    )
    calc.endpoints.offer(from_resource(key, successor))
    calc.update(key, None)
    told.apply(calc.policy.flush())
    assert told.endpoints[key].tiers == ()
    assert not told.policies


def test_an_endpoint_that_cannot_be_served_is_in_no_set() -> None:
    watching = policy("p", selector="app == 'a'", ingress=[allow(source={"selector": "all()"})])
    calc, told = calculator(namespace("default"), HERE, watching)
    key, value = pod("wide", "10.9.0.0/16")
    calc.update(key, value)
    assert key in calc.broken
    told.apply(calc.policy.flush())
    assert set().union(*told.sets.values()) == {"10.0.0.1"}


def test_an_endpoint_may_move_to_another_node_and_back() -> None:
    calc, told = calculator(namespace("default"), HERE, OPEN)
    calc.update(*pod("here", "10.0.0.1", {"app": "a"}, node="n2"))
    told.apply(calc.policy.flush())
    assert told == Told()
    calc.update(*HERE)
    told.apply(calc.policy.flush())
    assert told.endpoints.keys() == {HERE[0]}


def test_a_hinted_policy_is_ready_before_anything_is_selected() -> None:
    world = World(global_policy("g", selector="app == 'late'", types=["Ingress"],
                                performanceHints=["AssumeNeededOnEveryNode"],
                                ingress=[allow(source={"selector": "has(x)"})]))  # fmt: skip
    assert world.told.policies.keys() == {ResourceKey("GlobalNetworkPolicy", "g")}
    assert len(world.told.sets) == 1


def test_an_update_and_its_reverse_within_one_flush_are_nothing() -> None:
    world = World(namespace("default"), HERE, PEER)
    world.engine.update(*OPEN)
    assert world.remove(OPEN[0]) == PolicyChanges()
    world.put(OPEN)
    world.engine.update(OPEN[0], None)
    assert world.put(OPEN) == PolicyChanges()


def test_a_namespaces_labels_select_and_fill_sets_as_they_change() -> None:
    red = "team == 'red'"
    world = World(
        namespace("default"), HERE, PEER,
        global_policy("g", namespaceSelector=red, types=["Ingress"]),
        policy("p", selector="app == 'a'", types=["Egress"],
               egress=[allow(destination={"namespaceSelector": red})]),
    )  # fmt: skip
    assert [len(view.ingress) for view in world.told.endpoints[HERE[0]].tiers] == [0]
    assert list(world.told.sets.values()) == [set()]
    world.put(namespace("default", team="red"))
    assert [len(view.ingress) for view in world.told.endpoints[HERE[0]].tiers] == [1]
    assert list(world.told.sets.values()) == [{"10.0.0.1", "10.0.0.2"}]
    world.put(namespace("default", team="blue"))
    assert [len(view.ingress) for view in world.told.endpoints[HERE[0]].tiers] == [0]
    assert list(world.told.sets.values()) == [set()]
    assert len(world.told.policies) == 1


def test_rules_of_profiles_have_sets_too() -> None:
    rules = [deny(source={"selector": "kind == 'bad'"}), allow()]
    world = World(profile("kns.default", ingress=rules), HERE,
                  network_set("bad", ["192.0.2.0/24"], {"kind": "bad"}))  # fmt: skip
    assert list(world.told.sets.values()) == [{"192.0.2.0/24"}]
    changes = world.put(profile("kns.default"))
    assert list(changes.profiles) == ["kns.default"]
    assert [change.removed_whole for change in changes.sets] == [True]


def test_the_built_in_profile_cannot_be_replaced() -> None:
    mine = pod("here", "10.0.0.1", profiles=["projectcalico-default-allow"])
    world = World(mine, profile("projectcalico-default-allow", ingress=[deny()]))
    before = world.told.profiles["projectcalico-default-allow"]
    assert before.ingress[0].verb.value == "allow"
    assert not world.remove(ResourceKey("Profile", "projectcalico-default-allow"))


def test_conditions_go_with_what_they_are_about() -> None:
    key, bad = policy("bad", selector="app == 'nobody'", ingress=[allow(protocol="QUIC")])
    world = World(namespace("default"), HERE, (key, bad), pod("wide", "10.9.0.0/x", node="n2"))
    # A bad policy is named wherever felix runs, whether or not it selects anything there.
    assert set(world.engine.conditions) == {key, pod_key("wide")}
    world.put(pod("wide", "10.9.0.1", node="n2"))
    world.remove(key)
    assert world.engine.conditions == {}


def test_figures_are_plain_numbers() -> None:
    world = World(namespace("default"), HERE, PEER, OPEN, policy("idle", selector="no == 'one'"))
    assert world.engine.figures() == {
        "policies": 2,
        "active_policies": 1,
        "active_profiles": 1,
        "active_selectors": 3,
        "sets": 1,
        "members": 1,
        "endpoints": 1,
        "host_endpoints": 0,
        "staged_policies": 0,
        "active_staged_policies": 0,
        "staged_matches": 0,
        "conditions": 0,
    }
