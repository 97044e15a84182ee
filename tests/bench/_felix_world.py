"""What `./run bench felix` measures in: a node, its felix, and ears at the kernel.

110 endpoints (interfaces with nobody behind: a route needs no more), 100 policies that select all;
each allows one port to whoever has its label: a network set, and endpoints that are given it.
Moments are the kernel's own: a change of rules is told on a netlink group, a set is read over
and over.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from felix.dataplane.rules.nftables import open_sets
from linux.ipset import IPSets
from linux.nftables import NamedSets
from tests.felix.in_kernel import NFTABLES, mode
from tests.felix.world import HEALTH_PORT, METRICS_PORT, NODE, RESOURCES, World, make_world

Json = dict[str, Any]
T = TypeVar("T")
NETLINK_NETFILTER, GROUP_NFTABLES, SO_RCVBUFFORCE = 12, 7, 33
NEWRULE, NEWGEN, RULE_CHAIN = 0xA06, 0xA0F, 2
WAIT_SECONDS = 30.0
QUIET = {
    "FELIX_IPTABLESREFRESHINTERVAL": "600",
    "FELIX_NFTABLESREFRESHINTERVAL": "600",
    "FELIX_IPSETSREFRESHINTERVAL": "600",
    "FELIX_ROUTEREFRESHINTERVAL": "600",
}


def soon(check: Callable[[], T | None], pause: float = 0.0005, what: str = "") -> T:
    """The first result that is true, looked for almost without a pause."""
    deadline = time.perf_counter() + WAIT_SECONDS
    while time.perf_counter() < deadline:
        found = check()
        if found:
            return found
        time.sleep(pause)
    raise SystemExit(f"not within {WAIT_SECONDS:g} s: {what}")


class Store:
    """Writes to etcd by its JSON gateway, on one connection: about a millisecond each."""

    def __init__(self, endpoint: str) -> None:
        self._server = http.client.HTTPConnection(endpoint.removeprefix("http://"))

    def put(self, key: str, value: bytes) -> None:
        """Write one key."""
        self._ask("put", key=key.encode(), value=value)

    def delete(self, plural: str, name: str) -> None:
        """Delete a resource without a namespace."""
        self._ask("deleterange", key=f"{RESOURCES}/{plural}/{name}".encode())

    def _ask(self, what: str, **fields: bytes) -> None:
        body = {name: base64.b64encode(text).decode() for name, text in fields.items()}
        self._server.request("POST", f"/v3/kv/{what}", json.dumps(body))
        answer = self._server.getresponse()
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"etcd refused a write: {answer.status}")

    def object(self, plural: str, kind: str, name: str, spec: Json, **metadata: Any) -> None:
        """Write a resource."""
        value = {
            "kind": kind,
            "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": name, "uid": "u", **metadata},
            "spec": spec,
        }
        place = (RESOURCES, plural, metadata.get("namespace", ""), name)
        self.put("/".join(filter(None, place)), json.dumps(value).encode())


class RuleEar:
    """When the kernel last committed rules of each chain, by its own word."""

    def __init__(self) -> None:
        self._link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
        self._link.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self._link.bind((0, 1 << (GROUP_NFTABLES - 1)))
        self.changed: dict[str, float] = {}
        self.commits = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        touched: set[str] = set()
        while True:
            data = self._link.recv(1 << 20)
            now = time.perf_counter()
            at = 0
            while at + 16 <= len(data):
                length, kind = struct.unpack_from("=IH", data, at)
                if kind == NEWRULE:
                    touched.add(_chain(data[at + 20 : at + length]))
                elif kind == NEWGEN:
                    self.changed.update(dict.fromkeys(touched, now))
                    touched.clear()
                    self.commits += 1
                at += (length + 3) & ~3

    def after(self, chain: str, begun: float) -> float:
        """The moment of the first change of this chain that is seen after `begun`."""
        return soon(lambda: _later(self.changed.get(chain, 0.0), begun), what=chain)


def _later(at: float, begun: float) -> float | None:
    return at if at > begun else None


def _chain(attributes: bytes) -> str:
    at = 0
    while at + 4 <= len(attributes):
        length, kind = struct.unpack_from("=HH", attributes, at)
        if kind & 0x3FFF == RULE_CHAIN:
            return attributes[at + 4 : at + length].rstrip(b"\0").decode()
        at += (length + 3) & ~3
    return ""


class Bench:
    """A loaded node on one back end."""

    def __init__(self, world: World, backend: str, endpoints: int, policies: int) -> None:
        self.world, self.backend = world, backend
        self.endpoints, self.policies = endpoints, policies
        self.store = Store(world.etcd.endpoint)
        self.sets: IPSets | NamedSets = open_sets({4}) if backend == NFTABLES else IPSets()
        self._set_names: dict[int, str] = {}
        self._numbers = iter(range(1, 1 << 30))

    # -- objects -----------------------------------------------------------------------------

    def load(self) -> None:
        """Everything, before felix starts."""
        lines = [
            f"link add cali{n:04d} type veth peer name far{n:04d}\n"
            f"link set cali{n:04d} up\nlink set far{n:04d} up"
            for n in range(self.endpoints)
        ]
        self.world.node.run("ip", "-batch", "-", input="\n".join(lines))
        for number in range(self.endpoints):
            self.put_endpoint(number)
        for number in range(self.policies):
            self.put_set(number, [])
            self.put_policy(number, 1000 + number)

    def put_endpoint(self, number: int, net: int | None = None) -> str:
        """An endpoint, with the label of one of the policies or without; returns its address."""
        address = f"10.65.{number >> 8}.{number & 255}"
        labels = {"app": f"a{number % 10}"} | ({"net": f"n{net}"} if net is not None else {})
        spec = {
            "orchestrator": "k8s",
            "node": NODE,
            "containerID": f"{number:064x}",
            "pod": f"p{number}",
            "endpoint": "eth0",
            "ipNetworks": [f"{address}/32"],
            "profiles": ["kns.default"],
            "interfaceName": f"cali{number:04d}",
            "mac": "aa:bb:cc:dd:ee:01",
        }
        name = f"{NODE}-k8s-p{number}-eth0"
        self.store.object(
            "workloadendpoints", "WorkloadEndpoint", name, spec, namespace="default", labels=labels
        )
        return address

    def put_set(self, number: int, more: Sequence[str]) -> None:
        """The network set of a policy, with one member of its own."""
        spec = {"nets": [own_member(number), *more]}
        self.store.object(
            "globalnetworksets",
            "GlobalNetworkSet",
            f"n{number}",
            spec,
            labels={"net": f"n{number}"},
        )

    def put_policy(self, number: int, port: int) -> None:
        """A policy: whoever has its label may come to one port."""
        rule = {
            "action": "Allow",
            "protocol": "TCP",
            "source": {"selector": f"net == 'n{number}'"},
            "destination": {"ports": [port]},
        }
        spec = {"order": number, "selector": "all()", "types": ["Ingress"], "ingress": [rule]}
        self.store.object("globalnetworkpolicies", "GlobalNetworkPolicy", f"p{number}", spec)

    # -- the kernel --------------------------------------------------------------------------

    def chain(self, number: int) -> str:
        """The kernel's name of a policy's chain."""
        return f"{'filter-' if self.backend == NFTABLES else ''}cali-pi-gnp/p{number}"

    def learn_sets(self) -> None:
        """Which kernel set is which policy's: by the member that is its own."""
        owners = {own_member(number): number for number in range(self.policies)}
        for name in self.sets.names():
            if name.startswith("cali40"):
                for member in self.sets.members(name):
                    if member in owners:
                        self._set_names[owners[member]] = name

    def holds(self, number: int, member: str) -> float | None:
        """The moment of a look at a policy's set, if it has this member."""
        there = member in self.sets.members(self._set_names[number])
        return time.perf_counter() if there else None

    # -- changes: each returns the seconds from the write to the kernel ------------------------

    def change_rule(self, ear: RuleEar, number: int) -> float:
        """Another port in a rule."""
        port, begun = 20000 + next(self._numbers) % 40000, time.perf_counter()
        self.put_policy(number, port)
        return ear.after(self.chain(number), begun) - begun

    def change_set(self, number: int) -> float:
        """One more member in a network set."""
        member = f"172.{16 + number % 16}.{next(self._numbers) % 250}.7"
        if self.holds(number, member):
            self.put_set(number, [])
            soon(lambda: not self.holds(number, member))
        begun = time.perf_counter()
        self.put_set(number, [f"{member}/32"])
        return soon(lambda: self.holds(number, member), what=f"member {member}") - begun

    def change_label(self, number: int, endpoint: int) -> float:
        """A label of an endpoint, which brings its address into a set; it is taken off again."""
        begun = time.perf_counter()
        address = self.put_endpoint(endpoint, number)
        seconds = soon(lambda: self.holds(number, address), what=f"label of {address}") - begun
        self.put_endpoint(endpoint)
        soon(lambda: not self.holds(number, address), what=f"no label of {address}")
        return seconds

    # -- felix -------------------------------------------------------------------------------

    def start(self) -> float:
        """Start felix; seconds until it is ready."""
        begun = time.perf_counter()
        self.world.start_felix()
        # Who asks more often is most of what a starting felix has to do.
        soon(lambda: page("/readiness", HEALTH_PORT), 0.02, "felix is ready")
        return time.perf_counter() - begun

    def metrics(self) -> Mapping[str, float]:
        """Felix's figures."""
        text = soon(lambda: page("/metrics", METRICS_PORT), 0.01, "metrics")
        return {
            name: float(value)
            for name, value in re.findall(r"^(\w+)(?:\{.*\})? (\S+)$", text, re.M)
        }

    def writes(self) -> dict[str, int]:
        """What felix wrote since its start."""
        calls = "felix_nft_calls" if self.backend == NFTABLES else "felix_iptables_restore_calls"
        found = self.metrics()
        names = (calls, *(f"muslin_felix_{n}_writes" for n in ("route", "ipset", "link")))
        return {n: int(found.get(f"{n}_total", found.get(n, 0))) for n in names}

    def process(self) -> tuple[float, float]:
        """CPU seconds so far and resident MiB of felix."""
        assert self.world.process is not None
        folder = Path("/proc") / str(self.world.process.pid)
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        status = (folder / "status").read_text()
        resident = re.search(r"VmRSS:\s+(\d+)", status)
        assert resident is not None
        return (int(fields[11]) + int(fields[12])) / 100, int(resident.group(1)) / 1024


def own_member(number: int) -> str:
    """The member that only the set of this policy has."""
    return f"198.18.{number >> 8}.{number & 255}"


def page(path: str, port: int) -> str | None:
    """A page of felix's, None without one."""
    server = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        server.request("GET", path)
        answer = server.getresponse()
        text = answer.read().decode() or "ok"
        return text if answer.status == 200 else None
    except OSError:
        return None
    finally:
        server.close()


@contextmanager
def loaded(folder: Path, backend: str, endpoints: int, policies: int) -> Iterator[Bench]:
    """The node with its load; felix is not started. The caller is inside the node's network."""
    folder.mkdir()
    with make_world(folder) as world:
        world.environment |= {**mode(backend), **QUIET}
        world.etcd.start()
        world.write_cluster()
        bench = Bench(world, backend, endpoints, policies)
        bench.load()
        yield bench
