"""Canal: flannel routes, we enforce policy; the list is that of manifests/canal.yaml.

    node1: old-1 (flannel's), web  ---- flannel.1 ----  node2: old-2 (flannel's), client, stranger

The lab has no Kubernetes, so the node's podCIDR in the list is written out as flannel has it. In
the fast tier our agents are on node1 alone, with all our pods; node2 is flannel's as it was.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
import yaml

from lab import agents, pods, stream
from lab.demo import look
from tests.migration.conftest import FULL_SIZE, Flannel

MANIFEST = Path(__file__).parents[2] / "manifests" / "canal.yaml"
FORBIDDEN = 9000
FAR = "node2" if FULL_SIZE else "node1"
"""Where client and stranger run."""
POLICY = """\
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: clients, namespace: default}
spec:
  selector: app == 'web'
  types: [Ingress]
  ingress: [{action: Allow, source: {selector: role == 'client'}}]
"""


def network_list() -> str:
    """`cni_network_config` of the manifest."""
    # The other documents are long, and a second of parsing.
    for text in MANIFEST.read_text().split("\n---\n"):
        if "cni_network_config: |-" in text:
            return str(yaml.safe_load(text)["data"]["cni_network_config"])
    raise AssertionError("canal.yaml has no calico-config")


def counted(canal: Flannel, name: str, protocol: str, figure: str) -> int:
    """What a pod's own kernel counted (`man 5 proc`, net/snmp)."""
    pod = canal.pods[name]
    text = canal.machine(pod.node).run(["cat", "/proc/net/snmp"], netns=pod.netns).stdout
    rows = [line.split() for line in text.splitlines()]
    names, figures = (row for row in rows if row[0] == f"{protocol}:")
    return int(dict(zip(names, figures, strict=True))[figure])


@pytest.fixture(scope="module")
def canal(flannel: Flannel) -> Flannel:
    """Our agents without networking beside flannel, each node with its list, and our pods."""
    before = [node.kernel() for node in flannel.flannels]
    assert '"usePodCidr"' in network_list()
    with flannel.traffic("old-1", "old-2") as seen:
        chosen = [node for node in flannel.flannels if node.name in ("node1", FAR)]
        for node in chosen:
            text = network_list().replace("usePodCidr", node.subnet)
            mtu = node.settings["FLANNEL_MTU"]
            settings = {"CNI_NETWORK_CONFIG": text, "CNI_MTU": mtu}
            flannel.install(node.machine, settings)
            agents.start(node.machine, flannel.lab.plan, {"CALICO_NETWORKING_BACKEND": "none"})
        flannel.wait_for_agents([node.machine for node in chosen])
    assert (seen.lost, seen.stream_error) == (0, ""), seen.lines
    assert before == [node.kernel() for node in flannel.flannels]
    flannel.labelled("web", "node1", {"app": "web"})
    flannel.labelled("client", FAR, {"role": "client"})
    flannel.add("stranger", FAR)
    return flannel


def test_pods_have_flannels_addresses_and_ways(canal: Flannel) -> None:
    """Addresses of the node's podCIDR, none twice; over flannel.1 all reach all, unchanged."""
    addresses = [pod.address for pod in canal.pods.values()]
    assert len(set(addresses)) == len(addresses)
    subnets = {node.name: ip_network(node.subnet) for node in canal.flannels}
    for name in ("web", "client", "stranger"):
        assert ip_address(canal.pods[name].address) in subnets[canal.pods[name].node]
    canal.connected(["web", "client"])
    canal.connected(["web", "old-2"])
    canal.connected(["old-1" if FULL_SIZE else "old-2", "stranger"])
    web, client = canal.pods["web"], canal.pods["client"]
    full = ["ping", "-n", "-c", "1", "-w", "60", "-M", "do", "-s", "1422", web.address]
    canal.machine(FAR).run(full, netns=client.netns)


def test_policy_is_enforced_in_packets(canal: Flannel) -> None:
    """Of who is not a client not one packet arrives: another of ours, or one of flannel's."""
    web = canal.pods["web"]
    canal.apply(POLICY)

    def denied() -> bool:
        # An answer that is late is none yet, but its question has arrived.
        before = counted(canal, "web", "Icmp", "InEchos")
        answered = pods.ping(canal.lab, canal.pods["stranger"], web.address, wait=0.5)
        return not answered and counted(canal, "web", "Icmp", "InEchos") == before

    canal.eventually(denied, "denied")
    counter = stream.begin(canal.machine("node1"), web.netns, "count", str(FORBIDDEN))
    names = ("stranger", "old-2", "client")
    senders = [
        stream.begin(canal.machine(pod.node), pod.netns, "send", web.address, str(FORBIDDEN), "200")
        for pod in (canal.pods[name] for name in names)
    ]
    before = {name: counted(canal, name, "Udp", "OutDatagrams") for name in names}
    canal.connected(["web", "client"])
    for name in names:
        canal.eventually(
            lambda name=name: counted(canal, name, "Udp", "OutDatagrams") > before[name] + 20,  # type: ignore[misc]
            f"{name} sends",
        )
    sent = [sender.finish()["sent"] for sender in senders]
    arrived = counter.finish()["arrived"]
    assert min(sent) > 20
    assert set(arrived) == {canal.pods["client"].address}
    assert arrived[canal.pods["client"].address] >= sent[2] * 0.9


@pytest.mark.promise("M-182")
def test_no_route_and_no_speaker_of_ours(canal: Flannel) -> None:
    """Ours are the ways to our pods on this node alone; no BGP, no tunnel, no address of a node."""
    ours = ("web", "client", "stranger")
    for node in {"node1", FAR}:
        names = {name for name in ours if canal.pods[name].node == node}
        routes = canal.text(node, "ip", "route", "show", "proto", "109").splitlines()
        found = {line.split()[0] for line in routes}
        assert found == {canal.pods[name].address for name in names}
        assert not look.processes(canal.machine(node), "calico-bgp")
        links = canal.text(node, "ip", "-o", "link")
        assert "vxlan.calico" not in links
        assert "flannel.1" in links
    for pod in [canal.pods.pop(name) for name in ours]:
        pods.remove(canal.lab, pod)
        left = canal.machine(pod.node).path(f"/var/lib/cni/networks/cbr0/{pod.address}")
        assert not left.exists()
    canal.connected()
