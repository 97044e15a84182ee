"""Check 2: `calicoctl apply` of an IP pool and of the BGP peers to the top-of-rack."""

from __future__ import annotations

from lab import objects
from lab.demo import look
from lab.demo.story import Story
from lab.demo.transcript import Transcript, expect
from lab.objects import POOL


def check(story: Story, transcript: Transcript) -> None:
    """Apply, then read etcd."""
    lab = story.lab
    text = objects.documents(lab.plan)
    transcript.show(lab.nodes[0], ["calicoctl", "apply", "-f", "-"], stdin=text)
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
