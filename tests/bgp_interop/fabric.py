"""A node of ours, a router of somebody else's, and a place to say hostile things from.

           hub: bridge 10.99.0.254, fd99::254; etcd; raw peers at 10.99.0.66
            |               |                |            \\
    n1 10.99.0.1       n2 10.99.0.2     router 10.99.0.100  | 10.97.0.1
    fd99::1            (reflectors)            fd99::100    |
                                               10.97.0.2 ---+  one more hop away

n1 runs the real `calico-bgp` on a real etcd for all cases of a speaker; each case writes its
peers, starts the router as it needs it, and leaves nothing behind (`Fabric.clear`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from ipaddress import IPv4Address
from typing import Any

from libcalico.datastore.etcd.keys import path_of
from libcalico.model import codec
from libcalico.model.keys import ResourceKey
from tests.bgp.session_lab import RawPeer
from tests.bgp.world import Node, World, cluster
from tests.bgp_interop.router import Learned, Neighbour, Router
from tests.support import bgp_wire as wire
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import patient, wait_for

OURS, THEIRS = 64512, 64500
NODE, NODE6 = "10.99.0.1", "fd99::1"
ROUTER, ROUTER6 = "10.99.0.100", "fd99::100"
FAR = "10.97.0.2"
RAW = IPv4Address("10.99.0.66")
ABSENT_PEER = "10.99.0.99"
"""An address where no router is."""
BLOCK, BLOCK6 = "10.65.1.0/26", "fd65::40/122"


class Fabric:
    """The world of one speaker."""

    def __init__(self, world: World, space: Namespace, router: Router) -> None:
        self.world, self.space, self.router = world, space, router
        self.node, self.other = world.nodes["n1"], world.nodes["n2"]

    def run(self, case: Callable[[Fabric], None]) -> None:
        """Run a case; if it fails, show what all daemons said."""
        try:
            case(self)
        except BaseException:
            log = self.router.directory / f"{self.router.name}.log"
            print(self.world.logs(), log.read_text(errors="replace")[-4000:], sep="\n---\n")
            raise

    # -- what stands in the datastore

    def apply(
        self, kind: str, name: str, spec: dict[str, Any], labels: dict[str, str] | None = None
    ) -> None:
        """Write a v3 resource."""
        tree = {
            "kind": kind,
            "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": name, "labels": labels or {}},
            "spec": spec,
        }
        self.world.put(ResourceKey(kind, name), codec.resource_from_tree(tree))

    def path(self, kind: str, name: str) -> str:
        """Where a v3 resource lies in etcd."""
        return path_of(ResourceKey(kind, name))

    def configure(self, **spec: Any) -> None:
        """BGPConfiguration `default`; without a mesh."""
        self.apply("BGPConfiguration", "default", {"nodeToNodeMeshEnabled": False, **spec})

    def register(self, node: Node, labels: dict[str, str] | None = None, **bgp: Any) -> None:
        """The Node resource."""
        own = {"ipv4Address": f"{node.address}/24", "ipv6Address": f"{node.address6}/64"}
        self.apply("Node", node.name, {"bgp": {**own, **bgp}}, labels)

    def peer(self, address: str = ROUTER, asn: int = THEIRS, name: str = "", **spec: Any) -> None:
        """A BGPPeer of n1 alone."""
        name = name or "to-" + address.replace(":", "-").replace(".", "-")
        spec = {"peerIP": address, "asNumber": asn, "node": "n1", **spec}
        self.apply("BGPPeer", name, spec)

    # -- what is waited for

    def up(self, *addresses: str, seconds: float = 20) -> None:
        """n1 has exactly these sessions."""
        eventually_equal(
            "sessions", self._sessions, dict.fromkeys(addresses, "Established"), seconds
        )

    def _sessions(self) -> dict[str, str]:
        return {address: peer["info"] for address, peer in self.node.peers().items()}

    def heard(self) -> dict[str, Learned]:
        """The router's table. LOCAL_PREF counts only where it was sent: inside the AS."""
        return {
            prefix: replace(each, local_pref=None) if each.as_path else each
            for prefix, each in self.router.table().items()
        }

    def told(self, expected: dict[str, Learned]) -> None:
        """The router's table becomes this."""
        eventually_equal("the router's table", self.heard, expected)

    def learned(self, expected: Mapping[str, tuple[str, ...]]) -> None:
        """What n1's felix was told is this: prefix -> next hops."""
        eventually_equal("n1's table", lambda: self.node.ear.table, expected)

    def known(self, name: str) -> None:
        """n1 has heard of a BGPFilter. A peering that names an unknown one is refused, and ends."""
        self.peer(ABSENT_PEER, filters=[name], name="nobody")
        wait_for(lambda: ABSENT_PEER in self.node.peers(), f"BGPFilter {name} is known")
        self.world.delete(ResourceKey("BGPPeer", "nobody"))
        wait_for(lambda: ABSENT_PEER not in self.node.peers(), "the absent peer is gone")

    def session(self, address: str = ROUTER) -> int:
        """The number of the present session, or of the last one: another one has another."""
        return int(self.node.peers()[address]["session"])

    @contextmanager
    def applied(self) -> Iterator[None]:
        """What is written inside reaches n1's speaker before this ends."""
        before = self._reloads()
        yield
        wait_for(lambda: self._reloads() > before, "the speaker reloads")

    def _reloads(self) -> int:
        return self.node.log.read_text(errors="replace").count("exabgp reloaded")

    # -- other ends

    def injecting(self, body: Callable[[RawPeer], Awaitable[None]], asn: int = OURS) -> None:
        """Run `body` with a raw peer at RAW that n1 accepts, beside everything else."""

        async def run() -> None:
            raw = RawPeer(RAW, asn=asn)
            try:
                await _join(raw)
                await body(raw)
            finally:
                await raw.close()

        self.world.hub.call(lambda: asyncio.run(run()))

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Nothing passes between n1 and the router, and nobody is told."""
        self.space.run("nft", "-f", "-", input=_SILENCE)
        try:
            yield
        finally:
            self.space.run("nft", "delete", "table", "inet", "silence")

    def clear(self) -> None:
        """The state every case begins with: n1 runs and has no peer; the router is not there."""
        self.router.kill()
        if self.other.process is not None:
            self.other.kill()
            self.other.process = None
            self.world.unblock("n2", "10.65.2.0/26")
        for kind in ("bgppeers", "bgpfilters", "nodes"):
            self.world.etcdctl("del", "--prefix", f"/calico/resources/v3/projectcalico.org/{kind}/")
        self.configure()
        self.register(self.node)
        self.world.block("n1", BLOCK)
        self.world.block("n1", BLOCK6)
        if self.node.process is None or self.node.process.poll() is not None:
            self.node.start()
        wait_for(lambda: self.node.status and not self.node.peers(), "no peers")
        self.learned({})
        self.node.ear.lost.clear()
        self.other.ear.routes.clear()


_SILENCE = """
table inet silence {
    chain in { type filter hook input priority 0; tcp dport 179 drop; tcp sport 179 drop; }
    chain out { type filter hook output priority 0; tcp dport 179 drop; tcp sport 179 drop; }
}
"""


async def _join(raw: RawPeer) -> None:
    """A session with n1, which hangs up on a peer that its speaker has not been told of yet."""
    async with asyncio.timeout(patient(30)):
        while True:
            await raw.dial(to=IPv4Address(NODE))
            await raw.open()
            while not raw.closed.is_set():
                if any(kind == wire.KEEPALIVE for kind, _ in raw.messages):
                    return
                await asyncio.sleep(0.05)
            await raw.close()


def eventually_equal(what: str, look: Callable[[], Any], expected: Any, seconds: float = 20) -> Any:
    """Poll until `look` gives `expected`; both stand in the failure."""
    found: Any = None

    def same() -> bool:
        nonlocal found
        found = look()
        return bool(found == expected)

    try:
        wait_for(same, what, limit=seconds)
    except AssertionError:
        raise AssertionError(f"{what}: {found!r}, expected {expected!r}") from None
    return found


def link4(asn: int = OURS, **more: Any) -> Neighbour:
    """The router's session with n1 over IPv4."""
    return Neighbour(NODE, asn, ROUTER, **more)


def link6(asn: int = OURS, **more: Any) -> Neighbour:
    """The router's session with n1 over IPv6."""
    return Neighbour(NODE6, asn, ROUTER6, **more)


@contextmanager
def fabric(kind: type[Router]) -> Iterator[Fabric]:
    """The world of a speaker, n1 running."""
    with cluster(2) as world, ExitStack() as stack:
        space = stack.enter_context(network_namespace("rt"))
        _cables(world.hub, space, world.nodes["n1"].space)
        directory = world.directory / "router"
        directory.mkdir(mode=0o755)
        router = kind(space, directory, ROUTER)
        stack.callback(router.kill)
        secrets = world.directory / "passwords" / "bgp"
        secrets.mkdir(parents=True)
        for key, text in {"right": "Good-enough+1", "wrong": "Another one"}.items():
            (secrets / key).write_text(text)
            (secrets / key).chmod(0o600)
        lab = Fabric(world, space, router)
        lab.node.environ["CALICO_BGP_PASSWORD_DIR"] = str(secrets.parent)
        world.apply("IPPool", "pods", {"cidr": "10.65.0.0/16", "blockSize": 26})
        world.apply("IPPool", "pods6", {"cidr": "fd65::/48", "blockSize": 122})
        yield lab


def _cables(hub: Namespace, router: Namespace, node: Namespace) -> None:
    """The router's two legs: one at the bridge, one behind the hub."""
    for port, far in (("pr", "eth0"), ("ph", "eth1")):
        link = ("ip", "link", "add", port, "type", "veth", "peer", "name", far)
        hub.run(*link, "netns", router.name)
        router.run("ip", "link", "set", far, "up")
    hub.run("ip", "link", "set", "pr", "master", "br0", "up")
    hub.run("ip", "link", "set", "ph", "up")
    hub.run("ip", "addr", "add", "10.97.0.1/24", "dev", "ph")
    hub.run("ip", "addr", "add", f"{RAW}/32", "dev", "lo")
    hub.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
    router.run("ip", "addr", "add", f"{ROUTER}/24", "dev", "eth0")
    router.run("ip", "-6", "addr", "add", f"{ROUTER6}/64", "dev", "eth0", "nodad")
    router.run("ip", "addr", "add", f"{FAR}/24", "dev", "eth1")
    for space in (hub, router):
        for where in ("all", "default", "eth0", "eth1", "ph", "br0"):
            space.run("sysctl", "-qew", f"net.ipv4.conf.{where}.rp_filter=0", check=False)
    # What the router sends from its far leg takes that way back, too.
    router.run("ip", "route", "add", "default", "via", "10.97.0.1", "table", "97")
    router.run("ip", "rule", "add", "from", FAR, "lookup", "97")
    node.run("ip", "route", "add", "10.97.0.0/24", "via", "10.99.0.254")
