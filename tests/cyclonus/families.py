"""The 230 cases: what the families of Cyclonus' generator cover, written anew.

Most cases vary one thing of a base policy: pod x/a takes tcp 80 from pods b and c of x and y, and
may send tcp 80 to pods a and b of y and z, and ask for names. The rest are scenarios of some steps.
`families(address)` is given the address of z/c, around which the blocks of addresses lie.
Counted and judged in tests/cyclonus/test_families.py.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from tests.cyclonus.cluster import NAMESPACES, Case, Change, Document, apply, delete, namespace, pod
from tests.cyclonus.scenarios import EXAMPLE, UPSTREAM

Selector = dict[str, Any]
Rules = list[dict[str, Any]]
DIRECTIONS = ("ingress", "egress")
COUNTS = {
    "peers": 112,
    "ports": 70,
    "conflict": 16,
    "upstream": 13,
    "action": 6,
    "target": 6,
    "rules": 4,
    "namespace": 2,
    "example": 1,
}
NAME_LABEL = "kubernetes.io/metadata.name"
EMPTY: Selector = {}


def one_of(key: str, *values: str) -> Selector:
    """A selector by expression."""
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


def is_(key: str, value: str) -> Selector:
    """A selector by label."""
    return {"matchLabels": {key: value}}


def peer(pods: Selector | None, spaces: Selector | None) -> dict[str, Any]:
    """A peer by selectors; None: the selector is absent."""
    given = {"podSelector": pods, "namespaceSelector": spaces}
    return {name: selector for name, selector in given.items() if selector is not None}


def port(number: int | str | None = None, protocol: str = "", last: int = 0) -> dict[str, Any]:
    """A port of a rule; what is not given is absent."""
    given = {"protocol": protocol or None, "port": number, "endPort": last or None}
    return {name: value for name, value in given.items() if value is not None}


NAMES_RULE = {"ports": [port(53, "UDP"), port(53, "TCP")]}
TCP_80 = [port(80, "TCP")]
BASE_PEERS = {
    "ingress": [peer(one_of("pod", "b", "c"), one_of("ns", "x", "y"))],
    "egress": [peer(one_of("pod", "a", "b"), one_of("ns", "y", "z"))],
}
SIDE = {"ingress": "from", "egress": "to"}


def policy(
    name: str, space: str, pods: Selector, ingress: Rules | None, egress: Rules | None
) -> Document:
    """A NetworkPolicy; None: it says nothing of that direction."""
    spec: dict[str, Any] = {"podSelector": pods, "policyTypes": []}
    for direction, rules in (("ingress", ingress), ("egress", egress)):
        if rules is not None:
            spec["policyTypes"].append(direction.capitalize())
            spec[direction] = rules
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": space},
        "spec": spec,
    }


def base(
    *,
    space: str = "x",
    pods: Selector | None = None,
    peers: tuple[str, list[Any]] | None = None,
    ports: tuple[str, list[Any]] | None = None,
    rules: tuple[str, Rules] | None = None,
) -> Document:
    """The base policy with one thing changed; the last three name the direction that changes."""
    said: dict[str, Rules] = {}
    for direction in DIRECTIONS:
        its_peers = peers[1] if peers and peers[0] == direction else BASE_PEERS[direction]
        its_ports = ports[1] if ports and ports[0] == direction else TCP_80
        said[direction] = [{SIDE[direction]: its_peers, "ports": its_ports}]
    said["egress"].append(NAMES_RULE)
    if rules:
        said[rules[0]] = rules[1]
    chosen = is_("pod", "a") if pods is None else pods
    return policy("base", space, chosen, said["ingress"], said["egress"])


def target() -> Iterator[tuple[str, Document]]:
    """Whom the policy is about: each namespace, and three selectors."""
    for space in NAMESPACES:
        yield f"namespace-{space}", base(space=space)
    yield "every-pod", base(pods=EMPTY)
    yield "pod-by-label", base(pods=is_("pod", "a"))
    yield "pods-by-expression", base(pods=one_of("pod", "a", "b"))


def rules() -> Iterator[tuple[str, Document]]:
    """No rule, and a rule that says nothing."""
    for direction in DIRECTIONS:
        yield f"{direction}-nothing", base(rules=(direction, []))
        yield f"{direction}-everything", base(rules=(direction, [{}]))


def peers(address: str) -> Iterator[tuple[str, Document]]:
    """No peer, each of ten, each two of them."""
    wide = str(ipaddress.ip_network(f"{address}/24", strict=False))
    narrow = str(ipaddress.ip_network(f"{address}/30", strict=False))
    some, of_x = is_("pod", "c"), is_("ns", "x")
    ten = {
        "own-pods": peer(EMPTY, None),
        "own-pods-by-label": peer(some, None),
        "all-namespaces": peer(None, EMPTY),
        "all-pods": peer(EMPTY, EMPTY),
        "pods-by-label": peer(some, EMPTY),
        "namespace-by-label": peer(None, of_x),
        "all-pods-of-a-namespace": peer(EMPTY, of_x),
        "pods-of-a-namespace": peer(some, of_x),
        "block": {"ipBlock": {"cidr": wide}},
        "block-with-a-hole": {"ipBlock": {"cidr": wide, "except": [narrow]}},
    }
    for direction in DIRECTIONS:
        yield f"{direction}-nobody-named", base(peers=(direction, []))
        for name, one in ten.items():
            yield f"{direction}-{name}", base(peers=(direction, [one]))
        for (first, one), (second, two) in combinations(ten.items(), 2):
            yield f"{direction}-{first}+{second}", base(peers=(direction, [one, two]))


def ports() -> Iterator[tuple[str, Document]]:
    """No port, one of every sort, and some pairs."""
    single = {
        f"{protocol.lower() or 'default'}-{number or 'any'}": port(number, protocol)
        for protocol in ("", "TCP", "UDP", "SCTP")
        for number in (None, 80, 81)
    }
    for protocol in ("TCP", "UDP", "SCTP"):
        word = protocol.lower()
        for number in (80, 81):
            single[f"{word}-named-{number}"] = port(f"serve-{number}-{word}", protocol)
        for last in (80, 84):
            single[f"{word}-53-to-{last}"] = port(53, protocol, last)
    single["name-of-another-protocol"] = port("serve-81-udp", "TCP")
    single["name-that-nobody-has"] = port("serve-7981-udp", "TCP")
    single["number-that-nobody-serves"] = port(7981, "TCP")
    pairs = {
        "any+80": [port(), port(80)],
        "any+named": [port(), port("serve-80-tcp")],
        "any+udp": [port(), port(None, "UDP")],
        "80+81": [port(80), port(81)],
        "80+named-81": [port(80), port("serve-81-tcp")],
        "80+named-udp-81": [port(80), port("serve-81-udp", "UDP")],
        "udp-80+named-udp-81": [port(80, "UDP"), port("serve-81-udp", "UDP")],
    }
    for direction in DIRECTIONS:
        yield f"{direction}-none-named", base(ports=(direction, []))
        for name, one in single.items():
            yield f"{direction}-{name}", base(ports=(direction, [one]))
        for name, two in pairs.items():
            yield f"{direction}-{name}", base(ports=(direction, two))


# What conflicts: rules that say everything or nothing, by no word, by pods and by addresses.
ALL: Rules = [{}]
NONE: Rules = []
POD_ALL, POD_NONE = peer(None, EMPTY), peer(None, is_("this-will", "not-be"))
BLOCK_ALL, BLOCK_NONE = {"ipBlock": {"cidr": "0.0.0.0/0"}}, {"ipBlock": {"cidr": "0.0.0.0/31"}}


def conflict() -> Iterator[tuple[str, list[Document]]]:
    """Two policies that say opposite things, of two pods or of one."""
    source, destination = ("x", is_("pod", "b")), ("y", is_("pod", "c"))

    def made(name: str, whom: tuple[str, Selector], direction: str, said: Rules) -> Document:
        both = (said, None) if direction == "ingress" else (None, said)
        return policy(name, *whom, *both)

    def peers_of(direction: str, one: dict[str, Any]) -> Rules:
        return [{SIDE[direction]: [one]}]

    yield (
        "source-closed-destination-open",
        [made("closed", source, "egress", NONE), made("open", destination, "ingress", ALL)],
    )
    yield (
        "source-open-destination-closed",
        [made("open", source, "egress", ALL), made("closed", destination, "ingress", NONE)],
    )
    for direction, whom in (("egress", source), ("ingress", destination)):
        two = [made("closed", whom, direction, NONE), made("open", whom, direction, ALL)]
        yield f"{direction}-closed-and-open", two
    for direction in ("egress", "ingress"):
        by_pod, by_block = peers_of(direction, POD_ALL), peers_of(direction, BLOCK_ALL)
        no_pod, no_block = peers_of(direction, POD_NONE), peers_of(direction, BLOCK_NONE)
        for name, closed, opened in (
            ("closed-and-open-by-pod", NONE, by_pod),
            ("closed-and-open-by-block", NONE, by_block),
            ("closed-by-block-open-by-pod", no_block, by_pod),
            ("closed-by-pod-open-by-block", no_pod, by_block),
        ):
            yield (
                f"{direction}-{name}",
                [
                    made("closed", source, direction, closed),
                    made("open", source, direction, opened),
                ],
            )
        yield f"{direction}-closed-by-block", [made("closed", source, direction, no_block)]
        yield f"{direction}-closed-by-pod", [made("closed", source, direction, no_pod)]


def action() -> Iterator[tuple[str, tuple[tuple[Change, ...], ...]]]:
    """What is created, changed and deleted while the policy stands."""
    whole = base()
    new_space, marked = is_("new-ns", "qrs"), is_("new-label", "abc")
    yield "policy-comes-and-goes", (apply(whole), delete(whole))
    other = base(ports=("ingress", [port("serve-81-udp", "UDP")]))
    yield "policy-changes", (apply(whole), apply(other))
    y2 = namespace("y-2", ns="y")
    yield (
        "namespace-comes-and-goes",
        (
            apply(whole),
            apply(y2, pod("y-2/a", pod="a"), pod("y-2/b", pod="b")),
            delete(y2),
        ),
    )
    yield (
        "namespace-gets-and-loses-a-label",
        (
            apply(base(peers=("ingress", [peer(None, new_space)]))),
            apply(namespace("y", ns="y", **{"new-ns": "qrs"})),
            apply(namespace("y", ns="y")),
        ),
    )
    yield (
        "pod-comes-and-goes",
        (apply(whole), apply(pod("x/d", pod="d")), delete(pod("x/d"))),
    )
    yield (
        "pod-gets-and-loses-a-label",
        (
            apply(base(peers=("ingress", [peer(marked, one_of("ns", "y", "z"))]))),
            apply(pod("y/b", pod="b", **{"new-label": "abc"})),
            apply(pod("y/b", pod="b")),
        ),
    )


def by_name() -> Iterator[tuple[str, Document]]:
    """A namespace by the label that every namespace has."""
    for direction in DIRECTIONS:
        yield direction, base(peers=(direction, [peer(None, is_(NAME_LABEL, "z"))]))


def families(address: str = "10.65.1.13") -> list[Case]:
    """All cases."""
    found: list[Case] = []

    def add(family: str, name: str, documents: Sequence[Document]) -> None:
        found.append(Case(family, name, (apply(*documents),)))

    varied = {
        "target": target(),
        "rules": rules(),
        "peers": peers(address),
        "ports": ports(),
        "namespace": by_name(),
    }
    for family, cases in varied.items():
        for name, document in cases:
            add(family, name, [document])
    for name, documents in conflict():
        add("conflict", name, documents)
    found += [Case("action", name, steps) for name, steps in action()]
    found += [Case("upstream", name, steps) for name, steps in UPSTREAM.items()]
    found += [Case("example", name, steps) for name, steps in EXAMPLE.items()]
    return found
