"""Check 2: `calicoctl apply` of an IP pool and of the BGP peers to the top-of-rack."""

from __future__ import annotations

from lab.demo import look
from lab.demo.story import Story
from lab.demo.transcript import Transcript, expect
from lab.topology import ROUTER_AS

POOL = "10.65.0.0/16"
POOL_YAML = f"""\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata:
  name: pods
spec:
  cidr: {POOL}
  blockSize: 26
  ipipMode: Never
  vxlanMode: Never
  natOutgoing: true
"""
PEER_YAML = """\
---
apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata:
  name: {node}-top-of-rack
spec:
  node: {node}
  peerIP: {peer}
  asNumber: {peer_as}
"""


def documents(story: Story) -> str:
    """What an operator would write."""
    peers = (
        PEER_YAML.format(node=node.name, peer=node.segment.gateway, peer_as=ROUTER_AS)
        for node in story.lab.plan.nodes
    )
    return POOL_YAML + "".join(peers)


def check(story: Story, transcript: Transcript) -> None:
    """Apply, then read etcd."""
    lab = story.lab
    transcript.show(lab.nodes[0], ["calicoctl", "apply", "-f", "-"], stdin=documents(story))
    transcript.show(lab.nodes[0], ["calicoctl", "get", "ippools", "-o", "wide"])
    key = f"{look.RESOURCES}/ippools/pods"
    transcript.show(lab.etcd, ["etcdctl", "get", key])
    pool = look.etcd(lab, key).get(key, {}).get("spec", {})
    expect(pool.get("cidr") == POOL, f"etcd: {key}: spec.cidr should be {POOL}: {pool}")
    expect(pool.get("natOutgoing") is True, f"etcd: {key}: natOutgoing should be true: {pool}")
    for setting in ("ipipMode", "vxlanMode"):
        expect(pool.get(setting) == "Never", f"etcd: {key}: {setting} should be Never: {pool}")
    peers = look.etcd(lab, f"{look.RESOURCES}/bgppeers/")
    expect(len(peers) == len(lab.plan.nodes), f"etcd: one BGPPeer per node: {sorted(peers)}")
