"""`node bgp plan`, `drain` and `undrain` on a real etcd; what nodes then do: tests/bgp."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from bgp.cluster.nodes import DRAIN
from tests.calicoctl.conftest import Ctl


def document(kind: str, name: str, labels: dict[str, str] | None = None, **spec: Any) -> str:
    tree = {
        "apiVersion": "projectcalico.org/v3",
        "kind": kind,
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
    }
    return "---\n" + yaml.safe_dump(tree)


def node(number: int, labels: dict[str, str] | None = None, **bgp: Any) -> str:
    return document("Node", f"n{number}", labels, bgp={"ipv4Address": f"10.0.0.{number}/24", **bgp})


@pytest.fixture
def three(ctl: Ctl) -> Ctl:
    """Three nodes in a mesh."""
    nodes = "".join(node(number) for number in (1, 2, 3))
    assert ctl("apply", "-f", "-", stdin=nodes).code == 0
    return ctl


TOR = document("BGPPeer", "tor", peerIP="10.0.0.254", asNumber=64500, node="n2")
REFLECT = (
    document("BGPConfiguration", "default", nodeToNodeMeshEnabled=False)
    + node(3, {"rr": "yes"}, routeReflectorClusterID="224.0.0.1")
    + document("BGPPeer", "rr", nodeSelector="all()", peerSelector="rr == 'yes'")
)


@pytest.mark.promise("F-39", "PAIN-15")
def test_a_plan_names_each_session_and_stores_nothing(three: Ctl) -> None:
    done = three("node", "bgp", "plan", "-f", "-", stdin=TOR)
    assert done.out == (
        "n2:\n"
        "  added    10.0.0.254  node specific, AS 64500\n"
        "Sessions on 3 nodes: 1 added, 0 removed, 0 reset, 0 adjusted, 6 unchanged.\n"
    )
    assert three("get", "bgppeer", "-o", "json").out.count("tor") == 0
    assert three("apply", "-f", "-", stdin=TOR).code == 0
    done = three("node", "bgp", "plan", "-f", "-", stdin=TOR.replace("64500", "64501"))
    assert "  reset    10.0.0.254  node specific, AS 64501\n" in done.out
    assert "             remote_as: 64500 -> 64501\n" in done.out
    assert done.out.endswith("routes stay meanwhile (graceful restart).\n")
    done = three("node", "bgp", "plan", "--delete", "-f", "-", stdin=TOR)
    assert "  removed  10.0.0.254" in done.out
    plan = ("node", "bgp", "plan", "--exit-code", "-f", "-")
    assert three(*plan, stdin=TOR).code == 0
    assert three(*plan, "--delete", stdin=TOR).code == 2


@pytest.mark.promise("PAIN-15")
def test_from_a_mesh_to_reflectors(three: Ctl) -> None:
    done = three("node", "bgp", "plan", "-o", "json", "-f", "-", stdin=REFLECT)
    tree = json.loads(done.out)
    assert [each["node"] for each in tree["nodes"]] == ["n1", "n2", "n3"]
    changes = {
        (each["node"], one["address"]): one["change"]
        for each in tree["nodes"]
        for one in each["sessions"]
    }
    # With the node that reflects from now on the session stays: it only carries more.
    assert changes == {
        ("n1", "10.0.0.2"): "removed",
        ("n1", "10.0.0.3"): "adjusted",
        ("n2", "10.0.0.1"): "removed",
        ("n2", "10.0.0.3"): "adjusted",
        ("n3", "10.0.0.1"): "adjusted",
        ("n3", "10.0.0.2"): "adjusted",
    }


def test_what_cannot_be_planned_is_said(three: Ctl) -> None:
    done = three("node", "bgp", "plan", "-f", "-", stdin=TOR.replace("10.0.0.254", "nothing"))
    assert (done.code, done.out) == (1, "")
    assert "spec.peerIP" in done.err
    assert three("node", "bgp", "plan").code != 0


@pytest.mark.promise("F-45")
def test_drain_and_undrain(three: Ctl) -> None:
    def marks() -> dict[str, str]:
        tree = json.loads(three("get", "node", "n2", "-o", "json").out)
        found: dict[str, str] = tree["metadata"].get("annotations", {})
        return found

    before = marks()
    assert three("node", "bgp", "drain", "n2").out.startswith("n2 drains: its routes are")
    assert marks() == {**before, DRAIN: "true"}
    assert three("node", "bgp", "drain", "n2").out == "n2 drains already\n"
    assert three("node", "bgp", "undrain", "n2").out == "n2 drains no more\n"
    assert three("node", "bgp", "undrain", "n2").out == "n2 does not drain\n"
    assert marks() == before
    done = three("node", "bgp", "drain", "n9")
    assert (done.code, done.out) == (1, "")
    assert "n9" in done.err
