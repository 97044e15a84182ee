"""Random policies on real nodes: every packet kind between all pairs, against the oracle.

    node1: alpha/p00 beta/p01 gamma-x/p02  alpha/p06 ...      node2: alpha/p03 beta/p04 ...

And what `explain` says of what is stored, against packets: 1,000 random cases over both back ends.
Replay one set with `MUSLIN_POLICY_SEED=S MUSLIN_POLICY_SETS=FIRST:LAST`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.policy_random import flows
from tests.policy_random.generator import World, make_world
from tests.policy_random.oracle import Oracle
from tests.policy_random.packets import PacketLab, packet_lab
from tests.support.explaining import explained, is_as_certain_as_it_should_be, world_of

FULL = bool(os.environ.get("MUSLIN_FULL_SIZE"))
SEED = int(os.environ.get("MUSLIN_POLICY_SEED", "116"))
SETS = os.environ.get("MUSLIN_POLICY_SETS", "0:100")
# In the fast tier each back end meets a set of its own.
FAST_SETS = {"iptables": "0:1", "nftables": "2:3"}
EXPLAIN_SEED = 717
# A few more than counted: a sample may hold a flow twice.
EXPLAINED_SETS, EXPLAINED_FLOWS, COUNTED = (25 if FULL else 2), 22, 20
EVIDENCE = Path(__file__).parent.parent.parent / ".test-results"


@pytest.fixture(scope="module", params=["iptables", "nftables"])
def twelve_pods(request: pytest.FixtureRequest) -> Iterator[PacketLab]:
    """Two nodes, twelve pods."""
    mode = "Enabled" if request.param == "nftables" else "Disabled"
    with packet_lab(f"random{os.getpid()}", environment={"FELIX_NFTABLESMODE": mode}) as lab:
        yield lab


def evidence(lab: PacketLab, world: World) -> Path:
    """Keep what is needed to understand a mismatch; the directory."""
    place = EVIDENCE / f"policy-{world.seed}-{world.number}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "world.yaml").write_text(world.yaml)
    for node in lab.lab.nodes:
        for program in ("iptables-save", "ip6tables-save"):
            (place / f"{node.name}-{program}").write_text(node.run([program], check=False).stdout)
        (place / f"{node.name}-ipset").write_text(node.run(["ipset", "save"]).stdout)
        (place / f"{node.name}-nft").write_text(node.run(["nft", "list", "ruleset"]).stdout)
    return place


@pytest.mark.promise("M-116")
def test_real_packets_agree_with_the_oracle(
    twelve_pods: PacketLab, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    named = FULL or "MUSLIN_POLICY_SETS" in os.environ
    text = SETS if named else FAST_SETS[request.node.callspec.params["twelve_pods"]]
    first, last = map(int, text.split(":"))
    tried = flows.every(twelve_pods.pods)
    wrong = []
    began = time.monotonic()
    sent = 0
    for number in range(first, last):
        world = make_world(SEED, number, twelve_pods.pods)
        twelve_pods.become(world)
        found = twelve_pods.differences(world, tried)
        oracle = Oracle.from_yaml(world.yaml)
        sent += sum(oracle.allows(flow) for flow in tried) - sum(yes for _, yes in found)
        if found:
            wrong.append(
                f"seed {SEED} set {number}: {len(found)} of {len(tried)} packets, "
                f"evidence in {evidence(twelve_pods, world)}"
            )
            wrong += [f"  oracle {'allows' if yes else 'denies'} {flow}" for flow, yes in found[:5]]
    with capsys.disabled():
        seconds = time.monotonic() - began
        print(
            f"\nseed {SEED}, sets {first} to {last - 1}: {len(tried)} packets each, "
            f"{sent} got through, later looks: {dict(twelve_pods.late)}, {seconds:.1f} s"
        )
    assert not wrong, "\n".join(wrong)
    assert sent > len(tried) * (last - first) * 0.05


@pytest.mark.promise("F-81", "PAIN-34")
def test_explain_agrees_with_real_packets(twelve_pods: PacketLab) -> None:
    """The answers come from the stored documents alone, before a packet is sent."""
    wrong, allowed, cases = [], 0, 0
    for number in range(EXPLAINED_SETS):
        twelve_pods.become(make_world(EXPLAIN_SEED, number, twelve_pods.pods))
        asked = flows.sample(twelve_pods.pods, EXPLAINED_FLOWS, (EXPLAIN_SEED, number))
        stored = world_of(twelve_pods.stored)
        said = {flow: explained(stored, flow) for flow in asked}
        assert all(map(is_as_certain_as_it_should_be, said.values()))
        expected = {flow for flow, answer in said.items() if answer.allowed}
        wrong += [
            f"set {number}: explain says {said[flow].allowed} of {flow}, {said[flow].decider}"
            for flow in twelve_pods.disagreeing(list(said), expected)
        ]
        allowed, cases = allowed + len(expected), cases + len(said)
    assert not wrong, "\n".join(wrong)
    assert cases >= EXPLAINED_SETS * COUNTED
    assert 0 < allowed < cases
