"""The veth pair of one ADD: found as an earlier ADD left it, or made, and configured.

Tested in tests/cni/test_add_order.py, tests/cni/test_daemon_add.py and
tests/cni/test_daemon_faults.py.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from cni.node.daemon_context import DaemonContext
from cni.request.attachment import Attachment
from cni.request.errors import CNIError, Code
from cni.request.request import Request
from cni.socket import call_log
from cni.veth import wiring
from ipam.records.blocks import IPAddress
from libcalico.model.keys import IPNetwork
from linux import links
from linux.errors import KernelError

log = call_log.logger(__name__)


class PodVeth:
    """The pair between the node and a container, of this ADD or of an earlier one.

    `taken`: the host has a link of its name. `begun`: this ADD may have made it, so its undo
    removes it. Sockets in the container are closed with `opened`.
    """

    def __init__(
        self,
        services: DaemonContext,
        netns_fd: int,
        cable: wiring.Cable,
        attachment: Attachment,
        opened: ExitStack,
    ) -> None:
        self._services, self._netns_fd, self._opened = services, netns_fd, opened
        self._attachment = attachment
        self._pod: wiring.PodSocket | None = None
        self.cable = cable
        self.ends: wiring.Ends | None = None
        self.begun = False
        self.taken = wiring.is_taken(services.host, cable.host_interface)

    @property
    def pod(self) -> wiring.PodSocket:
        """The socket in the container, opened when it is first asked for."""
        if self._pod is None:
            self._pod = self._opened.enter_context(wiring.open_pod(self._netns_fd))
        return self._pod

    def find(self) -> None:
        """Take the pair that an earlier ADD of this attachment made, where there is one."""
        self.ends = wiring.existing(self._services.host, self.pod, self.cable)

    async def made(self) -> wiring.Ends:
        """Both ends; the pair is made where there is none yet. Raises KernelError, CNIError."""
        if self.ends is None:
            pod = self.pod
            self.begun = True
            self.ends = await self._make(pod)
        return self.ends

    async def _make(self, pod: wiring.PodSocket) -> wiring.Ends:
        services, cable = self._services, self.cable
        try:
            return wiring.create(services.host, self._netns_fd, cable)
        except KernelError as error:
            if error.errno != errno.EEXIST:
                raise
        # Which end's name is taken, the kernel does not say. A link of another program in the
        # container is refused; what is left of a killed daemon goes.
        wiring.existing(services.host, pod, cable)
        # The older sandbox of a pod has the same host interface; it is dead once a new one starts.
        # Without a pod the name is made of the container's own id, so another's is a collision.
        mark = None if self._attachment.pod else cable.mark
        await services.in_thread(wiring.remove_stale, cable.host_interface, mark)
        return wiring.create(services.host, self._netns_fd, cable)

    async def up(self) -> None:
        """The pair, with the container's end up before it has an address."""
        ends = await self.made()
        self.pod.transact([links.set_up(ends.pod)])[0].check(f"bring up {self.cable.ifname}")

    def configure(
        self, ends: wiring.Ends, addresses: Sequence[IPAddress], ways: Sequence[IPNetwork]
    ) -> None:
        """Addresses and routes of the container; of `reused` ends what it had before goes."""
        where = {"container": self.cable.mark, "link": self.cable.host_interface}
        log.debug("veth found" if ends.reused else "veth created", extra=where)
        log.debug("address assigned", extra={**where, "addresses": ",".join(map(str, addresses))})
        wiring.configure(self.pod, self._netns_fd, self.cable, ends, addresses, ways)
        log.debug("address configured", extra=where)

    async def undo(self) -> None:
        """Remove the pair if this ADD may have made it. Raises KernelError."""
        if self.begun:
            one = self._attachment
            await self._services.in_thread(wiring.remove, one.host_interface, one.mark)


def cable_of(
    services: DaemonContext, request: Request, attachment: Attachment, mac: str
) -> wiring.Cable:
    """The pair as the configuration, a pod's annotations (`mac`) and the node want it."""
    config = request.config
    queues = config.document.get("num_queues")
    return wiring.Cable(
        host_interface=attachment.host_interface,
        ifname=attachment.ifname,
        mark=attachment.mark,
        mac=mac or config.mac or wiring.random_mac(),
        mtu=_configured_mtu(services, config.mtu) or _node_mtu(services, request),
        queues=queues if isinstance(queues, int) and 0 < queues <= 64 else 1,
        forwarding=config.allow_ip_forwarding,
    )


def _configured_mtu(services: DaemonContext, mtu: int) -> int:
    """The configuration's; said once where it is more than the node's encapsulation leaves."""
    told = f"mtu {mtu}"
    if mtu and told not in services.told:
        services.told.add(told)
        with suppress(OSError, ValueError):
            most = int(services.settings.mtu_file.read_text())
            if most < mtu:
                log.warning(
                    "mtu %d of the network configuration is more than the %d bytes that fit"
                    " through this node's tunnels (%s): large packets will be lost",
                    mtu,
                    most,
                    services.settings.mtu_file,
                )
    return mtu


def _node_mtu(services: DaemonContext, request: Request) -> int:
    """What felix found out, else what the default route's link has
    (docs/reference/data-model.md#cni-configuration, `mtu`)."""
    file = services.settings.mtu_file
    try:
        mtu = services.mtu(file)
    except FileNotFoundError:
        if request.config.document.get("require_mtu_file") is True:
            raise CNIError(
                Code.TRY_AGAIN_LATER, f"{file} does not exist yet, and require_mtu_file is true"
            ) from None
        mtu = 0
    except ValueError:
        log.warning("%s holds no number, it is ignored", file)
        mtu = 0
    return mtu if 68 <= mtu <= 65535 else wiring.default_mtu(services.host)
