"""Flows and requests by lot, as JSON of the API's messages.

What the two servers knowingly do differently (docs/interop.md) does not occur in these flows, so
that their answers must be equal: `tests/interop/test_goldmane.py` shows each difference on its own.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

Message = dict[str, Any]

INTERVAL = 15
BUCKETS = 40
ENDS = [
    ("WorkloadEndpoint", "web-7d4b9-*", "shop"),
    ("WorkloadEndpoint", "db-*", "shop-data"),
    ("WorkloadEndpoint", "coredns-*", "kube-system"),
    ("HostEndpoint", "node-1", "-"),
    ("NetworkSet", "office", "shop"),
    ("NetworkSet", "everywhere", "-"),
    ("Network", "pub", "-"),
    ("Network", "pvt", "-"),
]
POLICIES = [
    ("CalicoNetworkPolicy", "security", "shop", "locked"),
    ("GlobalNetworkPolicy", "default", "", "open"),
    ("StagedNetworkPolicy", "default", "shop", "soon"),
    ("StagedGlobalNetworkPolicy", "security", "", "later"),
    ("StagedKubernetesNetworkPolicy", "default", "shop", "staged"),
    ("NetworkPolicy", "default", "shop-data", "db-clients"),
    ("ClusterNetworkPolicy", "admin", "", "cluster-wide"),
    ("Profile", "", "", "kns.shop"),
]
ACTIONS = ["Allow", "Deny", "Pass"]
SERVICES = [("-", "-", "-", 0), ("web", "shop", "http", 80), ("db", "shop-data", "-", 5432)]


def flows(random: Random, number: int, first: int, named: str = "lot") -> list[Message]:
    """So many flows of `BUCKETS` intervals from `first` on; some have equal keys. The last one has
    the source `named`, which no other has."""
    keys = [_key(random) for _ in range(number // 3)]
    made = [_flow(random, random.choice(keys), _start(random, first)) for _ in range(number)]
    # One and the same sender may say a key of an interval once.
    once = {(str(flow["Key"]), flow["start_time"]): flow for flow in made}
    last = _flow(random, {**_key(random), "source_name": named}, first)
    return [*once.values(), last]


def _start(random: Random, first: int) -> int:
    return first + random.randrange(BUCKETS * INTERVAL)


def _key(random: Random) -> Message:
    source, destination = random.choice(ENDS), random.choice(ENDS)
    service = random.choice(SERVICES)
    return {
        "source_type": source[0],
        "source_name": source[1],
        "source_namespace": source[2],
        "dest_type": destination[0],
        "dest_name": destination[1],
        "dest_namespace": destination[2],
        "dest_port": random.choice([0, 53, 80, 443, 5432]),
        "dest_service_name": service[0],
        "dest_service_namespace": service[1],
        "dest_service_port_name": service[2],
        "dest_service_port": service[3],
        "proto": random.choice(["tcp", "udp", "icmp"]),
        "reporter": random.choice(["Src", "Dst"]),
        "action": random.choice(ACTIONS[:2]),
        "policies": {"enforced_policies": _hits(random), "pending_policies": _hits(random)},
    }


def _hits(random: Random) -> list[Message]:
    """Hits of different policies."""
    chosen = random.sample(POLICIES, random.randint(1, 3))
    return [_hit(random, policy, index) for index, policy in enumerate(chosen)]


def _hit(random: Random, policy: tuple[str, ...], index: int) -> Message:
    kind, tier, namespace, name = policy
    named = {"kind": kind, "tier": tier, "namespace": namespace, "name": name}
    # Goldmane tells rules apart by the policy's place: here both numbers are the same.
    numbers = {"policy_index": index, "rule_index": index}
    return {**named, **numbers, "action": random.choice(ACTIONS)}


def _flow(random: Random, key: Message, start: int) -> Message:
    counts = ("packets_in", "packets_out", "bytes_in", "bytes_out", "num_connections_started",
              "num_connections_completed")  # fmt: skip
    return {
        "Key": key,
        "start_time": start,
        # Calico's felix says the start for both.
        "end_time": start + random.choice([0, INTERVAL]),
        "source_labels": ["app=a", *random.sample(["tier=x", "tier=y", "zone=1"], 2)],
        "dest_labels": ["app=b", *random.sample(["tier=x", "version=1"], 1)],
        **{name: random.randrange(1000) for name in counts},
    }


def chosen(random: Random, policies: bool = True) -> Message:
    """A filter with one field or some."""
    fields: dict[str, Callable[[], Any]] = {
        "source_names": lambda: _texts(random, [*_names(), "off", "web", "PUBLIC NETWORK", "-*"]),
        "dest_names": lambda: _texts(random, [*_names(), "PRIVATE NETWORK", "NETWORK", "b"]),
        "source_namespaces": lambda: _texts(random, ["shop", "shop-data", "-", "kube", "none"]),
        "dest_namespaces": lambda: _texts(random, ["shop", "data", "-", "kube-system"]),
        "protocols": lambda: _texts(random, ["tcp", "udp", "icmp", "p"]),
        "dest_ports": lambda: [{"port": one} for one in random.sample([0, 53, 80, 443, 1], 2)],
        "actions": lambda: random.sample(ACTIONS, random.randint(1, 2)),
        "pending_actions": lambda: random.sample(ACTIONS, random.randint(1, 2)),
        "reporter": lambda: random.choice(["Src", "Dst", "ReporterUnspecified"]),
        "policies": lambda: [match(random) for _ in range(random.randint(1, 2))],
    }
    names = [name for name in fields if policies or name != "policies"]
    return {name: fields[name]() for name in random.sample(names, random.choice([0, 1, 1, 2, 3]))}


def _names() -> list[str]:
    return [name for _, name, _ in ENDS]


def _texts(random: Random, values: list[str]) -> list[Message]:
    return [_text(random, value) for value in random.sample(values, random.randint(1, 2))]


def _text(random: Random, value: str) -> Message:
    return {"value": value, "type": random.choice(["Exact", "Fuzzy"])}


def match(random: Random, actions: bool = True) -> Message:
    """A match of policies with some of its fields, as Whisker sends it: with empty texts, too."""
    kind, tier, namespace, name = random.choice(POLICIES)
    fields = {
        "kind": kind,
        "tier": _text(random, random.choice([tier, tier[:3], ""])),
        "namespace": _text(random, random.choice([namespace, "shop", ""])),
        "name": _text(random, random.choice([name, name[1:], ""])),
        "action": random.choice(ACTIONS),
    }
    names = [name for name in fields if actions or name != "action"]
    return {name: fields[name] for name in random.sample(names, random.randint(1, 3))}
