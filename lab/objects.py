"""The objects that an operator applies to a new lab, so that pods of all racks reach each other.

One pool, and for every node a BGP peering with the router of each of its cables. Where every node
is an AS of its own the routers carry everything, and the mesh between nodes ends. Tested in
tests/e2e/test_readme.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from lab import proc, router
from lab.cluster import Lab
from lab.status import sessions
from lab.topology import NODE_AS, Plan

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
  name: {node}-{name}
spec:
  node: {node}
  peerIP: {peer}
  asNumber: {peer_as}
"""
NO_MESH_YAML = f"""\
---
apiVersion: projectcalico.org/v3
kind: BGPConfiguration
metadata:
  name: default
spec:
  nodeToNodeMeshEnabled: false
  asNumber: {NODE_AS}
"""
ESTABLISHED_SECONDS = proc.PATIENCE


def documents(plan: Plan) -> str:
    """The pool and the peers as YAML. Pure."""
    return POOL_YAML + "".join(_peers(plan)) + ("" if _meshed(plan) else NO_MESH_YAML)


def _meshed(plan: Plan) -> bool:
    """Whether the nodes are of one AS, and peer with each other."""
    return {node.as_number for node in plan.nodes} == {NODE_AS}


def _peers(plan: Plan) -> Iterator[str]:
    for node in plan.nodes:
        for number, (_, segment) in enumerate(node.cables):
            yield PEER_YAML.format(
                node=node.name,
                name=f"top-of-rack-{number + 1}" if number else "top-of-rack",
                peer=segment.gateway,
                peer_as=plan.switch_of(segment).as_number,
            )


def apply(lab: Lab) -> None:
    """Apply the objects by calicoctl and wait for all sessions; LabError when one stays down."""
    lab.nodes[0].run(["calicoctl", "apply", "-f", "-"], stdin=documents(lab.plan).encode())
    for switch in lab.plan.switches:
        names = {name for name, _, _ in router.neighbours(lab.plan, switch)}

        def established(name: str = switch.name, peers: frozenset[str] = frozenset(names)) -> bool:
            said = lab.machine(name).run(["birdc", "show", "protocols"]).stdout
            states = router.sessions(said)
            return all(states.get(peer) == "Established" for peer in peers)

        what = f"{switch.name}: BGP sessions with {', '.join(sorted(names))}"
        proc.wait_until(established, what, timeout=ESTABLISHED_SECONDS)
    for node in lab.plan.nodes:
        count = len(node.cables) + (len(lab.plan.nodes) - 1 if _meshed(lab.plan) else 0)

        def up(name: str = node.name, expected: int = count) -> bool:
            return [*sessions(lab.machine(name)).values()] == ["Established"] * expected

        proc.wait_until(up, f"{node.name}: {count} BGP sessions", timeout=ESTABLISHED_SECONDS)
