"""A small cluster for BGP tests: real `calico-bgp` processes, real etcd, real BIRD.

                 hub: br0 10.99.0.254, fd99::254; BIRD AS 64500; etcd :2379
                  |               |
          n1 10.99.0.1     n2 10.99.0.2   ...   AS 64512, `calico-bgp` each

Each node has its own network namespace, and its own /run through a bind mount in a private
mount namespace, so that processes run with their default paths. What a node's felix would
hear is collected by an `Ear` at its `node.sock`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from threading import Thread
from typing import Any

from libcalico.datastore.etcd.keys import path_of
from libcalico.local import framing, node_api
from libcalico.local.listening import serve_unix
from libcalico.model import codec
from libcalico.model.keys import AffinityKey, BlockKey, Key, ResourceKey
from libcalico.model.resources.ipam import Block, BlockAffinity
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import HANG, wait_for

HOLD = 60
"""Long enough for a machine that stands still for seconds: after a third of it ExaBGP is asked, and
after a quarter more without a word it is ended."""
ROUTER = "10.99.0.254"
ROUTER6 = "fd99::254"
PRIMARY = ("show", "route", "primary", "where", "source", "=", "RTS_BGP")
"""Chosen routes only: a node that learned a block tells it to routers outside, too."""


class Ear:
    """Stands where felix listens, and holds what it was told."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.routes: dict[str, node_api.Path] = {}
        self.complete = 0
        self.lost: list[str] = []
        """Prefixes that were withdrawn, or missing from a complete snapshot."""
        self.borrowed: dict[str, dict[str, str]] = {}
        """Block -> address -> node, as felix would say."""
        self._connections: set[framing.Connection] = set()
        self._thread = Thread(target=lambda: asyncio.run(self._listen()), daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread.start()

    async def _listen(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with await serve_unix(self.path, self._hear):
            await self._stop.wait()

    async def _hear(self, connection: framing.Connection) -> None:
        named: set[str] | None = None
        self._connections.add(connection)
        for block in self.borrowed:
            await connection.send(node_api.Borrowed(block, self.borrowed[block]))
        await connection.send(node_api.BorrowedEnd())
        try:
            await self._listen_to(connection, named)
        finally:
            self._connections.discard(connection)

    async def _listen_to(self, connection: framing.Connection, named: set[str] | None) -> None:
        async for message in connection:
            if isinstance(message, node_api.PathsBegin):
                named = set()
            elif isinstance(message, node_api.Paths):
                for path in message.updated:
                    self.routes[path.prefix] = path
                    if named is not None:
                        named.add(path.prefix)
                for prefix in message.withdrawn:
                    self.routes.pop(prefix, None)
                    self.lost.append(prefix)
            elif isinstance(message, node_api.PathsEnd) and named is not None:
                for prefix in self.routes.keys() - named:
                    del self.routes[prefix]
                    self.lost.append(prefix)
                self.complete += 1

    def lend(self, block: str, users: dict[str, str]) -> None:
        """The borrowed addresses of a block are these now."""
        assert self._loop is not None
        self.borrowed[block] = users
        asyncio.run_coroutine_threadsafe(self._lend(block), self._loop).result(HANG)

    async def _lend(self, block: str) -> None:
        for connection in self._connections:
            await connection.send(node_api.Borrowed(block, self.borrowed[block]))

    @property
    def table(self) -> dict[str, tuple[str, ...]]:
        """Prefix -> next hops."""
        return {prefix: tuple(path.next_hops) for prefix, path in dict(self.routes).items()}

    def close(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._loop = None
        self._thread.join(HANG)


@dataclass
class Node:
    """One node of ours."""

    number: int
    name: str
    space: Namespace
    run: Path
    ear: Ear
    log: Path
    process: subprocess.Popen[bytes] | None = None
    environ: dict[str, str] = field(default_factory=dict)
    """More variables for `calico-bgp`."""

    @property
    def address(self) -> str:
        return f"10.99.0.{self.number}"

    @property
    def address6(self) -> str:
        return f"fd99::{self.number}"

    def start(self) -> None:
        """Start `calico-bgp` in the node's namespaces."""
        environment = {
            "PATH": os.environ["PATH"],
            "NODENAME": self.name,
            "DATASTORE_TYPE": "etcdv3",
            "ETCD_ENDPOINTS": f"http://{ROUTER}:2379",
            "CALICO_BGP_HOLD_TIME": str(HOLD),
            "CALICO_LOG_LEVEL": "DEBUG",
            "no_proxy": "*",
            **self.environ,
        }
        script = 'mount --bind "$0" /run && exec "$@"'
        command = self.space.command(
            *("unshare", "--mount", "--propagation", "private"),
            *("sh", "-c", script, str(self.run), sys.executable, "-m", "bgp.main"),
        )
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Signal `calico-bgp` and wait for its end."""
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(HANG)

    @property
    def status(self) -> dict[str, Any]:
        """The status file of the running process, or nothing yet."""
        try:
            found: dict[str, Any] = json.loads((self.run / "calico/status/bgp.json").read_bytes())
        except OSError:
            return {}
        same = self.process is not None and found.get("pid") == self.process.pid
        return found if same else {}

    def peers(self) -> dict[str, dict[str, Any]]:
        """The peers of the status file by address."""
        return {peer["address"]: peer for peer in self.status.get("peers", [])}

    def up(self, *addresses: str) -> bool:
        """Whether exactly these peers are configured, and Established."""
        peers = self.peers()
        return set(peers) == set(addresses) and all(
            peer["info"] == "Established" for peer in peers.values()
        )

    def get(self, page: str) -> str:
        """A page of the health server; nothing if it is not 200."""
        url = f"http://localhost:9097/{page}"
        return self.space.run("curl", "-sf", "--noproxy", "*", url, check=False)

    def exabgp(self) -> list[int]:
        """The process id of ExaBGP on this node, where it runs."""
        found = []
        for pid in self.space.run("sh", "-c", f"ip netns pids {self.space.name}").split():
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
                if line.startswith(b"exabgp"):
                    found.append(int(pid))
        return found


@dataclass
class World:
    """Everything, and the handles to change it."""

    hub: Namespace
    directory: Path
    nodes: dict[str, Node] = field(default_factory=dict)
    bird: subprocess.Popen[bytes] | None = None
    etcd: subprocess.Popen[bytes] | None = None
    secret: str = ""
    """BIRD's password for every session; none by default."""

    # -- datastore

    def start_etcd(self) -> None:
        """Start etcd, on the data of an earlier one if there was."""
        self.etcd = _etcd(self)

    def kill_etcd(self) -> None:
        _end(self.etcd)

    def etcdctl(self, *arguments: str, input: str | None = None) -> str:
        endpoint = f"--endpoints=http://{ROUTER}:2379"
        return self.hub.run("env", "ETCDCTL_API=3", "etcdctl", endpoint, *arguments, input=input)

    def put(self, key: Key, value: Any) -> None:
        """Write a typed object, from outside."""
        self.etcdctl("put", path_of(key), input=codec.encode_value(key, value).decode())

    def delete(self, key: Key) -> None:
        self.etcdctl("del", path_of(key))

    def apply(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        """Write a v3 resource."""
        tree = {
            "kind": kind,
            "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": name},
            "spec": spec,
        }
        self.put(ResourceKey(kind, name), codec.resource_from_tree(tree))

    def block(self, node: str, cidr: str, state: str = "confirmed") -> None:
        """Give a node a block."""
        network = ip_network(cidr)
        size = min(network.num_addresses, 64)
        block = Block(cidr=cidr, affinity=f"host:{node}", allocations=[None] * size)
        self.put(BlockKey(network), block)
        self.put(AffinityKey(node, network), BlockAffinity(state=state))

    def lend(self, cidr: str, users: dict[int, str]) -> None:
        """These addresses of a block are used on other nodes than its owner's, felix says."""
        network = ip_network(cidr)
        for node in self.nodes.values():
            node.ear.lend(cidr, {str(network[n]): user for n, user in users.items()})

    def unblock(self, node: str, cidr: str) -> None:
        """Take a block away."""
        network = ip_network(cidr)
        self.delete(AffinityKey(node, network))
        self.delete(BlockKey(network))

    def register(self, node: Node, *, ipv6: bool = False) -> None:
        """Write the Node resource, as node start-up does."""
        bgp = {"ipv4Address": f"{node.address}/24"}
        if ipv6:
            bgp["ipv6Address"] = f"{node.address6}/64"
        self.apply("Node", node.name, {"bgp": bgp})

    def peer_with_router(self, name: str = "tor", **more: Any) -> None:
        """A global peer: the router."""
        self.apply("BGPPeer", name, {"peerIP": ROUTER, "asNumber": 64500, **more})

    # -- BIRD

    def start_bird(self, *protocols: str, recover: bool = False) -> None:
        """Start BIRD with one BGP protocol for each node and these more."""
        (self.directory / "bird.conf").write_text(bird_configuration(self, protocols))
        command = ["bird", "-f", "-c", str(self.directory / "bird.conf")]
        command += ["-s", str(self.directory / "bird.ctl"), *(["-R"] if recover else [])]
        with (self.directory / "bird.log").open("ab") as log:
            self.bird = subprocess.Popen(self.hub.command(*command), stdout=log, stderr=log)
        wait_for(lambda: "router" in self.birdc("show", "status").lower(), "birdc answers")

    def birdc(self, *words: str) -> str:
        socket_path = str(self.directory / "bird.ctl")
        return self.hub.run("birdc", "-s", socket_path, *words, check=False)

    def bird_routes(self) -> dict[str, set[str]]:
        """Prefix -> next hops of BIRD's BGP routes."""
        table: dict[str, set[str]] = {}
        for line in self.birdc(*PRIMARY).splitlines():
            words = line.split()
            if words and "/" in words[0]:
                prefix = words[0]
                table.setdefault(prefix, set())
            elif words[:1] == ["via"]:
                table[prefix].add(words[1])
        return table

    def kernel_routes(self) -> set[str]:
        """What BIRD has put into the hub's kernel."""
        lines = self.hub.run("ip", "route", "show", "proto", "bird").splitlines()
        lines += self.hub.run("ip", "-6", "route", "show", "proto", "bird").splitlines()
        return {line.split()[0] for line in lines if line.strip()}

    def logs(self) -> str:
        """The ends of all logs, for a failure."""
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}"
            for path in sorted(self.directory.glob("*.log"))
        )


def bird_configuration(world: World, protocols: tuple[str, ...]) -> str:
    """BIRD as a top-of-rack router: AS 64500, one static route, graceful restart."""
    password = f'password "{world.secret}";' if world.secret else ""
    text = f"""
router id {ROUTER};
graceful restart wait 4;
protocol device {{}}
protocol direct {{ ipv4; ipv6; interface "br0"; }}
protocol kernel {{ persist on; graceful restart on; ipv4 {{ export where source = RTS_BGP; }}; }}
protocol kernel {{ persist on; graceful restart on; ipv6 {{ export where source = RTS_BGP; }}; }}
protocol static tor4 {{ ipv4; route 10.200.0.0/24 unreachable; }}
protocol static tor6 {{ ipv6; route fd20::/64 unreachable; }}
template bgp common {{
    hold time {HOLD}; graceful restart on; graceful restart time 240;
    connect delay time 1; connect retry time 2; error wait time 1,3; {password}
}}
template bgp node from common {{
    local {ROUTER} as 64500;
    ipv4 {{ import all; export where source ~ [ RTS_STATIC, RTS_BGP ]; next hop self ebgp; }};
}}
template bgp node6 from common {{
    local {ROUTER6} as 64500;
    ipv6 {{ import all; export where source ~ [ RTS_STATIC, RTS_BGP ]; next hop self ebgp; }};
}}
"""
    for node in world.nodes.values():
        text += f"protocol bgp {node.name} from node {{ neighbor {node.address} as 64512; }}\n"
        text += f"protocol bgp {node.name}v6 from node6 {{ neighbor {node.address6} as 64512; }}\n"
    return text + "\n".join(protocols)


@contextmanager
def cluster(count: int) -> Iterator[World]:
    """A world with etcd and `count` nodes; nothing started on them, BIRD neither."""
    directory = Path(tempfile.mkdtemp(prefix="mbgp"))
    directory.chmod(0o755)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, True)
        hub = stack.enter_context(network_namespace("hub"))
        world = World(hub, directory)
        hub.run("ip", "link", "add", "br0", "type", "bridge")
        hub.run("ip", "link", "set", "br0", "up")
        hub.run("ip", "addr", "add", f"{ROUTER}/24", "dev", "br0")
        hub.run("ip", "-6", "addr", "add", f"{ROUTER6}/64", "dev", "br0", "nodad")
        for number in range(1, count + 1):
            _node(world, stack, number)
        world.start_etcd()
        try:
            yield world
        except BaseException:
            print(world.logs())
            raise
        finally:
            for node in world.nodes.values():
                _end(node.process)
            _end(world.bird)
            _end(world.etcd)


def _node(world: World, stack: ExitStack, number: int) -> None:
    space = stack.enter_context(network_namespace(f"n{number}"))
    port = f"p{number}"
    world.hub.run(
        *("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0"),
        *("netns", space.name),
    )
    world.hub.run("ip", "link", "set", port, "master", "br0", "up")
    space.run("ip", "addr", "add", f"10.99.0.{number}/24", "dev", "eth0")
    space.run("ip", "-6", "addr", "add", f"fd99::{number}/64", "dev", "eth0", "nodad")
    space.run("ip", "link", "set", "eth0", "up")
    run = world.directory / f"r{number}"
    (run / "calico").mkdir(parents=True)
    ear = Ear(run / "calico" / "private" / "node.sock")
    stack.callback(ear.close)
    name = f"n{number}"
    world.nodes[name] = Node(number, name, space, run, ear, world.directory / f"{name}.log")


def _etcd(world: World) -> subprocess.Popen[bytes]:
    url = f"http://{ROUTER}:2379"
    command = [
        *("etcd", "--data-dir", str(world.directory / "etcd"), "--unsafe-no-fsync"),
        *("--listen-client-urls", url, "--advertise-client-urls", url),
        *("--listen-peer-urls", "http://127.0.0.1:2380", "--log-level", "error"),
    ]
    with (world.directory / "etcd.log").open("ab") as log:
        process = subprocess.Popen(world.hub.command(*command), stdout=log, stderr=log)

    def healthy() -> bool:
        with contextlib.suppress(AssertionError):
            world.etcdctl("get", "x")
            return True
        return False

    wait_for(healthy, "etcd answers")
    return process


def _end(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None and process.poll() is None:
        process.kill()
        process.wait(HANG)
