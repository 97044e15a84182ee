"""Truth tables: what chains do with any packet, against what the rules of a policy mean.

The meaning is written here a second time, straight from the words of `policy_model`; chains are
walked as the kernel walks them (tests/felix/walk.py).
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from felix.calc.policy_model import ANYONE, EntityMatch, ResolvedPolicy, ResolvedRule, Verb
from felix.rules import names
from felix.rules.model import Side
from felix.rules.policy import policy_chains
from tests.felix.rules.test_policy_rules import ALLOW, DENY, GPOL, MARKS, VERDICTS, chain_of
from tests.felix.walk import NAMES, PORTFUL, Kernel, Packet, in_set
from tests.size import examples

V4 = ["10.0.0.0/30", "10.0.0.1/32", "10.0.0.2/31", "10.0.0.3/32", "0.0.0.0/0", "10.0.0.0/29"]
V6 = ["fd00::/126", "fd00::1/128", "fd00::2/127", "::/0"]
ADDRESSES = {
    4: [ip_address(f"10.0.0.{n}") for n in range(6)],
    6: [ip_address(f"fd00::{n}") for n in range(6)],
}
PORTS = [0, 10, 11, 12, 20, 80, 443, 65535]
SET_IDS = ["s:a", "s:b"]
PORT_SET_IDS = ["n:a", "n:b"]


def several(items: list[str], most: int = 3) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(items), max_size=most).map(tuple)


RANGES = st.lists(
    st.one_of(
        st.sampled_from(PORTS).map(lambda p: (p, p)),
        st.sampled_from([(10, 12), (0, 11), (80, 443), (1, 65535)]),
    ),
    max_size=12,
).map(tuple)
NETS_OF_BOTH = several(V4 + V6).map(lambda texts: tuple(map(ip_network, texts)))
FIELDS: dict[str, st.SearchStrategy[object]] = {
    "nets": NETS_OF_BOTH,
    "not_nets": NETS_OF_BOTH,
    "sets": several(SET_IDS, 2),
    "not_sets": several(SET_IDS, 2),
    "ports": RANGES,
    "named_ports": several(PORT_SET_IDS),
    "not_ports": RANGES,
    "not_named_ports": several(PORT_SET_IDS),
    "services": several(PORT_SET_IDS, 1),
}


@st.composite
def sides(draw: st.DrawFn) -> EntityMatch:
    """Few fields at a time, so that rules match now and then."""
    chosen = draw(st.sets(st.sampled_from(sorted(FIELDS)), max_size=3))
    return EntityMatch(**{name: draw(FIELDS[name]) for name in sorted(chosen)})  # type: ignore[arg-type]


MESSAGES = st.none() | st.tuples(
    st.sampled_from([0, 3, 8, 128, 254]), st.none() | st.sampled_from([0, 4])
)
PROTOCOLS = st.none() | st.sampled_from([1, 6, 17, 47, 58, 132])


def rare(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.one_of(st.none(), st.none(), st.none(), strategy)


@st.composite
def resolved(draw: st.DrawFn) -> ResolvedRule:
    source, destination = draw(sides()), draw(st.just(ANYONE) | sides())
    ports = any(s.ports or s.not_ports for s in (source, destination))
    return ResolvedRule(
        draw(st.sampled_from(Verb)),
        version=draw(rare(st.sampled_from([4, 6]))),  # type: ignore[arg-type]
        protocol=draw(st.sampled_from([6, 6, 17]) if ports else PROTOCOLS),
        not_protocol=draw(rare(PROTOCOLS)),  # type: ignore[arg-type]
        icmp=draw(rare(MESSAGES)),  # type: ignore[arg-type]
        not_icmp=draw(rare(MESSAGES)),  # type: ignore[arg-type]
        source=source,
        destination=destination,
    )


RULES = resolved()


@st.composite
def packets(draw: st.DrawFn) -> Packet:
    version = draw(st.sampled_from([4, 6]))
    protocol = draw(st.sampled_from([6, 6, 6, 17, 1, 47, 58, 132]))
    ports = draw(st.tuples(st.sampled_from(PORTS), st.sampled_from(PORTS)))
    return Packet(
        draw(st.sampled_from(ADDRESSES[version])),
        draw(st.sampled_from(ADDRESSES[version])),
        protocol,
        ports if protocol in PORTFUL else (0, 0),
        draw(st.tuples(st.sampled_from([0, 3, 8, 128, 254]), st.sampled_from([0, 4]))),
    )


@st.composite
def contents(draw: st.DrawFn) -> dict[str, frozenset[str]]:
    """Members of every set, both families mixed."""
    addresses = [*map(str, ADDRESSES[4]), *map(str, ADDRESSES[6]), "10.0.0.0/31"]
    found = {each: draw(st.frozensets(st.sampled_from(addresses))) for each in SET_IDS}
    pairs = [
        f"{address},{name}:{port}"
        for address in ("10.0.0.1", "10.0.0.2", "fd00::1")
        for name in NAMES.values()
        for port in (10, 80)
    ]
    return found | {each: draw(st.frozensets(st.sampled_from(pairs))) for each in PORT_SET_IDS}


def kernel_sets(sets: dict[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    return {
        names.ip_set(set_id, version): frozenset(
            m for m in members if (":" in m.partition(",")[0]) == (version == 6)
        )
        for set_id, members in sets.items()
        for version in (4, 6)
    }


def means(rule: ResolvedRule, packet: Packet, sets: dict[str, frozenset[str]]) -> bool:
    """Whether a rule matches a packet, by the words of the model."""
    version = packet.version
    if rule.version not in (None, version):
        return False
    if rule.protocol is not None and packet.protocol != rule.protocol:
        return False
    if rule.not_protocol is not None and packet.protocol == rule.not_protocol:
        return False
    if rule.icmp is not None and not (packet.is_icmp and message(rule.icmp, packet)):
        return False
    if rule.not_icmp is not None and packet.is_icmp and message(rule.not_icmp, packet):
        return False
    sides = ((Side.SOURCE, rule.source), (Side.DESTINATION, rule.destination))
    return all(holds(side, entity, packet, sets) for side, entity in sides)


def message(wanted: tuple[int | None, int | None], packet: Packet) -> bool:
    return wanted[0] == packet.icmp[0] and wanted[1] in (None, packet.icmp[1])


def holds(side: Side, entity: EntityMatch, packet: Packet, sets: dict[str, frozenset[str]]) -> bool:
    address, port = packet.address(side), packet.port(side)

    def member(set_id: str, *, ports: bool) -> bool:
        found = (m for m in sets[set_id] if (":" in m.partition(",")[0]) == (packet.version == 6))
        return in_set(found, packet, side, ports=ports)

    own = [n for n in entity.nets if n.version == packet.version]
    own_not = [n for n in entity.not_nets if n.version == packet.version]
    if (entity.nets and not own) or (entity.not_nets and not own_not):
        return False  # a rule for the other family only
    choices = [a <= port <= b for a, b in entity.ports]
    choices += [member(each, ports=True) for each in entity.named_ports]
    return (
        (not own or any(address in net for net in own))
        and not any(address in net for net in own_not)
        and all(member(each, ports=False) for each in entity.sets)
        and not any(member(each, ports=False) for each in entity.not_sets)
        and (not (entity.ports or entity.named_ports) or any(choices))
        and not any(a <= port <= b for a, b in entity.not_ports)
        and not any(member(each, ports=True) for each in entity.not_named_ports)
        and all(member(each, ports=True) for each in entity.services)
    )


def decided(
    rules: tuple[ResolvedRule, ...], packet: Packet, sets: dict[str, frozenset[str]]
) -> tuple[Verb | None, int]:
    """The verdict of a policy, and how many log lines came before it."""
    logs = 0
    for rule in rules:
        if means(rule, packet, sets):
            if rule.verb is not Verb.LOG:
                return rule.verb, logs
            logs += 1
    return None, logs


OTHER_ICMP = (
    Packet(protocol=58, ports=(0, 0), icmp=(0, 0)),
    Packet(ADDRESSES[6][1], ADDRESSES[6][2], 1, (0, 0), (0, 0)),
)


@pytest.mark.parametrize("rule", [ALLOW, DENY])
@pytest.mark.parametrize("packet", OTHER_ICMP)
def test_the_other_familys_icmp_has_no_type(packet: Packet, rule: ResolvedRule) -> None:
    """A rule of its number without a type that it has not: it is meant."""
    for not_icmp in (None, (0, None), (0, 0), (8, None)):
        one = replace(rule, protocol=packet.protocol, not_icmp=not_icmp)
        chain = chain_of(one, version=packet.version)
        verdict, after = Kernel({chain.name: chain}).walk(chain.name, packet)
        assert means(one, packet, {})
        assert bool(after & MARKS.accept) == (rule is ALLOW)
        assert verdict == ("RETURN" if rule is ALLOW else "DROP")


@settings(max_examples=examples(150))
@given(
    st.lists(RULES, max_size=4).map(tuple),
    packets(),
    contents(),
    st.sampled_from([0, MARKS.scratch0, MARKS.scratch1, MARKS.scratch0 | MARKS.scratch1]),
)
def test_a_policys_chain_does_what_its_rules_mean(
    rules: tuple[ResolvedRule, ...],
    packet: Packet,
    sets: dict[str, frozenset[str]],
    mark: int,
) -> None:
    chain = chain_of(*rules, version=packet.version)
    kernel = Kernel({chain.name: chain}, kernel_sets(sets))
    verdict, after = kernel.walk(chain.name, packet, mark)
    wanted, logs = decided(rules, packet, sets)
    assert (verdict == "DROP") == (wanted is Verb.DENY)
    if wanted is not Verb.DENY:
        assert verdict == "RETURN"
        assert bool(after & MARKS.accept) == (wanted is Verb.ALLOW)
        assert bool(after & MARKS.passed) == (wanted is Verb.PASS)
        assert not after & MARKS.drop
    assert len(kernel.logged) == logs


@settings(max_examples=examples(80))
@given(
    st.lists(RULES, min_size=1, max_size=4).map(tuple),
    packets(),
    contents(),
    st.sets(st.sampled_from(SET_IDS + PORT_SET_IDS)),
    st.sets(st.integers(0, 3)),
)
def test_what_cannot_be_enforced_never_widens(
    rules: tuple[ResolvedRule, ...],
    packet: Packet,
    sets: dict[str, frozenset[str]],
    unusable: set[str],
    unenforced: set[int],
) -> None:
    """POL-1, with sets that the kernel lacks, matches that we lack, and rules without sense."""
    told = tuple(
        replace(rule, unenforced=("http",) if number in unenforced else ())
        for number, rule in enumerate(rules)
    )
    policy = ResolvedPolicy(GPOL, "default", told, ())
    chain = policy_chains(policy, packet.version, MARKS, VERDICTS, frozenset(unusable))[0]
    named = {m.name for rule in chain.rules for m in rule.match if hasattr(m, "name")}
    assert not named & {names.ip_set(each, packet.version) for each in unusable}
    _, after = Kernel({chain.name: chain}, kernel_sets(sets)).walk(chain.name, packet)
    if after & MARKS.accept:
        wanted, _ = decided(told, packet, sets)
        first = next(
            i for i, r in enumerate(told) if means(r, packet, sets) and r.verb is not Verb.LOG
        )
        assert wanted is Verb.ALLOW
        assert first not in unenforced


POSITIVE = ["", "10.0.0.0/30", "10.0.0.0/31 10.0.0.4/32", "fd00::/127", "10.0.0.0/30 fd00::/127"]
NEGATIVE = ["", "10.0.0.1/32", "10.0.0.1/32 10.0.0.4/31", "fd00::1/128", "10.0.0.1/32 fd00::1/128",
            "0.0.0.0/0"]  # fmt: skip


@pytest.mark.parametrize("negative", NEGATIVE)
@pytest.mark.parametrize("positive", POSITIVE)
def test_every_shape_of_networks_on_either_side(positive: str, negative: str) -> None:
    entity = EntityMatch(
        nets=tuple(map(ip_network, positive.split())),
        not_nets=tuple(map(ip_network, negative.split())),
    )
    other = EntityMatch(nets=(ip_network("10.0.0.0/29"), ip_network("fd00::/125")))
    for source, destination in itertools.permutations([entity, other]):
        for rule in (ALLOW, DENY):
            rule = replace(rule, source=source, destination=destination)
            for version in (4, 6):
                chain = chain_of(rule, version=version)
                kernel = Kernel({chain.name: chain})
                for one in ADDRESSES[version]:
                    packet = Packet(one, one)
                    verdict, mark = kernel.walk(chain.name, packet)
                    hit = bool(mark & MARKS.accept) or verdict == "DROP"
                    assert hit == means(rule, packet, {}), (rule, packet)


@pytest.mark.parametrize("part", [
    {"protocol": 0}, {"not_protocol": 0}, {"icmp": (255, None)}, {"icmp": (None, 4)},
    {"not_icmp": (255, None), "protocol": 1},
    {"destination": EntityMatch(ports=((80, 80),))},
    {"source": EntityMatch(not_ports=((80, 80),)), "protocol": 47},
])  # fmt: skip
def test_what_has_no_words_is_left_out_of_allow_and_makes_deny_wide(
    part: dict[str, object],
) -> None:
    allow, deny = replace(ALLOW, **part), replace(DENY, **part)  # type: ignore[arg-type]
    passed = replace(allow, verb=Verb.PASS)
    for packet in (Packet(protocol=1), Packet(protocol=47, ports=(0, 0))):
        for rule, drops in ((allow, False), (deny, True), (passed, True)):
            chain = chain_of(rule)
            if rule.icmp and not packet.is_icmp:
                continue
            if rule.protocol and rule.protocol != packet.protocol:
                continue
            verdict, after = Kernel({chain.name: chain}).walk(chain.name, packet)
            assert not after & MARKS.accept
            assert (verdict == "DROP") == drops
