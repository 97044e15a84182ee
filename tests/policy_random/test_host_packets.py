"""Random policies on a node with host endpoints: every kind of packet, against the oracle.

What the node receives, sends and forwards meets doNotTrack, preDNAT, forward and normal policy, and
what it forwards to and from workloads meets theirs as well. Both legs count: a flow gets through
when its answer comes back. Replay a set with `MUSLIN_POLICY_SEED=S MUSLIN_POLICY_SETS=FIRST:LAST`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.felix.in_kernel import BACKENDS
from tests.policy_random import node_site
from tests.policy_random.node_site import NodeSite
from tests.policy_random.oracle_way import Way

FULL = bool(os.environ.get("MUSLIN_FULL_SIZE"))
SEED = int(os.environ.get("MUSLIN_POLICY_SEED", "87"))
SETS = os.environ.get("MUSLIN_POLICY_SETS", "0:60")
# In the fast tier each back end meets sets of its own.
FAST_SETS = {"nft": "0:2", "nftables": "2:4"}
EVIDENCE = Path(__file__).parent.parent.parent / ".test-results"


@pytest.fixture(scope="module", params=BACKENDS)
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NodeSite]:
    """One node, two neighbours, two workloads."""
    with node_site.node_site(tmp_path_factory.mktemp("site"), request.param) as made:
        yield made


@pytest.mark.promise("M-116", "F-85", "F-86", "F-87")
def test_real_packets_agree_with_the_oracle(
    site: NodeSite, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    named = FULL or "MUSLIN_POLICY_SETS" in os.environ
    text = SETS if named else FAST_SETS[request.node.callspec.params["site"]]
    first, last = map(int, text.split(":"))
    tried = node_site.every()
    wrong = []
    began = time.monotonic()
    sent = 0
    for number in range(first, last):
        world = node_site.world_of(SEED, number)
        site.become(world)
        found = site.differences(world, tried)
        way = Way(world.documents, node_site.SITE)
        sent += sum(map(way.answered, tried))
        if found:
            place = EVIDENCE / f"host-policy-{SEED}-{number}"
            place.mkdir(parents=True, exist_ok=True)
            (place / "world.yaml").write_text(world.yaml)
            (place / "rules").write_text("".join(site.rules().values()))
            wrong.append(f"seed {SEED} set {number}: {len(found)} of {len(tried)}, see {place}")
            wrong += [f"  oracle {'allows' if yes else 'denies'} {flow}" for flow, yes in found[:5]]
    with capsys.disabled():
        seconds = time.monotonic() - began
        print(
            f"\nseed {SEED}, sets {first} to {last - 1}: {len(tried)} packets each, "
            f"{sent} got through, later looks: {dict(site.late)}, {seconds:.1f} s"
        )
    assert not wrong, "\n".join(wrong)
    assert len(tried) * (last - first) * 0.1 < sent < len(tried) * (last - first) * 0.9
