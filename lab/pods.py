"""Pods of the lab: the work of kubelet and containerd around the CNI calls, and a record per pod.

A pod is a network namespace made by `ip netns add` in its node's own mount namespace, a container
id of 64 hex digits, CNI ADD, and where asked for a responder process. Its record lies in the lab's
state directory and is no Muslin object (LAB-1). Tested in tests/lab/test_pods.py.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lab import namespaces, proc, state
from lab.cluster import Lab
from lab.errors import LabError
from lab.machine import Machine
from lab.pod_containers import check_port, kill_processes, respond
from lab.runtime import LOOPBACK, PLUGIN_TIMEOUT, Json, Runtime, Sandbox

NETNS_DIRECTORY = "/var/run/netns"


@dataclass(frozen=True)
class Pod:
    """A pod that was added. `result` is the answer of the last plugin.

    `steps` holds the milliseconds of each step of its start, in order.
    """

    name: str
    namespace: str
    node: str
    container_id: str
    netns: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    ports: tuple[str, ...]
    network: Json
    result: Json
    add_milliseconds: float
    steps: Mapping[str, float] = field(default_factory=dict)
    named_ports: Mapping[str, str] = field(default_factory=dict)

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox that the runtime hands to plugins."""
        return Sandbox(
            self.container_id,
            self.netns,
            self.namespace,
            self.name,
            self.uid,
            self.labels,
            self.annotations,
            self.named_ports,
        )

    @property
    def addresses(self) -> list[str]:
        """Addresses without prefix length, in the order of the result."""
        return [entry["address"].partition("/")[0] for entry in self.result.get("ips", [])]

    @property
    def address(self) -> str:
        """The first address: the pod's IP in Kubernetes."""
        if not self.addresses:
            raise LabError(f"pod {self.namespace}/{self.name} has no address")
        return self.addresses[0]

    @property
    def title(self) -> str:
        """namespace/name"""
        return f"{self.namespace}/{self.name}"


def add(
    lab: Lab,
    name: str,
    node: str,
    *,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    ports: Sequence[str] = (),
    named_ports: Mapping[str, str] | None = None,
    prepared: Callable[[str], object] | None = None,
    uid: str = "",
    timeout: float = PLUGIN_TIMEOUT,
) -> Pod:
    """Start a pod: profiles of its namespace if absent, loopback, network, responder on `ports`.

    `named_ports` are those that the pod declares, name to `tcp:80`; nothing listens on them.
    `prepared` gets the network namespace while it is still empty. `uid`: of the Pod in an API.
    After a failure one DEL as containerd does, whose own failure hides nothing; then the error.
    """
    if record_path(lab, namespace, name).exists():
        raise LabError(f"pod {namespace}/{name} exists already")
    lab.host(node)
    for port in ports:
        check_port(port)
    machine, runtime = lab.machine(node), Runtime(lab.machine(node))
    network = runtime.network()
    namespaces.ensure(lab, namespace)
    netns = f"cni-{uuid.uuid4()}"
    clock = Clock()
    place = f"{NETNS_DIRECTORY}/{netns}"
    machine.run(["ip", "netns", "add", netns])
    clock.step("network namespace")
    sandbox = Sandbox(
        secrets.token_hex(32),
        place,
        namespace,
        name,
        uid or str(uuid.uuid4()),
        labels or {},
        annotations or {},
        named_ports or {},
    )
    try:
        if prepared is not None:
            prepared(place)
        runtime.add(LOOPBACK, sandbox, "lo")
        clock.step("CNI ADD loopback")
        answers = runtime.add(network, sandbox, timeout=timeout)
        clock.step(f"CNI ADD {', '.join(answer.plugin for answer in answers)}")
        if ports:
            respond(machine, f"{namespace}/{name}", place, ports)
            clock.step("container in the pod")
    except BaseException:
        with contextlib.suppress(LabError):
            runtime.delete(network, sandbox, timeout=timeout)
        remove_netns(machine, place)
        raise
    pod = Pod(
        name=name,
        namespace=namespace,
        node=node,
        container_id=sandbox.container_id,
        netns=place,
        uid=sandbox.uid,
        labels=sandbox.labels,
        annotations=sandbox.annotations,
        ports=tuple(ports),
        named_ports=sandbox.named_ports,
        network=network,
        result=answers[-1].result or {},
        add_milliseconds=sum(answer.milliseconds for answer in answers),
        steps=clock.steps,
    )
    write_record(lab, pod)
    return pod


class Clock:
    """Milliseconds of the steps of one pod's start."""

    def __init__(self) -> None:
        self.steps: dict[str, float] = {}
        self._last = time.perf_counter()

    def step(self, name: str) -> None:
        """A step ends now."""
        now = time.perf_counter()
        self.steps[name] = round((now - self._last) * 1000, 1)
        self._last = now


def remove(lab: Lab, pod: Pod, *, timeout: float = PLUGIN_TIMEOUT) -> float:
    """End a pod as containerd does: processes, DEL, namespace, DEL again; DEL's milliseconds."""
    machine, runtime = lab.machine(pod.node), Runtime(lab.machine(pod.node))
    kill_processes(machine, pod.netns)
    answers = runtime.delete(pod.network, pod.sandbox, timeout=timeout)
    runtime.delete(LOOPBACK, pod.sandbox, "lo", timeout=timeout)
    remove_netns(machine, pod.netns)
    runtime.delete(pod.network, pod.sandbox, netns="", timeout=timeout)
    record_path(lab, pod.namespace, pod.name).unlink(missing_ok=True)
    return sum(answer.milliseconds for answer in answers)


def remove_netns(machine: Machine, netns: str) -> None:
    """Remove a pod's namespace; nothing to do when it is gone."""
    if machine.path(netns).exists():
        kill_processes(machine, netns)
        machine.run(["ip", "netns", "delete", netns.rpartition("/")[2]])


def record_path(lab: Lab, namespace: str, name: str) -> Path:
    """The record of a pod in the lab's state directory."""
    return state.directory(lab.name) / "pods" / f"{namespace}.{name}.json"


def write_record(lab: Lab, pod: Pod) -> None:
    """Remember a pod for later commands."""
    path = record_path(lab, pod.namespace, pod.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(pod), indent=1))


def every(lab: Lab) -> list[Pod]:
    """All pods of the lab, by namespace and name."""
    directory = state.directory(lab.name) / "pods"
    if not directory.is_dir():
        return []
    return [read_record(path) for path in sorted(directory.glob("*.json"))]


def read_record(path: Path) -> Pod:
    """One pod's record."""
    raw = json.loads(path.read_text())
    return Pod(**{**raw, "ports": tuple(raw["ports"])})


def find(lab: Lab, name: str, namespace: str = "default") -> Pod:
    """A pod by name; LabError when there is none."""
    path = record_path(lab, namespace, name)
    if not path.exists():
        raise LabError(f"no pod {namespace}/{name}")
    return read_record(path)


def ping(lab: Lab, pod: Pod, address: str, *, count: int = 1, wait: float = 1.0) -> bool:
    """Whether `address` answers a ping from the pod."""
    command = ["ping", "-n", "-c", str(count), "-W", f"{wait:g}", address]
    done = lab.machine(pod.node).run(
        command, netns=pod.netns, check=False, timeout=count + wait + proc.PATIENCE
    )
    return done.returncode == 0


def answers(lab: Lab, pod: Pod, address: str, *, count: int = 1) -> bool:
    """Like `ping`, for an answer that must come: the ping is sent once, and may be late."""
    return ping(lab, pod, address, count=count, wait=proc.PATIENCE)
