"""Labs for the networks that Muslin is made for: `./run lab up --scenario NAME`.

A scenario is a topology, what an operator sets on every node, and the objects that an operator
applies afterwards, in a YAML file beside this one. What each is for, with a drawing and what one
can expect of it, is written in tests/lab_scenarios/NAME/README.md, and tested there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import cluster
from lab.cluster import Lab
from lab.errors import LabError
from lab.machine import Machine
from libcalico.process import paths

BOTH_FAMILIES = {"assign_ipv4": "true", "assign_ipv6": "true"}
ONLY_IPV6 = {"assign_ipv4": "false", "assign_ipv6": "true"}
NO_BGP = {"CALICO_NETWORKING_BACKEND": "vxlan"}


@dataclass(frozen=True)
class Scenario:
    """How a lab is made. `ipam` are settings of the CNI plugin.

    `labels` are of nodes; `reflecting` are nodes that reflect, each with its cluster id.
    """

    name: str
    says: str
    nodes: int
    topology: str = "flat"
    reflectors: int = 0
    ipv6_only: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    reflecting: Mapping[str, str] = field(default_factory=dict)
    ipam: Mapping[str, str] = field(default_factory=dict)

    @property
    def objects(self) -> Path:
        """The file that calicoctl applies."""
        return Path(__file__).with_name(f"{self.name}.yaml")


def _racks(first: int, nodes: int) -> dict[str, dict[str, str]]:
    return {f"node{n}": {"rack": "one" if n <= first else "two"} for n in range(1, nodes + 1)}


_ALL = (
    Scenario("full-mesh", "every node peers with every other", 3),
    Scenario(
        "two-racks",
        "a rack is a router and its nodes; each node is an AS and peers with its router alone",
        3,
        "tors",
        labels=_racks(2, 3),
    ),
    Scenario(
        "one-reflector",
        "no mesh; one node reflects for the others",
        3,
        labels={"node1": {"route-reflector": "true"}},
        reflecting={"node1": "244.0.0.1"},
    ),
    Scenario(
        "two-reflectors",
        "no mesh; two nodes reflect for the others",
        4,
        labels={f"node{n}": {"route-reflector": "true"} for n in (1, 2)},
        reflecting={f"node{n}": "244.0.0.1" for n in (1, 2)},
    ),
    Scenario(
        "external-reflectors",
        "no mesh; two BIRDs beside the cluster reflect for all nodes",
        2,
        reflectors=2,
    ),
    Scenario(
        "dual-tor",
        "every node has a cable to each of two routers, and uses both",
        2,
        "dual",
        environment={"IP_AUTODETECTION_METHOD": "interface=eth0"},
    ),
    Scenario(
        "loopbacks",
        "nodes are known by addresses on no link; their routers announce the ways to them",
        3,
        "loopbacks",
        labels=_racks(2, 3),
    ),
    Scenario("services", "the router learns where services are; needs an API server", 2),
    Scenario("mixed", "two pools: one in VXLAN between racks, one never", 3, "racks"),
    Scenario("host-gw", "no BGP: the ways are those of the datastore", 2, environment=NO_BGP),
    Scenario(
        "vxlan",
        "no BGP: all pods of other nodes are behind VXLAN, both families",
        2,
        "racks",
        environment={**NO_BGP, "IP6": "autodetect"},
        ipam=BOTH_FAMILIES,
    ),
    Scenario("ipv6-only", "nowhere an IPv4 address", 2, ipv6_only=True, ipam=ONLY_IPV6),
)
SCENARIOS: Mapping[str, Scenario] = {each.name: each for each in _ALL}


def find(name: str) -> Scenario:
    """A scenario by name; LabError naming all."""
    if name not in SCENARIOS:
        raise LabError(f"scenario {name!r}: allowed are {', '.join(SCENARIOS)}")
    return SCENARIOS[name]


def up(
    lab_name: str,
    name: str,
    *,
    environment: Mapping[str, str] | None = None,
    prepared: Callable[[Lab], object] | None = None,
    say: Callable[[str], None] = print,
) -> Lab:
    """Make a scenario's lab; `environment` wins over the scenario's.

    `prepared` gets the machines before anything of ours starts on them, such as to write files
    that the environment names. LabError as `cluster.up`.
    """
    chosen = find(name)
    lab = cluster.up(
        lab_name,
        nodes=chosen.nodes,
        topology=chosen.topology,
        reflectors=chosen.reflectors,
        ipv6_only=chosen.ipv6_only,
        scenario=name,
        environment={**chosen.environment, **(environment or {})},
        prepared=prepared,
        say=say,
    )
    try:
        arrange(lab, chosen)
    except BaseException:
        cluster.down(lab_name)
        raise
    say(f"{name}: {chosen.says}; expectations: tests/lab_scenarios/{name}/README.md")
    return lab


def arrange(lab: Lab, chosen: Scenario) -> None:
    """Do the work of an operator once the nodes run."""
    admin = lab.nodes[0]
    for node, labels in chosen.labels.items():
        for key, value in labels.items():
            admin.run(["calicoctl", "label", "node", node, f"{key}={value}"])
    for node, cluster_id in chosen.reflecting.items():
        patch = json.dumps({"spec": {"bgp": {"routeReflectorClusterID": cluster_id}}})
        admin.run(["calicoctl", "patch", "node", node, "-p", patch])
    admin.run(["calicoctl", "apply", "-f", "-"], stdin=chosen.objects.read_bytes())
    if chosen.ipam:
        for machine in lab.nodes:
            set_plugin(machine, ipam={"type": "calico-ipam", **chosen.ipam})


def set_plugin(node: Machine, **settings: Any) -> None:
    """Other settings for a node's CNI plugin."""
    file = node.path(paths.CNI_NET / "10-calico.conflist")
    config = json.loads(file.read_text())
    config["plugins"][0].update(settings)
    file.write_text(json.dumps(config))
