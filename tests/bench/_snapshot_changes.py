"""Single changes at full size, for `./run bench felix-snapshot`: from bytes to what is told.

A change goes the way of the watch: rows of endpoints to their sink, other objects as decoded
values; then policy is settled and told. Its cost is all of that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from statistics import median, quantiles
from typing import Any

from felix.store.ingest import EndpointRows
from libcalico.model import Profile, ResourceKey, codec
from tests.bench._datastore_driver import Stalls
from tests.bench._snapshot_shape import (
    ENDPOINTS,
    LOCAL,
    NODE,
    ROOT,
    Pair,
    Shape,
    endpoint,
    policy,
    resource,
)

Json = dict[str, Any]


class Feeder:
    """Feeds one change after another into a running calculation."""

    def __init__(self, felix: Any, shape: Shape) -> None:
        self.policy = felix.calc.policy
        self.calc = felix.calc
        self.rows: EndpointRows = felix.agent.sinks["WorkloadEndpoint"]
        self.shape = shape
        self.revision = 1 << 40

    def row(self, pair: Pair) -> None:
        """An endpoint is so now."""
        self.revision += 1
        self.rows.apply_rows([(pair[0].removeprefix(ENDPOINTS), pair[1], self.revision)])

    def policy_of(self, pair: Pair) -> None:
        """A policy is so now."""
        name = pair[0].removeprefix(f"{ROOT}globalnetworkpolicies/")
        key = ResourceKey("GlobalNetworkPolicy", name)
        self.calc.update(key, codec.decode_value(key, pair[1]))

    def profile(self, name: str, labels: dict[str, str]) -> None:
        """A profile hands these labels down."""
        _, raw = resource("Profile", name, {"labelsToApply": labels})
        key = ResourceKey("Profile", name)
        value: Profile = codec.decode_value(key, raw)
        self.calc.update(key, value)

    def remote(self, number: int, round_: int) -> None:
        """Another node's endpoint has a label more, or less."""
        extra = {"version": f"v{round_}"}
        self.row(endpoint(self.shape, number, f"node-{number % 5000}", extra))

    def member(self, number: int, round_: int) -> None:
        """Another node's endpoint has another address: members of a set change."""
        ip = f"11.{round_ >> 8 & 255}.{round_ & 255}.7"
        self.row(endpoint(self.shape, number, f"node-{number % 5000}", ip=ip))

    def local(self, number: int, round_: int) -> None:
        """An endpoint of this node has a label more, or less."""
        self.row(endpoint(self.shape, number % LOCAL, NODE, {"version": f"v{round_}"}))

    def rule(self, number: int, round_: int) -> None:
        """A policy has other rules, of the same sets."""
        key, raw = policy(self.shape, number % self.shape.policies)
        self.policy_of((key, raw.replace(b'"ports":[80]', b'"ports":[%d]' % (8000 + round_))))

    def unmentioned(self, number: int, round_: int) -> None:
        """A namespace's label that no selector mentions."""
        name = f"ns{number % 100}"
        labels = {"pcns.projectcalico.org/name": name, "pcns.owner": f"o{round_}"}
        self.profile(f"kns.{name}", labels)


KINDS: dict[str, Callable[[Feeder, int, int], None]] = {
    "remote label": Feeder.remote,
    "remote address": Feeder.member,
    "local label": Feeder.local,
    "policy rule": Feeder.rule,
    "namespace label, unmentioned": Feeder.unmentioned,
}


async def changes(felix: Any, shape: Shape, rounds: int, watched: Any) -> Json:
    """Milliseconds of each kind of change, and of what touches very much."""
    feeder = Feeder(felix, shape)
    found: Json = {}
    for kind, change in KINDS.items():
        spent = []
        for round_ in range(rounds):
            number = LOCAL + round_ * 7919 % max(1, shape.endpoints)
            start = time.perf_counter()
            change(feeder, number, round_)
            felix.calc.policy.flush()
            spent.append((time.perf_counter() - start) * 1000)
            if not round_ % 50:
                await asyncio.sleep(0)
        found[kind] = figures(spent)
    found["at once"] = {
        "set of all": await large(felix, watched, lambda: feeder.policy_of(everybody(shape))),
        "namespace label, mentioned": await large(felix, watched, lambda: mentioned(feeder)),
    }
    return found


def everybody(shape: Shape) -> Pair:
    """A policy whose rules need a set of all endpoints."""
    key, raw = policy(shape, 0)
    return key, raw.replace(b'"selector":"has(marker-1)"', b'"selector":"has(pod-name)"')


def mentioned(feeder: Feeder) -> None:
    """A rule mentions a namespace's label, which then changes."""
    key, raw = policy(feeder.shape, 1)
    feeder.policy_of((key, raw.replace(b"has(marker-2)", b"team == 'x'")))
    feeder.policy.flush()
    feeder.profile("kns.ns1", {"team": "x"})


async def large(felix: Any, watched: Callable[[], Any], change: Callable[[], None]) -> Json:
    """One change that touches very much: in all, and the longest time the loop stood still."""
    stalls: Stalls
    async with watched() as stalls:
        start = time.perf_counter()
        change()
        await felix.settle()
        told = felix.calc.policy.flush()
        seconds = time.perf_counter() - start
    members = sum(len(one.full or ()) + len(one.added) + len(one.removed) for one in told.sets)
    return {
        "ms": round(seconds * 1000, 1),
        "stall_ms": round(stalls.longest * 1000, 1),
        "members": members,
    }


def figures(spent: list[float]) -> Json:
    """What is told of one series. Pure."""
    cuts = quantiles(spent, n=100) if len(spent) > 1 else spent * 99
    return {
        "p50_ms": round(median(spent), 3),
        "p99_ms": round(cuts[98], 3),
        "max_ms": round(max(spent), 3),
        "n": len(spent),
    }
