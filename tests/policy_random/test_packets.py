"""Random policies on real nodes: every packet kind between all pairs, against the oracle.

    node1: alpha/p00 beta/p01 gamma-x/p02  alpha/p06 ...      node2: alpha/p03 beta/p04 ...

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

FULL = bool(os.environ.get("MUSLIN_FULL_SIZE"))
SEED = int(os.environ.get("MUSLIN_POLICY_SEED", "116"))
FIRST, LAST = (
    int(part)
    for part in os.environ.get("MUSLIN_POLICY_SETS", "0:100" if FULL else "0:3").split(":")
)
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
    twelve_pods: PacketLab, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = flows.every(twelve_pods.pods)
    wrong = []
    began = time.monotonic()
    sent = 0
    for number in range(FIRST, LAST):
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
            f"\nseed {SEED}, sets {FIRST} to {LAST - 1}: {len(tried)} packets each, "
            f"{sent} got through, later looks: {dict(twelve_pods.late)}, {seconds:.1f} s"
        )
    assert not wrong, "\n".join(wrong)
    assert sent > len(tried) * (LAST - FIRST) * 0.05
