"""A node for the daemon's tests: a network namespace, a real etcd in it, the real executable.

    async with node.daemon() as daemon:
        done = await node.add(pod, "web-1")

The test's thread is inside the node's namespace, and with it the daemon (in the test's own
loop, so that a test can look into it) and the executable. Pods are further namespaces.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from cni.node.daemon_context import Settings
from cni.server.daemon import Daemon
from libcalico.clusterinfo import ensure_initialized
from libcalico.datastore.etcd.store import EtcdDatastore
from libcalico.datastore.interface import Datastore, Put
from libcalico.local.framing import Connection
from libcalico.local.listening import UnixServer, serve_unix
from libcalico.local.node_api import Await, Hello, InForce, Offer, Retract, Unreleased
from libcalico.model import IPPool, IPPoolSpec, Metadata, Node, ResourceKey
from libcalico.model.resources.node import NodeBGPSpec, NodeSpec
from tests.cni.executable import BUILDS, Done
from tests.felix.launch import launched
from tests.support import stopping
from tests.support.etcd import Etcd
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import HANG, patient, until

NODE = "node1"
HERE = Node(
    metadata=Metadata(name=NODE), spec=NodeSpec(bgp=NodeBGPSpec(ipv4Address="10.99.1.1/24"))
)
NETWORK = "k8s-pod-network"
CIDR4, CIDR6 = "10.65.0.0/24", "fd65::/112"
WAITS: dict[str, Any] = {"policy_setup_timeout_seconds": 60}
"""An ADD that waits for felix as long as the executable lives."""
Beside = Callable[[str, Mapping[str, str], bytes], Callable[[Done | None], None]]


@dataclasses.dataclass
class Felix:
    """A running felix."""

    process: subprocess.Popen[bytes]
    socket: Path

    def pause(self) -> None:
        """SIGSTOP: connections stay, nothing is programmed and nothing answered."""
        stopping.pause(self.process.pid)

    def resume(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)


class World:
    """One node; made by `node_world`."""

    def __init__(self, space: Namespace, etcd: Etcd, folder: Path) -> None:
        self.space, self.etcd, self.folder = space, etcd, folder
        self.plugins = "/opt/cni/bin"
        self.build = BUILDS[0]
        self.beside: Beside | None = None
        """Makes each call of the executable once more, in a way of its own, and compares."""
        self.settings = Settings(
            nodename_file=folder / "nodename",
            mtu_file=folder / "mtu",
            socket=folder / "private" / "cni.sock",
            felix_socket=folder / "private" / "node.sock",
            pending=folder / "pending",
            attachments=folder / "attachments",
            status=folder / "status",
            health_host="127.0.0.1",
            health_port=0,
            # What comes is waited for; a test of what does not come says `hurried`.
            datastore_seconds=HANG,
            release_seconds=HANG,
            check_seconds=HANG,
        )
        self.settings.nodename_file.write_text(NODE + "\n")

    async def prepare(self, store: Datastore) -> None:
        """What node start-up and an operator write: cluster information, node, pools."""
        await ensure_initialized(store, "k8s,bgp")
        await put_pool(store, "pool4", CIDR4, 28)
        await put_pool(store, "pool6", CIDR6, 124)
        await store.commit([Put(ResourceKey("Node", NODE), HERE)])

    @asynccontextmanager
    async def daemon(
        self,
        *,
        prepare: bool = True,
        timeout: float = HANG,
        node: str = NODE,
        more: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> AsyncIterator[Daemon]:
        """A serving daemon that has read the datastore, where one runs; `more`: its arguments."""
        chosen = changed(self.settings, **settings)
        async with self.etcd.connect(timeout) as store:
            if prepare:
                await self.prepare(store)
            daemon = Daemon(store, node, chosen, **(more or {}))
            task = asyncio.create_task(daemon.run())
            try:
                await until(lambda: self.settings.socket.exists() or task.done())
                if self.etcd.running:
                    await until(lambda: daemon.context.cluster.in_sync or task.done())
                yield daemon
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                self.settings.socket.unlink(missing_ok=True)

    async def add(self, pod: Namespace, name: str = "web-1", **options: Any) -> Done:
        """CNI ADD of `name` by the real executable."""
        return await self.cni("ADD", pod, name, **options)

    async def delete(self, pod: Namespace | None, name: str = "web-1", **options: Any) -> Done:
        """CNI DEL."""
        return await self.cni("DEL", pod, name, **options)

    async def check(
        self,
        pod: Namespace | None,
        previous: Mapping[str, Any],
        name: str = "web-1",
        **options: Any,
    ) -> Done:
        """CNI CHECK; `previous` is the result of the ADD."""
        config = {
            "cniVersion": previous["cniVersion"],
            "prevResult": previous,
            **options.pop("config", {}),
        }
        return await self.cni("CHECK", pod, name, config=config, **options)

    @asynccontextmanager
    async def felix(self) -> AsyncIterator[Felix]:
        """The real felix on this node; give the daemon `felix_socket=felix.socket`."""
        felix = start_felix(self)
        try:
            await until(lambda: felix.socket.exists() or felix.process.poll() is not None)
            yield felix
        finally:
            felix.resume()
            felix.process.kill()
            felix.process.wait()
            felix.socket.unlink(missing_ok=True)

    async def cni(
        self,
        command: str,
        pod: Namespace | None,
        name: str,
        *,
        container: str = "",
        ifname: str = "eth0",
        config: Mapping[str, Any] | None = None,
        namespace: str = "default",
        plugin: str | Path = "calico",
        **more: str,
    ) -> Done:
        """One call of the real executable, or of another plugin; `more` goes to its environment."""
        env = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": container or container_id(name),
            "CNI_NETNS": str(pod.path) if pod else "",
            "CNI_IFNAME": ifname,
            "CNI_PATH": self.plugins,
            "CNI_CALICO_SOCKET": str(self.settings.socket),
            "CNI_CALICO_PENDING": str(self.settings.pending),
        }
        if name:
            env["CNI_ARGS"] = (
                f"IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};"
                f"K8S_POD_INFRA_CONTAINER_ID={env['CNI_CONTAINERID']}"
            )
        env |= more
        stdin = json.dumps(network_config(config)).encode()
        ours = str(plugin) in ("calico", "calico-ipam")
        compare = self.beside(str(plugin), env, stdin) if self.beside and ours else None
        process = await asyncio.create_subprocess_exec(
            self.build.plugin(str(plugin)) if ours else plugin,
            env=env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(patient(60)):
                out, err = await process.communicate(stdin)
        finally:
            if process.returncode is None:
                process.kill()
        done = Done(process.returncode or 0, out, err.decode())
        if compare is not None:
            compare(done)
        return done

    def stored(self, prefix: str) -> dict[str, Any]:
        """Decoded values of all keys with a prefix."""
        out = self.etcd.ctl("get", "--prefix", prefix).decode().splitlines()
        return {key: json.loads(value) for key, value in zip(out[::2], out[1::2], strict=True)}

    def endpoints(self) -> dict[str, Any]:
        """The stored endpoints, by name."""
        found = self.stored("/calico/resources/v3/projectcalico.org/workloadendpoints/")
        return {key.rpartition("/")[2]: value for key, value in found.items()}

    def handles(self) -> dict[str, Any]:
        """The stored handles, by id."""
        found = self.stored("/calico/ipam/v2/handle/")
        return {key.rpartition("/")[2]: value for key, value in found.items()}

    def in_use(self) -> int:
        """How many addresses are allocated in all blocks."""
        found = self.stored("/calico/ipam/v2/assignment/")
        return sum(1 for b in found.values() for index in b["allocations"] if index is not None)

    def links(self) -> list[str]:
        """The cali interfaces of the node."""
        found = json.loads(self.space.run("ip", "-j", "link"))
        return sorted(link["ifname"] for link in found if link["ifname"].startswith("cali"))

    def assert_clean(self) -> None:
        """Nothing of any pod is left."""
        assert self.left() == ({}, {}, 0, [])

    async def becomes_clean(self) -> None:
        """Nothing of any pod is left, once what is under way has ended."""
        await until(lambda: self.left() == ({}, {}, 0, []))

    def left(self) -> tuple[dict[str, Any], dict[str, Any], int, list[str]]:
        """What there is of pods: endpoints, handles, addresses in use, links."""
        return self.endpoints(), self.handles(), self.in_use(), self.links()


@contextmanager
def hurried(daemon: Daemon, timeout: float, **settings: float) -> Iterator[None]:
    """Meanwhile the daemon soon gives up what it waits for: for tests of what does not come.

    `timeout`: of one call to etcd, in seconds.
    """
    context, store = daemon.context, daemon.context.store
    assert isinstance(store, EtcdDatastore)
    connection = store._connection
    before = context.settings, connection._config
    context.settings = changed(context.settings, **settings)
    connection._config = dataclasses.replace(connection._config, timeout=timeout)
    try:
        yield
    finally:
        context.settings, connection._config = before


def start_felix(node: World, **settings: str) -> Felix:
    """Starts it in the node, with a /run of its own; `settings` are environment variables."""
    run = node.folder / "run"
    run.mkdir(exist_ok=True)
    with (node.folder / "felix.log").open("ab") as log:
        process = subprocess.Popen(
            node.space.command(*launched(run, sys.executable, "-m", "felix.main")),
            env={
                "PATH": os.environ["PATH"],
                "NODENAME": NODE,
                **node.etcd.environment(),
                "FELIX_IPTABLESREFRESHINTERVAL": "5",
                "FELIX_HEALTHENABLED": "false",
                "FELIX_IPTABLESBACKEND": "NFT",
                "FELIX_DEFAULTENDPOINTTOHOSTACTION": "RETURN",
                **settings,
            },
            stdout=log,
            stderr=log,
        )
    return Felix(process, run / "calico" / "private" / "node.sock")


def changed(settings: Settings, **changes: Any) -> Settings:
    """A copy of the settings with changes."""
    return dataclasses.replace(settings, **changes)


def container_id(name: str) -> str:
    """A container id as containerd makes them, from a name."""
    return hashlib.sha256(name.encode()).hexdigest()


def network_config(changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The plugin's configuration; no wait for felix unless asked."""
    return {
        "cniVersion": "1.0.0",
        "name": NETWORK,
        "type": "calico",
        "ipam": {"type": "calico-ipam"},
        "policy": {"type": "k8s"},
        "policy_setup_timeout_seconds": 0,
        **(changes or {}),
    }


async def put_pool(store: Datastore, name: str, cidr: str, size: int, **spec: Any) -> None:
    """Write an IP pool, whatever was there."""
    pool = IPPool(
        metadata=Metadata(name=name),
        spec=IPPoolSpec(cidr=cidr, blockSize=size, nodeSelector="all()", **spec),
    )
    await store.commit([Put(ResourceKey("IPPool", name), pool)])


def result_of(done: Done) -> dict[str, Any]:
    """The result of a successful call."""
    assert done.status == 0, done
    return dict(json.loads(done.stdout))


@contextmanager
def pod_namespace(label: str = "pod") -> Iterator[Namespace]:
    """A pod's namespace as containerd makes one: loopback up."""
    with network_namespace(label) as space:
        yield space


@contextmanager
def node_world(folder: Path) -> Iterator[World]:
    """A node with an etcd inside; the calling thread is inside until the end."""
    with network_namespace("node") as space:
        space.run("ip", "link", "add", "uplink", "type", "veth", "peer", "name", "fabric")
        space.run("ip", "link", "set", "fabric", "up")
        space.run("ip", "address", "add", "10.99.1.1/24", "dev", "uplink")
        space.run("ip", "link", "set", "uplink", "up")
        # As felix does at its start; a namespace begins with what its host happens to have.
        space.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        with space.entered():
            # gRPC's threads end with its last channel; one that an exception still holds would
            # keep them, and with them the next connection, in the namespace of the last test.
            gc.collect()
            etcd = Etcd(folder / "etcd").start()
            try:
                yield World(space, etcd, folder)
            finally:
                etcd.stop()


class FelixPeer:
    """The other end of node.sock, as far as an ADD needs it.

    `hold` keeps the answers back, `error` answers with a refusal; `routes` are left to who wires
    the pod itself. A test of the real felix stands in tests/e2e; this one can be told to misbehave.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.messages: list[Any] = []
        self.hold = False
        self.error = ""
        self.routes: list[str] = []
        self._server: UnixServer | None = None
        self._connection: Connection | None = None
        self.connected = False

    async def __aenter__(self) -> FelixPeer:
        self._server = await serve_unix(self.path, self._serve, hello=Hello("felix"))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        await self._server.close()

    async def _serve(self, connection: Connection) -> None:
        self.connected = True
        async for message in connection:
            self.messages.append(message)
            self._connection = connection
            if isinstance(message, Await) and not self.hold:
                await self.answer(message)

    async def answer(self, asked: Await) -> None:
        """The endpoint is in force, or `error` says why not."""
        assert self._connection
        subject = (asked.namespace, asked.name, asked.container_id)
        left = self.routes if asked.wired else []
        await self._connection.send(InForce(*subject, self.error, asked.number, left))

    def awaits(self) -> list[Await]:
        """What was asked."""
        return [message for message in self.messages if isinstance(message, Await)]

    def offers(self) -> list[Offer]:
        """What was offered."""
        return [message for message in self.messages if isinstance(message, Offer)]

    def unreleased(self) -> list[str] | None:
        """The containers whose release was last said to wait."""
        told = [message for message in self.messages if isinstance(message, Unreleased)]
        return told[-1].containers if told else None

    def retractions(self) -> list[Retract]:
        """What was taken back."""
        return [message for message in self.messages if isinstance(message, Retract)]
