"""Tunnel devices of this node: made when a pool asks and an address is there, kept as they must be.

VXLAN devices are felix's own. One that was made otherwise is replaced. One that is not needed any
more is removed when no route of ours leads into it, and a little later, for packets on their way.
`tunl0` is the kernel's: it gets our address and settings. When no pool asks for IP-in-IP any more,
it loses all addresses, and a little later unwraps no more. A kernel without IP-in-IP is reported
once for the node and for each pool (docs/reference/dataplane.md#ipip, #vxlan).

Invariants:
  TDV-1  A device in use has exactly our address (beside link-local ones), our MTU and is up.
  TDV-2  `means` names a tunnel only while its device stands: nothing of it was refused.
  TDV-3  With a tunnel that cannot be had nothing is made at all.
  TDV-4  No device begins to unwrap before the rules stand that say whose packets it takes, and
         they stand as long as it does. Where it is gone, or cannot be made, there are none.
Tested in tests/felix/kernel/test_vxlan.py, test_tunnel_settings.py, test_policy_refused.py and,
with IP-in-IP, tests/uml/test_ipip.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from ipaddress import ip_interface

from felix.calc.cluster_facts import ClusterFacts
from felix.calc.encapsulation import Encapsulation
from felix.calc.nodes import IPAddress, NodeFacts, Vtep
from felix.calc.pools import Pool
from felix.calc.tunnels import TunnelSupport
from felix.config.parameters import Config
from felix.dataplane.devices.mtu import IPIP, VXLAN, VXLAN_HEADER, VXLAN_V6, VXLAN_V6_HEADER
from felix.dataplane.devices.tunnel_links import addresses_of, holder, takes, used_by_routes
from felix.dataplane.devices.view import KernelView
from felix.dataplane.devices.vteps import VtepTables
from felix.dataplane.devices.work import LinkWork, Listener
from libcalico.process.tasks import Background
from linux import addresses, ipip, links, vxlan
from linux.links import Link
from linux.monitor import NEIGHBOURS, Monitor
from linux.monitor.events import LinkChanged
from linux.netlink import Socket
from linux.vxlan import Vxlan

LINGER = 10.0
"""Seconds for which a device that is not needed unwraps: other nodes learn of it in their time."""
RETRY, MAKE_RETRY = 1.0, 10.0
"""After how many seconds what the kernel refused is tried again: a setting, a whole device. After
the former a device that is not needed is looked at again whose routes have to go first."""

LACKING_IPIP = "this kernel has no IP-in-IP (modprobe ipip)"
_NAMES = {4: VXLAN, 6: VXLAN_V6}
_HEADERS = {4: VXLAN_HEADER, 6: VXLAN_V6_HEADER}
_LOOSE, _UNCHECKED = {"rp_filter": 2}, {"rp_filter": 0}
_NOWHERE: Mapping[str, Vtep] = {}

log = logging.getLogger(__name__)


_WATCH = "watch of the tunnels' tables"


@dataclass
class Tunnels:
    """The devices and their tables. `clock` gives seconds, `kick` asks for a turn; `told`: a
    speaker tells this node ways. `problems` are (object, reason).

    `writes` counts changes of devices, `repairs` those of devices that had been right.
    """

    node: str
    clock: Callable[[], float]
    kick: Callable[[], None]
    told: bool = True
    problems: list[tuple[str, str]] = field(default_factory=list)
    writes: int = 0
    repairs: int = 0
    tables: dict[int, VtepTables] = field(default_factory=dict)
    wait: float | None = None
    """Seconds after which to look again though nothing changed."""
    _lacks_ipip: bool = False
    _not_made: dict[str, tuple[float, str]] = field(default_factory=dict)
    _right: set[str] = field(default_factory=set)
    _unneeded: dict[str, float] = field(default_factory=dict)
    _ready: set[str] = field(default_factory=set)
    _seen: tuple[object, ...] = ()
    _guarded: frozenset[Listener] = frozenset()
    background: Background = field(default_factory=Background)

    def means(self, used: Encapsulation, config: Config) -> TunnelSupport:
        """What ways may be built from (TDV-2)."""
        by_speaker = {"Enabled": False, "EnabledNoEncapOnly": False, "": self.told}
        return TunnelSupport(
            ipip=used.ipip and IPIP in self._ready,
            vxlan=frozenset(v for v, name in _NAMES.items() if name in self._ready),
            told=by_speaker.get(config.program_cluster_routes, True),
        )

    def listeners(
        self, view: KernelView, config: Config, cluster: ClusterFacts, used: Encapsulation
    ) -> frozenset[Listener]:
        """By what this node unwraps, or will once rules say whose packets it takes (TDV-4)."""
        me = cluster.me
        listeners: set[Listener] = set()
        for version, needed in ((4, used.vxlan), (6, used.vxlan_v6)):
            name = _NAMES[version]
            stands = vxlan.decode(link) if (link := view.link_named(name)) is not None else None
            if stands is not None:
                listeners.add((name, stands.port))
            own = me.address(version)
            possible = own is not None and holder(view, own) is not None
            if needed and possible and (stands is not None or not self._put_off(name)):
                listeners.add((name, config.vxlan_port))
        tunl0 = view.link_named(IPIP)
        possible = tunl0 is not None or not self._lacks_ipip
        if (used.ipip and possible) or (tunl0 is not None and takes(view, tunl0)):
            listeners.add((IPIP, 0))
        return frozenset(listeners)

    def _put_off(self, name: str) -> float:
        """Seconds until a device that the kernel refused is tried again."""
        return max(0.0, self._not_made.get(name, (0.0, ""))[0] - self.clock())

    def commit(self, work: LinkWork) -> set[int]:
        """Make the devices as they must be; returns the indexes of links that were touched.

        Raises `KernelError` only when the socket fails.
        """
        sock, view, config, cluster = work.sock, work.view, work.config, work.cluster
        used, guarded = work.used, work.guarded
        state = view.host_interfaces(), view.host_links_version, cluster.version
        seen = (*state, config, used, guarded)
        quiet = self.wait is None and all(tables.quiet for tables in self.tables.values())
        if quiet and seen == self._seen:
            return set()
        self._seen = seen
        self.problems, self.wait, self._guarded = [], None, guarded
        before, self._ready = self._ready, set()
        me = cluster.me
        touched = self._ipip(sock, view, me, cluster, used)
        for version, needed in ((4, used.vxlan), (6, used.vxlan_v6)):
            if needed:
                self._unneeded.pop(_NAMES[version], None)
                touched |= self._vxlan(sock, view, config, cluster, me, version)
            else:
                self._remove(sock, view, version)
        for name in self._ready - before:
            log.info("%s stands", name)
        self._listen()
        return touched

    def _listen(self) -> None:
        if self.tables:
            self.background.keep(_WATCH, self._follow)
        else:
            self.background.cancel(_WATCH)

    async def _follow(self) -> None:
        """Hear of changes of the tables, for ever."""
        with Monitor(NEIGHBOURS) as monitor:
            # What changed since they were read, and before this, was heard by none.
            self.forget()
            self.kick()
            async for batch in monitor.batches():
                news = [t.absorb(event) for event in batch for t in self.tables.values()]
                if any(news):
                    self.kick()

    @property
    def ready(self) -> Set[str]:
        """The devices that stand, by name."""
        return self._ready

    @property
    def ends_v6(self) -> Mapping[str, Vtep]:
        """The IPv6 ends of VXLAN elsewhere; the same object while nothing changed."""
        tables = self.tables.get(6)
        return tables.ends if tables is not None and VXLAN_V6 in self._ready else _NOWHERE

    @property
    def all_writes(self) -> int:
        """Changes of devices and entries of their tables."""
        return self.writes + sum(tables.writes for tables in self.tables.values())

    @property
    def all_repairs(self) -> int:
        """Those of what had been right before."""
        return self.repairs + sum(tables.repairs for tables in self.tables.values())

    def forget(self) -> None:
        """Read the tables again at the next commit."""
        for tables in self.tables.values():
            tables.forget()

    # -- IP-in-IP ----------------------------------------------------------------------------

    def _ipip(
        self,
        sock: Socket,
        view: KernelView,
        me: NodeFacts,
        cluster: ClusterFacts,
        used: Encapsulation,
    ) -> set[int]:
        link = view.link_named(IPIP)
        if not used.ipip:
            self._right.discard(IPIP)
            return self._release(sock, view, link)
        self._unneeded.pop(IPIP, None)
        if link is None and self._lacks_ipip:
            self._lack(cluster.pools)
            return set()
        if not (link is not None and link.up) and self._unguarded((IPIP, 0)):
            return set()
        if link is None:
            link = ipip.ensure(sock)
            if link is None:
                self._lacks_ipip = True
                self._lack(cluster.pools)
                self.kick()  # the listener may be gone
                return set()
            self._shown(view, link)
            self.writes += 1
        self._lacks_ipip = False
        # It unwraps before it has an address: others may have theirs first.
        touched = self._settings(sock, view, link, me.ipip)
        if me.ipip is None:
            self._misses("IP-in-IP", "it has no tunnel address yet")
        return touched

    def _lack(self, pools: Mapping[str, Pool]) -> None:
        self._misses("IP-in-IP", f"{LACKING_IPIP}; other nodes are told no address of its tunnel")
        for name, pool in pools.items():
            if pool.ipip and pool.network.version == 4:
                reason = (
                    f"spec.ipipMode: {pool.ipip_mode}: {LACKING_IPIP}; nothing is wrapped here,"
                    " and only what bgp routes without it gets through"
                )
                self.problems.append((f"IPPool({name})", reason))

    def _release(self, sock: Socket, view: KernelView, link: Link | None) -> set[int]:
        """Take the addresses off a device that stays, and a little later give it up.

        Meanwhile it takes what other nodes send that still ask for the tunnel. The address is the
        allocator's again: a pod may have it next.
        """
        if link is None or self._awaits_routes(view, link):
            return set()
        if not takes(view, link):
            self._unneeded.pop(IPIP, None)
            return set()
        left = self._unneeded.setdefault(IPIP, self.clock() + LINGER) - self.clock()
        messages = [addresses.delete(link.index, each) for each in addresses_of(view, link)]
        if left > 0:
            self._look_after(left)
        # Its rules go when this is known: with the loose check a device without an address takes
        # nothing at all.
        settings_left = _UNCHECKED if left > 0 else _LOOSE
        if settings := dict(links.differing_conf(link, settings_left)):
            messages.append(links.set_inet_conf(link.index, settings))
        if messages:
            self.writes += len(messages)
            sock.transact(messages)
        return {link.index} if messages else set()

    # -- VXLAN -------------------------------------------------------------------------------

    def _vxlan(
        self,
        sock: Socket,
        view: KernelView,
        config: Config,
        cluster: ClusterFacts,
        me: NodeFacts,
        version: int,
    ) -> set[int]:
        name, own, end = _NAMES[version], me.address(version), me.vtep(version)
        parent = holder(view, own) if own is not None else None
        if own is None or parent is None:
            self._misses(f"VXLAN for IPv{version}", f"no link has its address {own}")
            return set()
        desired = Vxlan(config.vxlan_vni, config.vxlan_port, own, parent.index)
        mac = me.mac(version)
        link = view.link_named(name)
        right = link is not None and vxlan.decode(link) == desired and link.mac == mac
        if link is None and (left := self._put_off(name)):
            self._misses(f"VXLAN for IPv{version}", self._not_made[name][1])
            self._look_after(left)
            return set()
        if not (right and link is not None and link.up) and self._unguarded((name, desired.port)):
            return set()
        if link is None or not right:
            link = self._make(sock, view, name, desired, mac, parent.mtu - _HEADERS[version], link)
            if link is None:
                return set()
        # It unwraps before it has an address: others may know of it first.
        touched = self._settings(sock, view, link, end.address if end is not None else None)
        self._tables(sock, cluster.nodes, version, link)
        if end is None:
            self._misses(f"VXLAN for IPv{version}", "it has no tunnel address yet")
        return touched

    def _make(
        self,
        sock: Socket,
        view: KernelView,
        name: str,
        desired: Vxlan,
        mac: str,
        mtu: int,
        before: Link | None,
    ) -> Link | None:
        messages = [links.delete(before.index)] if before is not None else []
        messages.append(vxlan.create(name, desired, mac=mac, mtu=max(mtu, 1280)))
        self.writes += 1
        self.repairs += name in self._right
        self._right.discard(name)
        *_, result = sock.transact(messages)
        link = links.get(sock, name)
        if before is not None:
            # Its routes went with it, in silence.
            view.absorb([LinkChanged(before, True)])
            view.stale_routes = True
        if link is None:
            why = str(result.error(f"make {name}"))
            self._not_made[name] = (self.clock() + MAKE_RETRY, why)
            self._misses(f"VXLAN for IPv{desired.local.version}", why)
            self._look_after(MAKE_RETRY)
            self.kick()  # the listener may be gone
            return None
        self._shown(view, link)
        return link

    def _tables(
        self, sock: Socket, nodes: Mapping[str, NodeFacts], version: int, link: Link
    ) -> None:
        tables = self.tables.get(version)
        if tables is None or tables.index != link.index:
            self._forget_tables(version)
            tables = self.tables[version] = VtepTables(link.index)
        tables.want(
            {
                name: end
                for name, facts in nodes.items()
                if name != self.node and (end := facts.vtep(version)) is not None
            }
        )
        for failure in tables.commit(sock):
            self._misses(f"VXLAN for IPv{version}", failure)

    def _forget_tables(self, version: int) -> None:
        """They went with their device; what was counted stays counted."""
        tables = self.tables.pop(version, None)
        if tables is not None:
            self.writes += tables.writes
            self.repairs += tables.repairs

    def _remove(self, sock: Socket, view: KernelView, version: int) -> None:
        name = _NAMES[version]
        self._right.discard(name)
        link = view.link_named(name)
        if link is None or link.kind != vxlan.KIND:
            self._unneeded.pop(name, None)
            self._forget_tables(version)
            return
        left = self._unneeded.setdefault(name, self.clock() + LINGER) - self.clock()
        if self._awaits_routes(view, link):
            return
        if left > 0:
            self._look_after(left)
            return
        self.writes += 1
        self._forget_tables(version)
        sock.transact([links.delete(link.index)])

    # -- what all devices have ---------------------------------------------------------------

    def _settings(
        self, sock: Socket, view: KernelView, link: Link, own: IPAddress | None
    ) -> set[int]:
        """Address, reverse path, state (TDV-1); the MTU is `MtuKeeper`'s. None: not known yet.

        A device is ready that has them all.
        """
        messages: list[bytes] = []
        surplus = 0
        if own is not None:
            address = ip_interface(own)
            have = [each for each in addresses_of(view, link) if each.version == own.version]
            messages += [addresses.delete(link.index, each) for each in have if each != address]
            surplus = len(messages)
            if address not in have:
                messages.append(addresses.add(link.index, address, replace=True))
        # The loose check, too, drops all that comes in by a link without an address.
        wanted_conf = _LOOSE if own is not None else _UNCHECKED
        settings = dict(links.differing_conf(link, wanted_conf))
        if settings:
            messages.append(links.set_inet_conf(link.index, settings))
        if not link.up:
            messages.append(links.set_up(link.index))
        if not messages:
            self._right.add(link.name)
            if own is not None:
                self._ready.add(link.name)
            return set()
        stands = own is not None
        for number, result in enumerate(sock.transact(messages)):
            if not result.ok:
                self._misses(link.name, str(result.error(f"set up {link.name}")))
                self._look_after(RETRY)
                # An address too many, which may have gone by itself, keeps no packet away.
                stands &= number < surplus
        if stands:
            self._ready.add(link.name)
        self.writes += len(messages)
        self.repairs += len(messages) if link.name in self._right else 0
        return {link.index}

    def _shown(self, view: KernelView, link: Link) -> None:
        """The view knows a device before the kernel tells of it."""
        view.absorb([LinkChanged(link, False)])

    def _unguarded(self, listener: Listener) -> bool:
        """Whether packets could come through a device that would begin to unwrap now (TDV-4)."""
        if listener in self._guarded:
            return False
        self._misses(listener[0], "the rules that say whose packets it takes are not written yet")
        return True

    def _awaits_routes(self, view: KernelView, link: Link) -> bool:
        """Whether ways still lead into a device that is not needed.

        They go later in the turn, and nothing tells of that: the monitor leaves out own writes.
        """
        used = used_by_routes(view, link.index)
        if used:
            self._look_after(RETRY)
        return used

    def _look_after(self, seconds: float) -> None:
        self.wait = seconds if self.wait is None else min(seconds, self.wait)

    def _misses(self, what: str, why: str) -> None:
        self.problems.append((f"Node({self.node})", f"{what}: {why}"))
