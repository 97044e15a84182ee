"""Rules that name services: only while somebody tells who stands behind them, never wider."""

from __future__ import annotations

import random
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from felix.calc.policy.facts import names_services
from felix.calc.policy_model import SetKind
from felix.calc.services import ServicePort, ServiceSlice, SliceKey
from felix.calc.sets.service_sets import ServiceNeed, ServiceSets, service_set
from felix.calc.sets.set_needs import selector_set
from libcalico.model import ResourceKey, Rule
from libcalico.model.resources.rules import ServiceMatch
from libcalico.selectors.selectors import parse
from tests.felix.policy_objects import (
    Object,
    Packet,
    World,
    allow,
    deny,
    global_policy,
    namespace,
    pod,
    policy,
    profile,
)

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"
WEB = ServiceMatch(name="web")


def piece(*addresses: str, service: str = "web", ports: tuple[int, ...] = (8080,)) -> ServiceSlice:
    return ServiceSlice(
        service,
        frozenset(map(ip_address, addresses)),
        frozenset(ServicePort("tcp", port) for port in ports),
    )


def slice_key(name: str, space: str = "default") -> SliceKey:
    return SliceKey(space, name)


def out(*rules: Rule) -> Object:
    return policy("np", types=["Egress"], egress=list(rules))


def into(*rules: Rule) -> Object:
    return policy("np", types=["Ingress"], ingress=list(rules))


class Known(World):
    """A world in which services are known."""

    def __init__(self, *objects: Object, **slices: ServiceSlice) -> None:
        super().__init__(namespace("default"), pod("a", A), *objects)
        for name, value in slices.items():
            self.engine.put_slice(slice_key(name), value)
        self.engine.services_known(known=True)
        self.told.apply(self.engine.flush())

    def tell(self, name: str, value: ServiceSlice | None, space: str = "default") -> None:
        self.engine.put_slice(slice_key(name, space), value)
        self.told.apply(self.engine.flush())


def test_what_is_reached_counts_with_its_ports() -> None:
    world = Known(
        out(allow(destination={"services": WEB})), s1=piece(B), s2=piece(C, ports=(9090,))
    )
    assert world.out_of("a", Packet(A, B, port=8080))
    assert world.out_of("a", Packet(A, C, port=9090))
    assert not world.out_of("a", Packet(A, B, port=9090))
    assert not world.out_of("a", Packet(A, B, protocol=17, port=8080))
    assert not world.engine.conditions
    [(set_id, kind)] = world.engine.sets.items()
    assert kind is SetKind.ADDRESS_PORTS
    assert set_id.startswith("svc:")
    assert world.engine.members(set_id) == {f"{B},tcp:8080", f"{C},tcp:9090"}


def test_a_source_counts_without_ports() -> None:
    world = Known(into(allow(source={"services": WEB})), s1=piece(B, "fd00::2"))
    for source in (B, "fd00::2"):
        assert world.into("a", Packet(source, A if "." in source else "fd00::1", port=5))
    assert not world.into("a", Packet(C, A))
    [(set_id, kind)] = world.engine.sets.items()
    assert kind is SetKind.NETS
    assert set_id.startswith("svcnoport:")


def test_the_ids_are_calicos_scheme() -> None:
    with_ports, without = (service_set("ns", "svc", ports=p) for p in (True, False))
    assert (len(with_ports.id), len(without.id)) == (len("svc:") + 38, len("svcnoport:") + 38)
    assert with_ports.id[4:] != without.id[10:]
    assert with_ports != service_set("ns-svc", "", ports=True)


def test_members_follow_the_slices() -> None:
    world = Known(out(allow(destination={"services": WEB})))
    reach = Packet(A, B, port=8080)
    assert not world.out_of("a", reach)
    world.tell("s1", piece(B))
    assert world.out_of("a", reach)
    # The same address of another slice: it leaves with the last.
    world.tell("s2", piece(B))
    world.tell("s1", None)
    assert world.out_of("a", reach)
    world.tell("s2", piece(B, service="other"))
    assert not world.out_of("a", reach)
    world.tell("s3", piece(B), space="elsewhere")
    assert not world.out_of("a", reach)


def test_a_move_from_slice_to_slice_is_no_event() -> None:
    world = Known(out(allow(destination={"services": WEB})), s1=piece(B))
    world.engine.put_slice(slice_key("s1"), None)
    world.engine.put_slice(slice_key("s2"), piece(B))
    assert not world.engine.flush()


@pytest.mark.parametrize(("direction", "side"), [("ingress", "source"), ("egress", "destination")])
def test_without_a_source_nothing_is_wider_and_a_condition_says_so(
    direction: str, side: str
) -> None:
    match: Any = {side: {"services": WEB}}
    make = into if direction == "ingress" else out
    packet = Packet(B, A, port=8080) if direction == "ingress" else Packet(A, B, port=8080)

    def passes(world: World) -> bool:
        return (world.into if direction == "ingress" else world.out_of)("a", packet)

    for rules, known in (
        ([allow(**match)], True),
        ([deny(**match), allow()], False),
    ):
        key, value = make(*rules)
        world = World(namespace("default"), pod("a", A), (key, value))
        world.engine.put_slice(slice_key("s1"), piece(B))
        world.told.apply(world.engine.flush())
        # An allow rule matches nothing, a deny rule everybody.
        assert not passes(world)
        assert f"spec.{direction}[0].{side}.services" in world.engine.conditions[key]
        assert not world.told.sets
        world.engine.services_known(known=True)
        world.told.apply(world.engine.flush())
        assert not world.engine.conditions
        assert passes(world) is known
        world.engine.put_slice(slice_key("s1"), None)
        world.told.apply(world.engine.flush())
        assert passes(world) is not known


@pytest.mark.parametrize(
    ("direction", "side", "match"),
    [
        ("ingress", "destination", WEB),
        ("egress", "source", WEB),
        ("egress", "destination", ServiceMatch(namespace="default")),
    ],
)
def test_where_calico_takes_no_service_none_is_enforced(
    direction: str, side: str, match: ServiceMatch
) -> None:
    fields: Any = {side: {"services": match}}
    make = into if direction == "ingress" else out
    key, value = make(allow(**fields))
    world = Known((key, value), s1=piece(A, B, service=match.name or "x"))
    assert f"spec.{direction}[0].{side}.services" in world.engine.conditions[key]
    assert not world.into("a", Packet(B, A)) or direction == "egress"
    assert not world.out_of("a", Packet(A, B, port=8080)) or direction == "ingress"


def test_a_global_policy_must_name_the_namespace() -> None:
    def everywhere(match: ServiceMatch) -> Object:
        rules = [allow(destination={"services": match})]
        return global_policy("g", types=["Egress"], egress=rules)

    world = Known(everywhere(WEB), s1=piece(B))
    assert not world.out_of("a", Packet(A, B, port=8080))
    assert world.engine.conditions
    world.put(everywhere(ServiceMatch(name="web", namespace="default")))
    assert world.out_of("a", Packet(A, B, port=8080))
    assert not world.engine.conditions


def test_profiles_name_services_too() -> None:
    match = ServiceMatch(name="web", namespace="default")
    own = profile("kns.default", egress=[allow(destination={"services": match})])
    world = Known(own, s1=piece(B))
    assert world.out_of("a", Packet(A, B, port=8080))
    assert not world.out_of("a", Packet(A, C, port=8080))


def test_a_service_narrows_what_else_a_rule_says() -> None:
    entity = {"services": WEB, "nets": ["10.0.0.2/32"]}
    world = Known(out(allow(destination=entity)), s1=piece(B, C))
    assert world.out_of("a", Packet(A, B, port=8080))
    assert not world.out_of("a", Packet(A, C, port=8080))


def test_the_sets_of_services_live_as_long_as_rules_need_them() -> None:
    key, value = out(allow(destination={"services": WEB}), deny(destination={"services": WEB}))
    world = Known((key, value), s1=piece(B))
    assert len(world.told.sets) == 1
    assert world.engine.figures()["members"] == 1
    world.remove(key)
    assert not world.told.sets
    assert world.engine.figures()["sets"] == 0


def test_which_objects_name_services() -> None:
    assert names_services(out(allow(destination={"services": WEB}))[1])
    assert not names_services(out(allow())[1])


def test_needs_of_both_kinds_are_told_apart() -> None:
    key = ResourceKey("NetworkPolicy", "np", "default")
    rules = [allow(destination={"services": WEB}), allow(destination={"selector": "all()"})]
    world = Known(out(*rules), s1=piece(B))
    selected = selector_set(parse("(projectcalico.org/namespace == 'default') && (all())"))
    assert set(world.told.sets) == {selected.id, service_set("default", "web", ports=True).id}
    assert key in world.told.policies


def test_what_goes_is_told_after_what_comes_whatever_kind_it_is() -> None:
    selected = allow(destination={"selector": "app == 'x'"})
    named = allow(destination={"services": WEB})
    world = Known(out(selected), s1=piece(B))
    # A set of each kind comes while one of the other goes; `Told` holds them to their order.
    for rule in (named, selected):
        changes = world.put(out(rule))
        assert [change.removed_whole for change in changes.sets] == [False, True]


slices = st.builds(
    ServiceSlice,
    st.sampled_from(["web", "db"]),
    st.frozensets(st.sampled_from([ip_address(t) for t in (A, B, C, "fd00::1")]), max_size=3),
    st.frozensets(
        st.builds(ServicePort, st.sampled_from(["tcp", "udp"]), st.sampled_from([80, 81])),
        max_size=2,
    ),
)
moves = st.one_of(
    st.tuples(st.sampled_from(["s1", "s2", "s3"]), st.one_of(st.none(), slices)),
    st.tuples(st.just("use"), st.sampled_from([("web", True), ("web", False), ("db", True)])),
    st.tuples(st.just("leave"), st.integers(0, 5)),
    st.just(("flush", None)),
)


@given(st.lists(moves, max_size=30), st.randoms(use_true_random=False))
def test_every_history_adds_up(history: list[tuple[str, Any]], shuffler: random.Random) -> None:
    table, used = ServiceSets(), list[ServiceNeed]()
    told: dict[str, frozenset[str]] = {}
    state: dict[SliceKey, ServiceSlice] = {}
    for what, value in [*history, ("flush", None)]:
        match what:
            case "use":
                used.append(service_set("default", value[0], ports=value[1]))
                table.acquire(used[-1])
            case "leave":
                if used:
                    table.release(used.pop(value % len(used)))
            case "flush":
                for change in table.flush():
                    if change.removed_whole:
                        del told[change.set_id]
                    elif change.full is not None:
                        assert change.set_id not in told
                        told[change.set_id] = change.full
                    else:
                        members = told[change.set_id]
                        assert change.added | change.removed
                        assert not change.added & members
                        assert change.removed <= members
                        told[change.set_id] = members - change.removed | change.added
            case _:
                key = slice_key(what)
                table.put(key, value)
                state.pop(key, None)
                if value is not None:
                    state[key] = value
    assert not table.dirty
    expected = {
        need.id: frozenset(
            f"{address},{port.protocol}:{port.number}" if need.ports else str(address)
            for one in state.values()
            if one.service == need.service[1]
            for address in one.addresses
            for port in (one.ports if need.ports else [ServicePort("", 0)])
        )
        for need in used
    }
    assert told == expected
    assert {name: table.members(name) for name in table.kinds} == expected
