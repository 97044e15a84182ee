"""The 24 conformance cases of ClusterNetworkPolicy, in our own words.

Each means what the upstream case of its name means: the same tiers, priorities, subjects, peers,
ports and changes in the same order. Where upstream pokes a few connections after a change, a case
here says the whole matrix of the case's doors, of which those pokes are a part.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.netpol_cluster.houses import CLUSTER, LINUX, Document, Houses

PORTS = {("tcp", 80), ("tcp", 81), ("udp", 80), ("udp", 81), ("sctp", 80), ("sctp", 81)}
Play = Callable[[Houses], None]


@dataclass(frozen=True)
class Case:
    """One case: upstream's name, and what is done."""

    name: str
    play: Play


@dataclass(frozen=True)
class Roles:
    """Who plays what for a protocol: whose policy it is, and its three kinds of peers.

    `open_` is met by rules about everything, `barred` by rules about one port, of `narrow` one
    port is accepted (by an egress and by an ingress policy) and the rest denied.
    """

    subject: str
    open_: str
    barred: str
    barred_port: int
    narrow: str
    egress_port: int
    ingress_port: int


ROLES = {
    "tcp": Roles("x", "y", "z", 80, "w", 81, 80),
    "udp": Roles("w", "y", "z", 81, "x", 80, 80),
    "sctp": Roles("y", "x", "z", 80, "w", 80, 80),
}


def namespace(name: str) -> Document:
    """The selector of one namespace, by the label that every namespace has."""
    return {"matchLabels": {"kubernetes.io/metadata.name": name}}


def cluster(tier: str, priority: int, subject: str, **rules: Any) -> Document:
    """A policy about a namespace."""
    return {
        "apiVersion": "policy.networking.k8s.io/v1alpha2",
        "kind": CLUSTER,
        "metadata": {"name": "default" if tier == "Baseline" else f"of-{subject}-{priority}"},
        "spec": {
            "tier": tier,
            "priority": priority,
            "subject": {"namespaces": namespace(subject)},
            **rules,
        },
    }


def port(protocol: str, number: int) -> Document:
    """One port of one protocol."""
    return {protocol: {"destinationPort": {"number": number}}}


def rules(side: str, tier: str, roles: Roles, barred: Any, narrow: Any) -> list[Document]:
    """The rules that most cases begin with; those that pass stand in the Admin tier only."""
    passing = tier == "Admin"
    found = [("Accept", roles.open_, None), ("Deny", roles.open_, None)]
    found += [("Pass", roles.open_, None)] if passing else []
    found += [("Deny", roles.barred, barred)]
    found += [("Pass", roles.barred, barred)] if passing else []
    found += [("Accept", roles.narrow, narrow), ("Deny", roles.narrow, None)]
    return [
        {
            "name": f"{action.lower()}-{peer}",
            "action": action,
            side: [{"namespaces": namespace(peer)}],
            **({"protocols": ports} if ports else {}),
        }
        for action, peer, ports in found
    ]


def swapped(policy: Document, *swaps: tuple[str, int, int]) -> Document:
    """The policy with some pairs of rules in each other's place."""
    found = copy.deepcopy(policy)
    for direction, one, other in swaps:
        listed = found["spec"][direction]
        listed[one], listed[other] = listed[other], listed[one]
    return found


def line(direction: str, subject: str, peer: str) -> str:
    """What closes a direction between a policy's subject and a peer."""
    ends = (subject, peer) if direction == "egress" else (peer, subject)
    return f"no {ends[0]}/* -> {ends[1]}/*"


def directed(direction: str, protocol: str, tier: str) -> Case:
    """A policy of one direction and protocol: accept, deny and pass, in every order."""
    roles = ROLES[protocol]
    side = "to" if direction == "egress" else "from"
    allowed = roles.egress_port if direction == "egress" else roles.ingress_port
    barred, narrow = [port(protocol, roles.barred_port)], [port(protocol, allowed)]
    first = cluster(
        tier,
        6 if tier == "Admin" else 10,
        roles.subject,
        **{direction: rules(side, tier, roles, barred, narrow)},
    )

    def lines(number: int, *, open_: bool, passed: bool = False) -> list[str]:
        found = [] if open_ else [line(direction, roles.subject, roles.open_)]
        if number == roles.barred_port and not passed:
            found.append(line(direction, roles.subject, roles.barred))
        if number != allowed:
            found.append(line(direction, roles.subject, roles.narrow))
        return found

    def doors(**state: bool) -> dict[str, list[str]]:
        return {f"{protocol}:{number}": lines(number, **state) for number in (80, 81)}

    def play(houses: Houses) -> None:
        policy = first
        houses.apply([policy])
        houses.see(doors(open_=True))
        policy = swapped(policy, (direction, 0, 1))
        houses.apply([policy])
        houses.see(doors(open_=False))
        if tier == "Admin":
            policy = swapped(policy, (direction, 0, 2))
            houses.apply([policy])
            houses.see(doors(open_=True))
            policy = swapped(policy, (direction, 3, 4))
            houses.apply([policy])
            houses.see(doors(open_=True, passed=True))

    return Case(f"CNP{tier}Tier{direction.capitalize()}{protocol.upper()}", play)


def gress(tier: str) -> Case:
    """Both directions and all protocols in one policy."""
    roles = Roles("x", "y", "z", 80, "w", 81, 80)
    barred = [port("tcp", 80), port("udp", 80), port("sctp", 80)]
    out = [port("tcp", 81), port("udp", 81), port("sctp", 80)]
    into = [port("tcp", 80), port("udp", 81), port("sctp", 80)]
    first = cluster(
        tier,
        15,
        "x",
        egress=rules("to", tier, roles, barred, out),
        ingress=rules("from", tier, roles, barred, into),
    )

    def doors(*, open_: bool, passed: bool = False) -> dict[str, list[str]]:
        found = {}
        for protocol, number in sorted(PORTS):
            lines = [] if open_ else ["no x/* -> y/*", "no y/* -> x/*"]
            if number == 80 and not passed:
                lines += ["no x/* -> z/*", "no z/* -> x/*"]
            if port(protocol, number) not in out:
                lines.append("no x/* -> w/*")
            if port(protocol, number) not in into:
                lines.append("no w/* -> x/*")
            found[f"{protocol}:{number}"] = lines
        return found

    def play(houses: Houses) -> None:
        policy = first
        houses.apply([policy])
        houses.see(doors(open_=True))
        policy = swapped(policy, ("egress", 0, 1), ("ingress", 0, 1))
        houses.apply([policy])
        houses.see(doors(open_=False))
        if tier == "Admin":
            policy = swapped(policy, ("egress", 0, 2), ("ingress", 0, 2))
            houses.apply([policy])
            houses.see(doors(open_=True))
            policy = swapped(policy, ("egress", 3, 4), ("ingress", 3, 4))
            houses.apply([policy])
            houses.see(doors(open_=True, passed=True))

    return Case(f"CNP{tier}TierGress", play)


def named_port(direction: str, protocol: str, tier: str) -> Case:
    """The port that is accepted is named as the container names it."""
    roles = ROLES[protocol]
    side = "to" if direction == "egress" else "from"
    named = [{"destinationNamedPort": f"serve-80-{protocol}"}]
    barred = [port(protocol, roles.barred_port)]
    policy = cluster(tier, 6, roles.subject, **{direction: rules(side, tier, roles, barred, named)})

    def play(houses: Houses) -> None:
        houses.apply([policy])
        closed = line(direction, roles.subject, roles.barred)
        rest = line(direction, roles.subject, roles.narrow)
        houses.see(
            {
                f"{protocol}:{number}": [
                    *([closed] if number == roles.barred_port else []),
                    *([rest] if number != 80 else []),
                ]
                for number in (80, 81)
            }
        )

    return Case(f"CNP{tier}Tier{direction.capitalize()}NamedPort", play)


EVERYTHING = {"networks": ["0.0.0.0/0", "::/0"]}


def node_peers(tier: str) -> Case:
    """Nodes are peers by their labels; what is behind them in the list closes the rest."""
    nodes = {"nodes": {"matchLabels": LINUX}}
    ports = {"range": {"start": 80, "end": 81}} if tier == "Baseline" else {"number": 80}
    listed: list[Document] = [
        {"action": "Accept", "to": [nodes], "protocols": [{"tcp": {"destinationPort": ports}}]}
    ]
    if tier == "Admin":
        listed.append({"action": "Pass", "to": [nodes], "protocols": [port("udp", 80)]})
    listed.append({"action": "Deny", "to": [nodes, EVERYTHING]})
    policy = cluster(tier, 75, "x", egress=listed)
    admin = tier == "Admin"
    answers = {
        "tcp:80": True,
        "tcp:81": not admin,
        "udp:80": admin,
        "udp:81": False,
        "sctp:80": False,
    }

    def play(houses: Houses) -> None:
        far = (("x/b", "node1"), ("x/a", "node2"))
        houses.poke([(pod, door, node, True) for door in answers for pod, node in far])
        houses.apply([policy])
        houses.poke(
            [(pod, door, node, open_) for door, open_ in answers.items() for pod, node in far]
        )

    return Case(f"CNP{tier}TierEgressNodePeers", play)


def inline_cidrs(tier: str) -> Case:
    """Networks are peers; pods are accepted before them by their namespace's label."""
    house = {"matchLabels": {"house": "z"}}
    some = {"matchExpressions": [{"key": "pod", "operator": "In", "values": ["a", "b", "c"]}]}
    first = cluster(
        tier,
        85,
        "x",
        egress=[
            {
                "action": "Accept",
                "to": [{"pods": {"namespaceSelector": house, "podSelector": some}}],
            },
            {"action": "Deny", "to": [EVERYTHING]},
        ],
    )
    first["spec"]["subject"] = {
        "pods": {"namespaceSelector": namespace("x"), "podSelector": some},
    }

    def doors(*open_: str) -> dict[str, Sequence[str]]:
        return dict.fromkeys(("tcp:80", "udp:80", "sctp:80"), ("no x/* -> */*", *open_))

    def space(**labels: str) -> Document:
        return {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "z", "labels": labels},
        }

    def play(houses: Houses) -> None:
        houses.apply([space(house="z")])
        houses.apply([first])
        houses.see(doors("yes x/* -> z/*"))
        houses.apply([space(house="other")])
        houses.see(doors())
        houses.apply([space(house="z")])
        houses.see(doors("yes x/* -> z/*"))
        policy = copy.deepcopy(first)
        single = [f"{houses.address(name)}/32" for name in ("y/a", "w/a")]
        policy["spec"]["egress"].insert(0, {"action": "Accept", "to": [{"networks": single}]})
        houses.apply([policy])
        houses.see(doors("yes x/* -> z/*", "yes x/* -> y/a", "yes x/* -> w/a"))

    return Case(f"CNP{tier}TierEgressInlineCIDRPeers", play)


def both_ways(action: str) -> dict[str, list[Document]]:
    """Rules about z, in both directions."""
    peer = [{"namespaces": namespace("z")}]
    return {
        "ingress": [{"action": action, "from": peer}],
        "egress": [{"action": action, "to": peer}],
    }


def priority() -> Case:
    """A policy that passes goes before one that denies as soon as its priority says so."""
    deny = cluster("Admin", 50, "x", **both_ways("Deny"))
    later = cluster("Admin", 60, "x", **both_ways("Pass"))
    base = cluster("Baseline", 10, "x", **both_ways("Accept"))
    closed = ["no x/* -> z/*", "no z/* -> x/*"]

    def play(houses: Houses) -> None:
        houses.apply([deny, later, base])
        houses.see({"tcp:80": closed, "tcp:81": closed})
        sooner = copy.deepcopy(later)
        sooner["spec"]["priority"] = 40
        houses.apply([sooner])
        houses.see({"tcp:80": [], "tcp:81": []})

    return Case("CNPAdminTierPriorityField", play)


def integration() -> Case:
    """Admin before NetworkPolicy before Baseline."""
    admin = cluster("Admin", 10, "x", **both_ways("Deny"))
    base = cluster("Baseline", 10, "x", **both_ways("Deny"))
    peer = [{"namespaceSelector": namespace("z")}]
    own: Document = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "with-z", "namespace": "x"},
        "spec": {
            "podSelector": {},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": peer}],
            "egress": [{"to": peer}],
        },
    }
    alone = ["no */* -> x/*", "no x/* -> */*"]

    def doors(*lines: str) -> dict[str, Sequence[str]]:
        return dict.fromkeys(("tcp:80", "tcp:81"), lines)

    def play(houses: Houses) -> None:
        houses.apply([admin, own, base])
        houses.see(doors(*alone))
        policy = copy.deepcopy(admin)
        policy["spec"]["ingress"][0]["action"] = "Pass"
        houses.apply([policy])
        houses.see(doors(*alone, "yes z/* -> x/*"))
        policy = copy.deepcopy(policy)
        policy["spec"]["egress"][0]["action"] = "Pass"
        houses.apply([policy])
        houses.see(doors(*alone, "yes z/* -> x/*", "yes x/* -> z/*"))
        houses.world.delete([own])
        houses.see(doors("no z/* -> x/*", "no x/* -> z/*"))

    return Case("CNPAdminTierIntegration", play)


def every() -> Iterator[Case]:
    """All of them, upstream's standard ones and those it calls experimental."""
    for tier in ("Admin", "Baseline"):
        for direction in ("ingress", "egress"):
            for protocol in ("tcp", "udp", "sctp"):
                yield directed(direction, protocol, tier)
        yield gress(tier)
        yield inline_cidrs(tier)
        yield node_peers(tier)
    yield named_port("egress", "tcp", "Admin")
    yield named_port("ingress", "udp", "Admin")
    yield named_port("egress", "udp", "Baseline")
    yield named_port("ingress", "tcp", "Baseline")
    yield integration()
    yield priority()


CASES = list(every())
