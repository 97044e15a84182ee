"""A scenario's lab with a pod on each node, and how a test looks at it: packets, routes, sessions.

What a test waits for is polled; the patience is for a machine that does other things too.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any

from lab import agents, cluster, pods, proc, router, scenarios, state, status
from lab.cluster import Lab
from lab.demo import look, traffic
from lab.errors import LabError
from lab.machine import FAST_PYTHON, PROBE, Machine
from lab.pods import Pod
from tests.support.patience import HANG

PORT = 7000
PATIENCE = HANG
SECOND_POOL = """\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: second}
spec: {cidr: 10.67.0.0/16, blockSize: 26, ipipMode: Never, vxlanMode: Never}
"""
SECOND_POOLS = {"cni.projectcalico.org/ipv4pools": '["second"]'}
"""The annotation of a pod that takes its address from there: a block that is new."""
OF_A_POD = re.compile(r"\bcali[0-9a-f]{11}\b")
Json = Mapping[str, Any]


@dataclass
class Scene:
    """The lab and its pods by name: `on-node1`, and what a test adds.

    `known` gets the name and the node of a pod before it starts; it gives the uid by which an API
    knows the pod, empty where there is none.
    """

    lab: Lab
    pods: dict[str, Pod] = field(default_factory=dict)
    known: Callable[[str, str], str] = lambda name, node: ""

    def machine(self, name: str) -> Machine:
        """A machine by name."""
        return self.lab.machine(name)

    def apply(self, text: str) -> None:
        """calicoctl apply."""
        self.lab.nodes[0].run(["calicoctl", "apply", "-f", "-"], stdin=text.encode())

    def add(self, name: str, node: str, annotations: Mapping[str, str] | None = None) -> Pod:
        """Start a pod that answers on a port."""
        ports, uid = [f"tcp:{PORT}", f"udp:{PORT}"], self.known(name, node)
        self.pods[name] = pods.add(
            self.lab, name, node, ports=ports, annotations=annotations, uid=uid
        )
        return self.pods[name]

    def disabled_pool_leaves_pods_alone(self, pool: str, vxlan: str = "Never") -> None:
        """Pods of a disabled pool keep all that leads to them; new pods get no address of it.

        Pods of a second pool show that all nodes have heard of it. Both stay.
        """
        patch = '{"spec": {"disabled": %s}}'
        command = ["calicoctl", "patch", "ippool", pool, "-p"]
        self.lab.nodes[0].run([*command, patch % "true"])
        here, there = (node.name for node in self.lab.nodes[:2])

        def refused() -> bool:
            try:
                pods.remove(self.lab, pods.add(self.lab, "late", here))
            except LabError as error:
                return "is disabled" in str(error)
            return False

        self.eventually(refused, f"{here} gives no address of {pool}")
        self.connected()
        self.apply(SECOND_POOL.replace("vxlanMode: Never", f"vxlanMode: {vxlan}"))
        for node in (here, there):
            self.add(f"second-{node}", node, SECOND_POOLS)
        self.connected()

    def on(self, node: str) -> Pod:
        """The pod that every node has."""
        return self.pods[f"on-{node}"]

    # -- waiting

    def eventually(
        self, check: Callable[[], object], what: str, patience: float = PATIENCE
    ) -> None:
        """Until it holds; AssertionError with the nodes' logs."""
        try:
            proc.wait_until(lambda: bool(check()), what, timeout=patience, every=0.1)
        except Exception as error:
            raise AssertionError(f"{error}\n{self.report()}") from error

    def report(self) -> str:
        """What an unhappy test wants to read."""
        parts = []
        for node in self.lab.nodes:
            for words in (["ip", "route"], ["ip", "-6", "route"], ["calicoctl", "node", "status"]):
                parts.append(f"--- {node.name}: {' '.join(words)}\n{self.text(node.name, *words)}")
            parts.append(f"--- {node.name}: log\n{agents.log_tail(node, 15)}")
        return "\n".join(parts)

    def text(self, machine: str, *words: str) -> str:
        """The output of a command, whatever its end."""
        done = self.machine(machine).run(list(words), check=False)
        return done.stdout + done.stderr

    # -- packets

    def reached(self, source: Pod, targets: Sequence[Pod]) -> bool:
        """Whether all addresses of the pods answer pings, and TCP shows them our own address."""
        addresses = [a for target in targets for a in target.addresses]
        command = [*FAST_PYTHON, str(PROBE), "tcp", str(PORT), "2", *addresses]
        done = self.machine(source.node).run(command, netns=source.netns, check=False)
        answers: dict[str, str] = json.loads(done.stdout or "{}")
        own = {ip_address(a).version: a for a in source.addresses}
        if answers != {a: own[ip_address(a).version] for a in addresses}:
            print(f"{source.title}: {answers}", file=sys.stderr)
            return False
        return all(pods.ping(self.lab, source, a) for a in addresses)

    def connected(self, names: Sequence[str] | None = None) -> None:
        """Every pod (of these) reaches every other, by ping and TCP, both ways."""
        chosen = [self.pods[name] for name in (names or self.pods)]
        for source in chosen:
            targets = [pod for pod in chosen if pod is not source]
            self.eventually(
                lambda source=source, targets=targets: self.reached(source, targets),  # type: ignore[misc]
                f"{source.title} reaches {', '.join(t.title for t in targets)}",
            )

    @contextmanager
    def traffic(self, one: str, other: str) -> Iterator[traffic.Traffic]:
        """Pings at 100/s both ways and a TCP stream between two pods, while the body runs."""
        with traffic.between(self.lab, self.pods[one], self.pods[other], PORT) as seen:
            yield seen

    def forwarded(self, machine: str, version: int = 4) -> int:
        """Packets that a machine has forwarded so far."""
        if version == 4:
            rows = [w.split() for w in self.text(machine, "cat", "/proc/net/snmp").splitlines()]
            names, figures = (row for row in rows if row[0] == "Ip:")
            return int(dict(zip(names, figures, strict=True))["ForwDatagrams"])
        lines = self.text(machine, "cat", "/proc/net/snmp6").splitlines()
        return int(dict(line.split() for line in lines)["Ip6OutForwDatagrams"])

    @contextmanager
    def passing(self, machine: str, one: Pod, other: Pod) -> Iterator[Callable[[], int]]:
        """Counts the packets between two pods that a machine forwards while the body runs.

        Others may pass: the last ones of connections that ended before.
        """
        node = self.machine(machine)
        both = f"{{ {one.address}, {other.address} }}"
        count = f"ip saddr {both} ip daddr {both} counter"
        hook = "type filter hook forward priority -300"
        table = f"table ip passing {{ chain counted {{ {hook}\n {count}\n }}\n}}\n"
        node.run(["nft", "-f", "-"], stdin=table.encode())

        def packets() -> int:
            listed = node.run(["nft", "list", "table", "passing"]).stdout
            found = re.search(r"packets (\d+)", listed)
            assert found
            return int(found[1])

        try:
            yield packets
        finally:
            node.run(["nft", "delete", "table", "passing"])

    # -- tables

    def block(self, pod: Pod, version: int = 4) -> str:
        """The block of a pod's address."""
        address = next(a for a in pod.addresses if ip_address(a).version == version)
        return str(ip_network(f"{address}/{26 if version == 4 else 122}", strict=False))

    def routes(self, machine: str, version: int = 4) -> list[Json]:
        """The main table."""
        text = self.machine(machine).run(["ip", f"-{version}", "-j", "route"]).stdout
        listed: list[Json] = json.loads(text or "[]")
        return listed

    def ways(self, machine: str, to: str) -> set[tuple[str, str]]:
        """The next hops of the route to exactly this network: (gateway, device)."""
        network = ip_network(to)
        word = str(network.network_address) if network.prefixlen == network.max_prefixlen else to
        found = set()
        for route in self.routes(machine, network.version):
            if route["dst"] == word and route.get("type", "unicast") == "unicast":
                for hop in route.get("nexthops", [route]):
                    found.add((str(hop.get("gateway", "")), str(hop.get("dev", ""))))
        return found

    def way_becomes(self, machine: str, to: str, *wanted: tuple[str, str]) -> None:
        """Until these, and no others, are the next hops of a machine's route."""
        try:
            self.eventually(lambda: self.ways(machine, to) == set(wanted), f"{machine} to {to}")
        except AssertionError as error:
            raise AssertionError(f"{self.ways(machine, to)}, wanted {wanted}: {error}") from error

    def own_block_ends_here(self, node: str) -> None:
        """Until a node drops what is for its pod's block and no pod has."""
        block = self.block(self.on(node))
        self.eventually(
            lambda: (
                [route.get("type") for route in self.routes(node) if route["dst"] == block]
                == ["blackhole"]
            ),
            f"{node} drops what is left of {block}",
        )

    def sessions(self, node: str) -> dict[str, str]:
        """peer -> state, as the node's own bgp tells it."""
        return status.sessions(self.machine(node))

    def sessions_are(self, node: str, *peers: str) -> None:
        """Until a node has sessions with these peers, and no others, and all are up."""
        wanted = dict.fromkeys(peers, "Established")
        self.eventually(
            lambda: self.sessions(node) == wanted,
            f"{node} has sessions with {', '.join(peers)}",
        )

    def birds_are_up(self, machine: str) -> None:
        """Until a BIRD has sessions, and all are up: its end may be the last to know."""
        self.eventually(
            lambda: set(self.birds(machine).values()) == {"Established"},
            f"all sessions of {machine} are up",
        )

    def birds(self, machine: str) -> dict[str, str]:
        """A BIRD's sessions and their states."""
        return router.sessions(self.text(machine, "birdc", "show", "protocols"))

    # -- the end

    def leave_nothing(self) -> None:
        """Remove all pods: no address, interface, rule or way of one is left, on any machine."""
        addresses = {a for pod in self.pods.values() for a in pod.addresses}
        for pod in self.pods.values():
            pods.remove(self.lab, pod)
        self.pods.clear()
        self.eventually(lambda: not self.leftovers(addresses), "nothing is left of the pods")

    def leftovers(self, addresses: set[str]) -> list[str]:
        """Where something of the pods shows. Blocks stay with their nodes, as in Calico."""
        handles = look.etcd(self.lab, f"{look.IPAM}/handle/")
        found = [handle for handle in handles if "tunnel" not in handle]
        found += look.etcd(self.lab, f"{look.RESOURCES}/workloadendpoints/")
        for name in self.lab.plan.machines:
            for words in (["ip", "-o", "link"], ["ip", "route"], ["ip", "-6", "route"]):
                for line in self.text(name, *words).splitlines():
                    if OF_A_POD.search(line) or set(line.split()) & addresses:
                        found.append(f"{name}: {line}")
        for node in self.lab.nodes:
            for words in (["iptables-save"], ["ip6tables-save"]):
                lines = self.text(node.name, *words).splitlines()
                found += [f"{node.name}: {line}" for line in lines if "cali-tw-" in line]
        if found:
            print("\n".join(found[:5]), file=sys.stderr)
        return found


def say(text: str) -> None:
    """Progress into the captured output."""
    print(text, file=sys.stderr)


def label(name: str) -> str:
    """A lab's name that no other test run on this machine uses."""
    return f"{name[:8].strip('-')}{os.getpid()}"


@contextmanager
def scene(
    name: str,
    environment: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    prepared: Callable[[Lab], object] | None = None,
    known: Callable[[str, str], str] = lambda name, node: "",
) -> Iterator[Scene]:
    """A scenario with a pod on each node, taken down afterwards.

    `prepared` gets the machines before anything of ours starts on them; `known`: as in `Scene`.
    """
    up = scenarios.up(label(name), name, environment=environment, prepared=prepared, say=say)
    made = Scene(up, known=known)
    try:
        for node in made.lab.plan.nodes:
            made.add(f"on-{node.name}", node.name, annotations)
        yield made
    except BaseException:
        say(made.report())
        raise
    finally:
        cluster.down(made.lab.name)
        left = [path.name for path in state.NETNS.glob(f"{made.lab.name}-*")]
        assert not left, left
