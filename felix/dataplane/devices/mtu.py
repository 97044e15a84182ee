"""The MTU: what this host's links carry, what tunnels and pods get, and the file that says so.

The host's MTU is the least of its own links that are up (docs/reference/dataplane.md#mtu). A tunnel
device gets that less its header, a pod the least of what the tunnels in use leave. The pods' figure
lies in `/var/lib/calico/mtu`, where the CNI plugin reads it; tunnel devices that exist are set.
When a link changes all of that follows at once; a pod that runs keeps its MTU, and is named when it
is larger than what the host carries now.

Invariant:
  MTU-1  A link of another program, or of a pod, is never changed.
Tested in tests/felix/dataplane/test_mtu.py.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from felix.calc.encapsulation import Encapsulation
from felix.calc.endpoints import Endpoint
from felix.config.parameters import Config
from felix.dataplane.devices.view import KernelView
from felix.dataplane.devices.work import LinkWork
from libcalico.process import paths
from linux import links
from linux.links import Link
from linux.netlink import Socket

UNKNOWN_HOST = 1460
IPIP_HEADER, VXLAN_HEADER, VXLAN_V6_HEADER = 20, 50, 70
IPIP, VXLAN, VXLAN_V6 = "tunl0", "vxlan.calico", "vxlan-v6.calico"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Mtus:
    """What the host carries, and what of it tunnel devices and pods get, in bytes."""

    host: int
    pod: int
    ipip: int
    vxlan: int
    vxlan_v6: int


def host_mtu(links: Iterable[Link], pattern: str) -> int:
    """The least MTU of the links of these names that are up; 1460 where there is none."""
    names = re.compile(pattern)
    carried = [link.mtu for link in links if link.running and names.search(link.name)]
    return min(carried, default=UNKNOWN_HOST)


def mtus(host: int, config: Config, used: Encapsulation) -> Mtus:
    """The MTUs that follow from the host's; a parameter that is set counts instead."""
    ipip = config.ipip_mtu or host - IPIP_HEADER
    vxlan = config.vxlan_mtu or host - VXLAN_HEADER
    vxlan_v6 = config.vxlan_mtu_v6 or host - VXLAN_V6_HEADER
    in_use = [
        size
        for size, needed in ((ipip, used.ipip), (vxlan, used.vxlan), (vxlan_v6, used.vxlan_v6))
        if needed
    ]
    return Mtus(host, min(in_use, default=host), ipip, vxlan, vxlan_v6)


class MtuKeeper:
    """Keeps the file and the tunnel devices at the MTUs of now. `problem` says what failed."""

    def __init__(self, file: Path | None = None) -> None:
        self.now: Mtus | None = None
        self.problem = ""
        self.writes = 0
        self._file = file or paths.MTU
        self._written = ""
        self._host = UNKNOWN_HOST
        self._host_of: tuple[int, str] | None = None

    def commit(self, work: LinkWork) -> set[int]:
        """Write what differs; returns the indexes of links that were touched.

        Raises `KernelError` only when the socket fails.
        """
        view, config, used = work.view, work.config, work.used
        asked = (view.host_links_version, config.mtu_iface_pattern)
        if asked != self._host_of:
            self._host = host_mtu(view.links.values(), config.mtu_iface_pattern)
            self._host_of = asked
        sizes = mtus(self._host, config, used)
        if sizes != self.now:
            log.info("the MTU is %d: %d for new pods", sizes.host, sizes.pod)
            self.now = sizes
        self.problem = self._write(f"{sizes.pod}\n")
        return self._set(work.sock, view, sizes, used)

    def _write(self, text: str) -> str:
        """Write the file if it differs; why that failed."""
        if text == self._written:
            return ""
        fresh = self._file.with_name(f".{self._file.name}.{os.getpid()}.new")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            fresh.write_text(text)
            fresh.replace(self._file)
        except OSError as error:
            if str(error) != self.problem:
                log.warning("%s cannot be written: %s", self._file, error)
            return str(error)
        self._written = text
        return ""

    def _set(self, sock: Socket, view: KernelView, sizes: Mtus, used: Encapsulation) -> set[int]:
        touched: set[int] = set()
        for name, size, needed in (
            (IPIP, sizes.ipip, used.ipip),
            (VXLAN, sizes.vxlan, used.vxlan),
            (VXLAN_V6, sizes.vxlan_v6, used.vxlan_v6),
        ):
            link = view.link_named(name) if needed else None
            if link is None or link.mtu == size:
                continue
            (result,) = sock.transact([links.set_mtu(link.index, size)])
            if not result.ok:
                self.problem = str(result.error(f"set the MTU of {name} to {size}"))
                continue
            self.writes += 1
            touched.add(link.index)
        return touched

    def of_tunnels(self, view: KernelView) -> Mapping[int, int]:
        """The MTUs of the tunnel devices that are there, by the index of the link."""
        if self.now is None:
            return {}
        sizes = ((IPIP, self.now.ipip), (VXLAN, self.now.vxlan), (VXLAN_V6, self.now.vxlan_v6))
        links = ((view.link_named(name), size) for name, size in sizes)
        return {link.index: size for link, size in links if link is not None}

    def too_large(self, view: KernelView, active: Mapping[str, Endpoint]) -> str:
        """Which pods send larger packets than the host carries now; empty if none does."""
        if self.now is None:
            return ""
        pods = []
        for interface, endpoint in active.items():
            link = view.link_named(interface)
            if link is not None and link.mtu > self.now.pod:
                pods.append(f"{endpoint.key.namespace}/{endpoint.identity[1]} ({link.mtu})")
        if not pods:
            return ""
        named = ", ".join(sorted(pods)[:10]) + (", ..." if len(pods) > 10 else "")
        return (
            f"{len(pods)} pod(s) were started with a larger MTU than {self.now.pod}, which"
            f" new ones get; large packets of theirs may be lost until they are started"
            f" again: {named}"
        )
