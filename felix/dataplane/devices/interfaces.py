"""Host sides of workload interfaces: hardware address, state and settings as they must be.

`cni` makes the interface right; felix keeps it so (docs/reference/dataplane.md#interface-settings).
Settings are compared with what the link dump says and only what differs is written.

Reverse path is checked strictly here too, though rules do that for IPv4 and IPv6 packets: rules
see no ARP, and by forged senders in it one workload could fill the neighbour table of the whole
host. (Calico writes the value that new interfaces get, which may be 0.)

Invariants:
  IFC-1  Only interfaces of known local endpoints are ever changed.
  IFC-2  A workload's ARP makes no neighbours but those that are routed to it.
Tested in tests/felix/dataplane/test_interfaces.py, tests/felix/kernel/test_repair.py,
test_confined.py.
"""

from __future__ import annotations

import errno
import logging
from dataclasses import dataclass, field

from felix.dataplane.devices.work import LinkWork
from linux import links, sysctl
from linux.errors import KernelError
from linux.links import Link

HOST_MAC = "ee:ee:ee:ee:ee:ee"
_INET = {"route_localnet": 1, "proxy_arp": 1, "forwarding": 1, "rp_filter": 1}
_INET6 = {"proxy_ndp": 1, "forwarding": 1}
_FORWARDING = {4: "net/ipv4/ip_forward", 6: "net/ipv6/conf/all/forwarding"}

log = logging.getLogger(__name__)


@dataclass
class Interfaces:
    """Keeps the settings of workload interfaces; remembers what a link dump does not show.

    `writes` counts settings written, `repairs` those of them that had been right before.
    """

    writes: int = 0
    repairs: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    _delayed: set[int] = field(default_factory=set)
    _right: dict[int, tuple[Link, bool, bool]] = field(default_factory=dict)
    _forwarded: set[int] = field(default_factory=set)
    _complaints: dict[str, str] = field(default_factory=dict)

    def commit(self, work: LinkWork) -> set[int]:
        """Write what differs of the links of `work.endpoints`; returns the indexes of those that
        were touched. Raises `KernelError` only when the socket fails.
        """
        self.failures = {}
        touched: set[int] = set()
        sock, view = work.sock, work.view
        # Endpoints may use the further source addresses that they ask for.
        spoofing = work.config.workload_source_spoofing == "Any"
        for endpoint in work.endpoints:
            link = view.link_named(endpoint.interface)
            if link is None:
                continue
            loose = spoofing and bool(endpoint.spoofable)
            # Of a pod without IPv6 the host says nothing to neighbours, and routes nothing to it.
            ipv6 = 6 in work.families and 6 in endpoint.families
            right = self._right.get(link.index)
            if right is not None and right[0] is link and right[1:] == (loose, ipv6):
                continue
            messages = self._differences(link, loose)
            for result in sock.transact(messages) if messages else ():
                # One that has left meanwhile needs nothing.
                if not result.ok and result.errno != errno.ENODEV:
                    self.failures[link.name] = str(result.error(f"set up {link.name}"))
            writes = len(messages) + self._sysctls(link, ipv6=ipv6)
            if writes:
                self.writes += writes
                self.repairs += writes if link.index in self._right else 0
                touched.add(link.index)
            elif link.name not in self.failures:
                self._right[link.index] = (link, loose, ipv6)
        if len(self._right) > len(view.links) or len(self._delayed) > len(view.links):
            self._delayed &= view.links.keys()
            self._right = {i: right for i, right in self._right.items() if i in view.links}
        return touched

    def forwarding(self, families: frozenset[int]) -> dict[str, str]:
        """Switch forwarding on where it is off; what could not be done, by setting."""
        failures = {}
        for family in sorted(families):
            try:
                written = sysctl.ensure(_FORWARDING[family], 1)
            except KernelError as error:
                failures[_FORWARDING[family]] = str(error)
                continue
            self.writes += written
            self.repairs += written if family in self._forwarded else 0
            self._forwarded.add(family)
        return failures

    def switch_forwarding_on(self, families: frozenset[int]) -> None:
        """The same; what could not be done is said once."""
        # A container may have read-only settings that are right: no failure of the turn.
        complaints = self.forwarding(families)
        if complaints != self._complaints:
            self._complaints = complaints
            for complaint in complaints.values():
                log.warning("forwarding is not on: %s", complaint)

    def _differences(self, link: Link, loose: bool) -> list[bytes]:
        messages: list[bytes] = []
        if link.mac != HOST_MAC:
            messages.append(links.set_mac(link.index, HOST_MAC))
        desired = {**_INET, "rp_filter": 0} if loose else _INET
        differing = dict(links.differing_conf(link, desired))
        if differing:
            messages.append(links.set_inet_conf(link.index, differing))
        if not link.up:
            messages.append(links.set_up(link.index))
        return messages

    def _sysctls(self, link: Link, *, ipv6: bool) -> int:
        changed = 0
        if link.index not in self._delayed:
            changed += self._try(f"net/ipv4/neigh/{link.name}/proxy_delay", 0)
            self._delayed.add(link.index)
        accept_ra = link.inet6("accept_ra")
        if accept_ra not in (None, 0):
            changed += self._try(f"net/ipv6/conf/{link.name}/accept_ra", 0)
        if ipv6 and not link.inet6("disable_ipv6"):
            for name, value in _INET6.items():
                if link.inet6(name) not in (None, value):
                    changed += self._ensure(link, f"net/ipv6/conf/{link.name}/{name}", value)
        return changed

    def _try(self, name: str, value: int) -> bool:
        """Best effort: a workload works without it, so a failure is only said."""
        try:
            return sysctl.ensure(name, value)
        except KernelError as error:
            log.debug("%s", error)
            return False

    def _ensure(self, link: Link, name: str, value: int) -> bool:
        try:
            return sysctl.ensure(name, value)
        except KernelError as error:
            # One that has left meanwhile, or has another name, has no such file.
            if error.errno != errno.ENOENT:
                self.failures[link.name] = str(error)
            return False
