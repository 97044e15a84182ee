"""Runs inside a node of the lab: changes one policy per round and sees when the kernel has it.

The moment is taken from the kernel itself: nftables tells every committed transaction (NEWGEN) on
a netlink group, and each rule written or removed before it. After a transaction the chain of the
policy is read; the first transaction after which it says what was asked for is the one.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from libcalico import apiconfig
from libcalico.datastore import connect
from libcalico.datastore.interface import Put
from libcalico.model import NetworkPolicy, ResourceKey
from libcalico.process import paths

NETLINK_NETFILTER, GROUP_NFTABLES, SO_RCVBUFFORCE = 12, 7, 33
NEWRULE, DELRULE, NEWGEN = 0xA06, 0xA08, 0xA0F
NAMESPACE = "bench"
PODS = 10
WAIT_SECONDS = 20.0
COUNTED = (
    "felix_iptables_restore_calls",
    "felix_iptables_save_calls",
    "muslin_felix_rule_renders",
    "muslin_felix_ipset_writes",
    "muslin_felix_policy_operations",
)
Json = dict[str, Any]


def policy(number: int, port: int) -> Json:
    """Policy `number`: for one pod in ten, from one role, to one port."""
    rule = {
        "action": "Allow",
        "protocol": "TCP",
        "source": {"selector": f"role == 'r{number % 50}'"},
        "destination": {"ports": [port]},
    }
    return {
        "apiVersion": "projectcalico.org/v3",
        "kind": "NetworkPolicy",
        "metadata": {"name": f"p{number}", "namespace": NAMESPACE},
        "spec": {
            "order": number,
            "selector": f"app == 'a{number % PODS}'",
            "types": ["Ingress"],
            "ingress": [rule],
        },
    }


class Kernel:
    """A thread that notes nftables' transactions."""

    def __init__(self) -> None:
        self.link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
        self.link.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self.link.bind((0, 1 << (GROUP_NFTABLES - 1)))
        self.counts: Counter[int] = Counter()
        self.commits: list[float] = []
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        """Count messages for ever."""
        while True:
            data = self.link.recv(1 << 20)
            now = time.perf_counter()
            at = 0
            while at + 16 <= len(data):
                length, kind = struct.unpack_from("=IH", data, at)
                self.counts[kind] += 1
                if kind == NEWGEN:
                    self.commits.append(now)
                at += (length + 3) & ~3

    def quiet(self, seconds: float) -> None:
        """Wait until nothing was committed for so long."""
        while not self.commits or time.perf_counter() - self.commits[-1] < seconds:
            time.sleep(seconds / 4)


def chain_says(number: int, port: int) -> bool:
    """Whether the kernel's chain of a policy has the rule for a port."""
    command = ["iptables", "-S", f"cali-pi-np/{NAMESPACE}/p{number}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"--dports {port} " in done.stdout


def metrics() -> dict[str, float]:
    """Felix's counters."""
    url = f"http://127.0.0.1:{paths.FELIX_METRICS_PORT}/metrics"
    with urllib.request.urlopen(url, timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    found = dict(line.rsplit(" ", 1) for line in lines if line and line[0] != "#")
    return {name: float(found[f"{name}_total"]) for name in COUNTED}


def calicoctl(documents: list[Json]) -> None:
    """`calicoctl apply` of JSON, which is YAML."""
    text = "\n---\n".join(json.dumps(document) for document in documents)
    subprocess.run(["calicoctl", "apply", "-f", "-"], input=text.encode(), check=True, stdout=2)


def store(document: Json) -> Callable[[], None]:
    """A write of one policy with the library, connected beforehand."""
    spec, loop = document["spec"], asyncio.new_event_loop()
    key = ResourceKey("NetworkPolicy", document["metadata"]["name"], NAMESPACE)
    datastore = loop.run_until_complete(connect(apiconfig.from_file(paths.CALICOCTL_CONFIG)))
    entry = loop.run_until_complete(datastore.get(key))
    assert entry is not None
    assert isinstance(entry.value, NetworkPolicy)
    rule = entry.value.spec.ingress[0]
    ports = list(spec["ingress"][0]["destination"]["ports"])
    rule = replace_struct(rule, destination=replace_struct(rule.destination, ports=ports))
    value = replace_struct(entry.value, spec=replace_struct(entry.value.spec, ingress=[rule]))

    def write() -> None:
        loop.run_until_complete(datastore.commit([Put(key, value, base=entry)]))

    return write


def replace_struct(struct_: Any, **changes: Any) -> Any:
    """A changed copy."""
    from msgspec.structs import replace as changed

    return changed(struct_, **changes)


def timed(kernel: Kernel, number: int, port: int, write: Callable[[], None]) -> float:
    """Seconds from the start of `write` to the transaction that brought the rule."""
    seen = len(kernel.commits)
    begun = time.perf_counter()
    writer = threading.Thread(target=write)
    writer.start()
    while time.perf_counter() - begun < WAIT_SECONDS:
        while seen < len(kernel.commits):
            at = kernel.commits[seen]
            seen += 1
            if chain_says(number, port):
                writer.join()
                return at - begun
        time.sleep(0.001)
    raise SystemExit(f"policy p{number} is not in the kernel after {WAIT_SECONDS:g} s")


def difference(after: dict[str, float], before: dict[str, float]) -> dict[str, int]:
    """What was counted between two readings."""
    return {name: int(after[name] - before[name]) for name in after}


def main() -> None:
    """Load `policies`, then `rounds` changes by calicoctl and as many by the library."""
    policies, rounds = int(sys.argv[1]), int(sys.argv[2])
    kernel = Kernel()
    begun = time.perf_counter()
    calicoctl([policy(number, 1000 + number) for number in range(policies)])
    while not chain_says(policies - 1, 1000 + policies - 1):
        time.sleep(0.05)
    result: Json = {"load_s": time.perf_counter() - begun, "policies": policies}
    for way, ports in (("calicoctl", 30000), ("library", 40000)):
        samples: list[Json] = []
        for turn in range(-1, rounds):
            number, port = (turn * 37 + 11) % policies, ports + turn
            kernel.quiet(1.5)
            document = policy(number, port)
            before, rules = metrics(), Counter(kernel.counts)
            write = store(document) if way == "library" else partial(calicoctl, [document])
            seconds = timed(kernel, number, port, write)
            kernel.quiet(1.5)
            counted = difference(metrics(), before)
            counted["rules_written"] = kernel.counts[NEWRULE] - rules[NEWRULE]
            counted["rules_removed"] = kernel.counts[DELRULE] - rules[DELRULE]
            counted["transactions"] = kernel.counts[NEWGEN] - rules[NEWGEN]
            if turn >= 0:
                samples.append({"seconds": seconds, "operations": counted})
        result[way] = samples
    print(json.dumps(result))


if __name__ == "__main__":
    main()
