"""The oracle of a node with host endpoints against tables written by hand."""

from __future__ import annotations

import copy
import os
from collections import Counter

import pytest
import yaml

from libcalico.model import codec, defaults
from libcalico.model.validation import validate
from tests.policy_random import node_site
from tests.policy_random.coverage import POLICIES, drop, in_kind
from tests.policy_random.flows import TCP, UDP
from tests.policy_random.node_site import HOST, LEFT, ONE, RIGHT, SERVICE, SITE, TWO
from tests.policy_random.oracle import Flow
from tests.policy_random.oracle_way import Way

FULL = bool(os.environ.get("MUSLIN_FULL_SIZE"))
WORLDS, ENOUGH = (60 if FULL else 15), 25
OPEN = "spec: {ingress: [{action: Allow}], egress: [{action: Allow}]}"
PODS = "".join(
    f"""kind: WorkloadEndpoint
metadata: {{name: {title[-3:]}, namespace: {title[:-4]}, labels: {{pod: {title[-3:]}}}}}
spec:
  {{orchestrator: k8s, pod: {title[-3:]}, profiles: [open], ipNetworks: [{four}/32, "{six}/128"]}}
---
"""
    for title, (four, six) in node_site.ADDRESSES.items()
    if title in node_site.WIRES
)
HOSTS = f"""kind: Profile
metadata: {{name: open}}
{OPEN}
---
kind: HostEndpoint
metadata: {{name: h, labels: {{host: ""}}}}
spec: {{node: node1, interfaceName: eth0, profiles: [open]}}
---
"""
SHUT = HOSTS.replace("eth0, profiles: [open]", "eth0")
NO_TRACK = "doNotTrack: true, applyOnForward: true, "
PRE = "preDNAT: true, applyOnForward: true, types: [Ingress], "
FORWARD = "applyOnForward: true, "


def policy(spec: str, selector: str = "has(host)") -> str:
    return (
        "kind: GlobalNetworkPolicy\nmetadata: {name: p}\n"
        f'spec: {{selector: "{selector}", {spec}}}\n---\n'
    )


def answered(text: str, flow: Flow) -> bool:
    return Way([d for d in yaml.safe_load_all(PODS + text) if d], SITE).answered(flow)


def tcp(source: str, destination: str, port: int = 80) -> Flow:
    return Flow(source, destination, 4, TCP, 1500, port)


def udp(source: str, destination: str, port: int = 80) -> Flow:
    return Flow(source, destination, 4, UDP, 1500, port)


IN = "ingress: [{action: Allow}]"
BOTH = "ingress: [{action: Allow}], egress: [{action: Allow}], types: [Ingress, Egress]"
DENY = "ingress: [{action: Deny}]"


def only(action: str, protocol: str, port: int) -> str:
    return (
        f"ingress: [{{action: {action}, protocol: {protocol}, destination: {{ports: [{port}]}}}}]"
    )


@pytest.mark.parametrize(
    ("world", "flow", "expected"),
    [
        # Without policy a host endpoint shuts the node but for failsafes, and forwards.
        (SHUT, tcp(LEFT, HOST), False),
        (SHUT, tcp(LEFT, HOST, 443), True),
        (SHUT, tcp(RIGHT, HOST), True),
        (SHUT, udp(HOST, LEFT, 53), True),
        (SHUT, udp(HOST, LEFT), False),
        (SHUT, tcp(LEFT, ONE), True),
        (SHUT, tcp(HOST, ONE), True),
        (HOSTS, tcp(LEFT, HOST), True),
        # Untracked: the answer of the node needs a rule where the host is shut, and TCP always.
        (SHUT + policy(NO_TRACK + IN), udp(LEFT, HOST), False),
        (SHUT + policy(NO_TRACK + BOTH), udp(LEFT, HOST), True),
        (SHUT + policy(NO_TRACK + BOTH), tcp(LEFT, HOST), True),
        (HOSTS + policy(NO_TRACK + IN), udp(LEFT, HOST), True),
        (HOSTS + policy(NO_TRACK + IN), tcp(LEFT, HOST), False),
        # The answer that a workload gives is no connection's, and is never untracked.
        (HOSTS + policy(NO_TRACK + BOTH), tcp(LEFT, ONE), False),
        (HOSTS + policy(NO_TRACK + BOTH), udp(LEFT, ONE), True),
        (HOSTS + policy(NO_TRACK + BOTH), udp(LEFT, HOST, 30053), False),
        (HOSTS + policy(NO_TRACK + BOTH), tcp(HOST, SERVICE), False),
        # It denies what is forwarded, too, but not at failsafe ports, and decides nothing else.
        (HOSTS + policy(NO_TRACK + DENY), udp(LEFT, TWO), False),
        (HOSTS + policy(NO_TRACK + DENY), udp(TWO, LEFT), False),
        (HOSTS + policy(NO_TRACK + DENY), tcp(LEFT, HOST, 443), True),
        (HOSTS + policy(NO_TRACK + DENY), udp(HOST, LEFT, 53), True),
        (HOSTS + policy(NO_TRACK + DENY), udp(HOST, LEFT), False),
        (HOSTS + policy(NO_TRACK + only("Deny", "UDP", 81)), udp(LEFT, HOST), True),
        # Before translation the dialled port is seen, and behind it the other one.
        (HOSTS + policy(PRE + only("Deny", "TCP", 30080)), tcp(LEFT, HOST, 30080), False),
        (HOSTS + policy(PRE + only("Deny", "TCP", 80)), tcp(LEFT, HOST, 30080), True),
        (HOSTS + policy(FORWARD + only("Allow", "TCP", 80)), tcp(LEFT, HOST, 30080), True),
        (HOSTS + policy(FORWARD + only("Allow", "TCP", 30080)), tcp(LEFT, HOST, 30080), False),
        (HOSTS + policy(PRE + only("Deny", "TCP", 30080)), tcp(RIGHT, HOST, 30080), True),
        # What it accepts is not asked again of the host, of the workload it is.
        (SHUT + policy(PRE + only("Allow", "TCP", 80)), tcp(LEFT, HOST), True),
        (SHUT + policy(PRE + only("Allow", "TCP", 80)), tcp(LEFT, HOST, 81), False),
        (
            HOSTS + policy(PRE + IN) + policy(DENY, "pod == 'p00'").replace("name: p", "name: q"),
            tcp(LEFT, ONE),
            False,
        ),
        (
            HOSTS + policy(PRE + IN) + policy(FORWARD + DENY).replace("name: p", "name: q"),
            tcp(LEFT, ONE),
            True,
        ),
        (HOSTS + policy(PRE + DENY), tcp(LEFT, HOST, 443), True),
        # Forwarded: where it comes in and where it goes out, in tiers that end in a deny.
        (HOSTS + policy(FORWARD + only("Allow", "TCP", 80)), tcp(LEFT, ONE), True),
        (HOSTS + policy(FORWARD + only("Allow", "TCP", 80)), tcp(LEFT, ONE, 81), False),
        (HOSTS + policy(FORWARD + only("Allow", "TCP", 80)), tcp(ONE, LEFT, 81), True),
        (HOSTS + policy(FORWARD + "types: [Egress], egress: []"), tcp(RIGHT, LEFT), False),
        (HOSTS + policy(only("Allow", "TCP", 81)), tcp(LEFT, ONE), True),
        # What the node sends to a service is judged by where it goes.
        (HOSTS + policy("types: [Egress], egress: []"), udp(HOST, SERVICE, 53), False),
        (HOSTS + policy("types: [Egress], egress: []"), tcp(HOST, SERVICE), True),
    ],
)  # fmt: skip
def test_where_which_policy_is_asked(world: str, flow: Flow, expected: bool) -> None:
    assert answered(world, flow) is expected


def test_who_names_an_interface_has_it() -> None:
    other = HOSTS[HOSTS.index("kind: HostEndpoint") :].replace("name: h", "name: a")
    other = other.replace("interfaceName: eth0", "expectedIPs: [10.99.7.1]")
    shut = other.replace(", profiles: [open]", "")
    assert answered(HOSTS + shut, tcp(LEFT, HOST))
    assert not answered(SHUT + other, tcp(LEFT, HOST))
    assert not answered(HOSTS.replace("name: h", "name: z") + SHUT.replace("name: h", "name: b"),
                        tcp(LEFT, HOST))  # fmt: skip


def test_worlds_are_documents_that_calico_accepts() -> None:
    for number in range(WORLDS):
        for document in node_site.world_of(1, number).documents:
            resource = defaults.apply_defaults(codec.resource_from_tree(document, strict=True))
            assert validate.problems(resource) == [], document


def test_every_stage_is_met_by_packets() -> None:
    """As many verdicts change as prove that it would be noticed, were a stage taken for another."""
    mistakes = {
        "doNotTrack": drop(POLICIES, "doNotTrack"),
        "preDNAT": drop(POLICIES, "preDNAT"),
        "applyOnForward": drop(POLICIES, "applyOnForward"),
        "host endpoints": in_kind(("HostEndpoint",), lambda spec: spec.update(interfaceName="no")),
        "profiles": drop(("HostEndpoint",), "profiles"),
    }
    tried, changed = node_site.every(), Counter[str]()
    for number in range(WORLDS):
        if not FULL and number and min(changed[name] for name in mistakes) >= ENOUGH:
            break
        world = node_site.world_of(2, number)
        way = Way(world.documents, SITE)
        truth = list(map(way.answered, tried))
        for name, mistake in mistakes.items():
            if not FULL and changed[name] >= ENOUGH:
                continue
            documents = copy.deepcopy(world.documents)
            mistake(documents)
            wrong = Way(documents, SITE)
            changed[name] += sum(
                wrong.answered(flow) is not yes for flow, yes in zip(tried, truth, strict=True)
            )
    assert min(changed[name] for name in mistakes) >= ENOUGH, changed
