"""A whole lab: made, found again by name, taken down without a trace.

Order of `up`: record, namespaces, cables, etcd and BIRD, then all nodes at once. `down` needs
neither a complete record nor a living tool (LAB-2): processes are found by namespace, namespaces by
name. Tested in tests/lab/test_updown.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lab import agents, datastore, machine, network, proc, router, state
from lab.errors import LabError
from lab.machine import Machine
from lab.state import NETNS, State
from lab.topology import ETCD, ROUTER, Host, Plan
from lab.topology import plan as make_plan

READY_SECONDS = proc.PATIENCE
NETNS_MARK = "netns-directory-is-ours"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Lab:
    """A lab that is up."""

    state: State
    plan: Plan

    @property
    def name(self) -> str:
        """The lab's name."""
        return self.state.name

    def machine(self, name: str) -> Machine:
        """A machine by name: `router`, `etcd` or a node."""
        if name not in self.state.machines:
            raise LabError(f"no machine {name!r}; there are {', '.join(self.state.machines)}")
        return Machine(self.name, name, self.state.machines[name])

    @property
    def router(self) -> Machine:
        """The router's machine."""
        return self.machine(ROUTER)

    @property
    def etcd(self) -> Machine:
        """The datastore's machine."""
        return self.machine(ETCD)

    @property
    def nodes(self) -> list[Machine]:
        """The nodes, in order."""
        return [self.machine(node.name) for node in self.plan.nodes]

    def host(self, name: str) -> Host:
        """A node's place in the topology."""
        return self.plan.node(name)

    @property
    def kubernetes(self) -> bool:
        """Whether the nodes' datastore is a Kubernetes API: then namespaces and pods are there."""
        return self.state.environment.get("DATASTORE_TYPE") == agents.KUBERNETES

    def link(self, node: str, *, up: bool, interface: str = "eth0") -> float:
        """Plug or pull a node's rack cable; when it happened (time.monotonic)."""
        host = self.host(node)
        cables = dict(host.cables)
        if interface not in cables:
            raise LabError(f"{node} has no {interface}; there is {', '.join(cables)}")
        return network.set_cable(self.name, self.plan, host, cables[interface], up=up)


def up(
    name: str,
    *,
    nodes: int = 3,
    topology: str = "racks",
    agents_too: bool = True,
    tls: bool = False,
    reflectors: int = 0,
    ipv6_only: bool = False,
    scenario: str = "",
    environment: Mapping[str, str] | None = None,
    prepared: Callable[[Lab], object] | None = None,
    say: Say = print,
) -> Lab:
    """Make a lab. On failure what was made is taken down again and LabError says why.

    `prepared` gets the machines before anything of ours starts on them. With `tls` etcd asks every
    client for a certificate, and the nodes have one. `scenario` is only remembered;
    `lab.scenarios.up` makes one.
    """
    plan = make_plan(nodes, topology, tls=tls, reflectors=reflectors, ipv6_only=ipv6_only)
    state.check_name(name)
    with state.locked():
        try:
            lab = prepare(name, plan, environment or {}, agents_too, scenario)
            try:
                build(lab, say)
            except BaseException:
                take_down(name)
                raise
        finally:
            restore_host()
    try:
        if prepared is not None:
            prepared(lab)
        if agents_too:
            start_agents(lab, say)
    except BaseException:
        down(name)
        raise
    lab.state.ready = True
    state.save(lab.state)
    return lab


def prepare(
    name: str,
    plan: Plan,
    environment: Mapping[str, str],
    agents_too: bool,
    scenario: str = "",
) -> Lab:
    """The record of a new lab; LabError when its name is in use."""
    if state.load(name) is not None:
        raise LabError(f"lab {name!r} is already up (or left over): `lab down --lab {name}`")
    for entry in plan.machines:
        if (NETNS / machine.netns_name(name, entry)).exists():
            raise LabError(f"a network namespace {name}-{entry} exists already")
    if not NETNS.exists():
        (state.base_directory() / NETNS_MARK).touch()
    made = State(
        name,
        plan.topology,
        len(plan.nodes),
        tls=plan.tls,
        reflectors=len(plan.reflectors),
        ipv6_only=plan.ipv6_only,
        scenario=scenario,
        agents=agents_too,
        environment=dict(environment),
    )
    state.save(made)
    return Lab(made, plan)


def build(lab: Lab, say: Say) -> None:
    """Machines, cables, etcd and BIRD."""
    names = lab.plan.machines
    for name in names:
        lab.state.machines[name] = state.MachineRecord()
        state.save(lab.state)
        lab.state.machines[name] = machine.create(lab.name, name)
        state.save(lab.state)
    machines = {name: lab.machine(name) for name in names}
    network.cable(lab.plan, lab.name, machines)
    say(f"{len(names)} machines cabled: {', '.join(names)}")
    if lab.plan.tls:
        datastore.secure(lab.etcd, lab.nodes, lab.plan, state.directory(lab.name))
        lab.state.machines[ETCD].environment.update(datastore.client_environment())
        state.save(lab.state)
    datastore.start(lab.etcd, lab.plan)
    router.start_all(machines, lab.plan)
    datastore.wait(lab.etcd)
    say(f"etcd serves at {lab.plan.etcd_endpoint}, BIRD runs in router")


def start_agents(lab: Lab, say: Say) -> None:
    """Install and start Muslin on every node at once; returns when every node is ready."""

    def one(node: Machine) -> None:
        agents.install(node, lab.plan, lab.state.environment)
        started = agents.start(node, lab.plan, lab.state.environment)
        try:
            agents.wait(node, started, timeout=READY_SECONDS)
        except LabError as error:
            raise LabError(f"{error}\n--- end of {agents.LOG}:\n{agents.log_tail(node)}") from error
        say(f"{node.name} is ready")

    with ThreadPoolExecutor(max_workers=8) as pool:
        for done in [pool.submit(one, node) for node in lab.nodes]:
            done.result()


def find(name: str) -> Lab:
    """A lab that is up; LabError when there is none of that name."""
    lab_state = state.load(name)
    if lab_state is None:
        raise LabError(f"no lab {name!r} is up: `lab up --lab {name}`")
    plan = make_plan(
        lab_state.nodes,
        lab_state.topology,
        tls=lab_state.tls,
        reflectors=lab_state.reflectors,
        ipv6_only=lab_state.ipv6_only,
    )
    return Lab(lab_state, plan)


def down(name: str) -> bool:
    """Take a lab down, whole or broken; False when there was nothing."""
    with state.locked():
        try:
            return take_down(name)
        finally:
            restore_host()


def take_down(name: str) -> bool:
    """`down` for a caller that holds the lock."""
    lab_state = state.load(name)
    machines = lab_state.machines if lab_state else {}
    names = {machine.netns_name(name, entry) for entry in machines}
    existing = [NETNS / netns for netns in sorted(names) if (NETNS / netns).exists()]
    networks = [path.stat().st_ino for path in existing]
    utses = [record.uts for record in machines.values() if record.uts]
    proc.kill_all(lambda: proc.members(networks, utses, lambda pid: machine.marked(pid, name)))
    for path in existing:
        proc.run(["ip", "netns", "delete", path.name])
    shutil.rmtree(state.directory(name), ignore_errors=True)
    return lab_state is not None


def restore_host() -> None:
    """After the last lab: remove the directories that labs made, and the mount of ip(8)."""
    base = state.base_directory()
    if any(path.is_dir() for path in base.iterdir()):
        return
    if (base / NETNS_MARK).exists() and NETNS.exists() and not any(NETNS.iterdir()):
        proc.run(["umount", str(NETNS)], check=False)
        NETNS.rmdir()
    shutil.rmtree(base)
