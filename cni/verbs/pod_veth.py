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
from cni.veth import pod_end, wiring
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
        context: DaemonContext,
        netns_fd: int,
        spec: wiring.VethSpec,
        attachment: Attachment,
        opened: ExitStack,
    ) -> None:
        self._context, self._netns_fd, self._opened = context, netns_fd, opened
        self._attachment = attachment
        self._pod: pod_end.PodSocket | None = None
        self.spec = spec
        self.pair: wiring.VethPair | None = None
        self.begun = False
        self.taken = wiring.is_taken(context.host, spec.host_interface)

    @property
    def pod(self) -> pod_end.PodSocket:
        """The socket in the container, opened when it is first asked for."""
        if self._pod is None:
            self._pod = self._opened.enter_context(pod_end.open_pod(self._netns_fd))
        return self._pod

    def find(self) -> None:
        """Take the pair that an earlier ADD of this attachment made, where there is one."""
        self.pair = wiring.existing(self._context.host, self.pod, self.spec)

    async def made(self) -> wiring.VethPair:
        """Both ends; the pair is made where there is none yet. Raises KernelError, CNIError."""
        if self.pair is None:
            pod = self.pod
            self.begun = True
            self.pair = await self._make(pod)
        return self.pair

    async def _make(self, pod: pod_end.PodSocket) -> wiring.VethPair:
        context, spec = self._context, self.spec
        try:
            return wiring.create(context.host, self._netns_fd, spec)
        except KernelError as error:
            if error.errno != errno.EEXIST:
                raise
        # Which end's name is taken, the kernel does not say. A link of another program in the
        # container is refused; what is left of a killed daemon goes.
        wiring.existing(context.host, pod, spec)
        # The older sandbox of a pod has the same host interface; it is dead once a new one starts.
        # Without a pod the name is made of the container's own id, so another's is a collision.
        mark = None if self._attachment.pod else spec.mark
        await context.in_thread(wiring.remove_stale, spec.host_interface, mark)
        return wiring.create(context.host, self._netns_fd, spec)

    async def up(self) -> None:
        """The pair, with the container's end up before it has an address."""
        pair = await self.made()
        self.pod.transact([links.set_up(pair.pod)])[0].check(f"bring up {self.spec.ifname}")

    def configure(
        self,
        pair: wiring.VethPair,
        addresses: Sequence[IPAddress],
        destinations: Sequence[IPNetwork],
    ) -> None:
        """Addresses and routes of the container; of `reused` ends what it had before goes."""
        where = {"container": self.spec.mark, "link": self.spec.host_interface}
        log.debug("veth found" if pair.reused else "veth created", extra=where)
        log.debug("address assigned", extra={**where, "addresses": ",".join(map(str, addresses))})
        pod_end.configure(self.pod, self._netns_fd, self.spec, pair, addresses, destinations)
        log.debug("address configured", extra=where)

    async def undo(self) -> None:
        """Remove the pair if this ADD may have made it. Raises KernelError."""
        if self.begun:
            one = self._attachment
            await self._context.in_thread(wiring.remove, one.host_interface, one.mark)


def veth_spec(
    context: DaemonContext, request: Request, attachment: Attachment, mac: str
) -> wiring.VethSpec:
    """The pair as the configuration, a pod's annotations (`mac`) and the node want it."""
    config = request.config
    queues = config.document.get("num_queues")
    return wiring.VethSpec(
        host_interface=attachment.host_interface,
        ifname=attachment.ifname,
        mark=attachment.mark,
        mac=mac or config.mac or wiring.random_mac(),
        mtu=_configured_mtu(context, config.mtu) or _node_mtu(context, request),
        queues=queues if isinstance(queues, int) and 0 < queues <= 64 else 1,
        forwarding=config.allow_ip_forwarding,
    )


def _configured_mtu(context: DaemonContext, mtu: int) -> int:
    """The configuration's; said once where it is more than the node's encapsulation leaves."""
    notice = f"mtu {mtu}"
    if mtu and notice not in context.done_once:
        context.done_once.add(notice)
        with suppress(OSError, ValueError):
            most = int(context.settings.mtu_file.read_text())
            if most < mtu:
                log.warning(
                    "mtu %d of the network configuration is more than the %d bytes that fit"
                    " through this node's tunnels (%s): large packets will be lost",
                    mtu,
                    most,
                    context.settings.mtu_file,
                )
    return mtu


def _node_mtu(context: DaemonContext, request: Request) -> int:
    """What felix found out, else what the default route's link has
    (docs/reference/data-model.md#cni-configuration, `mtu`)."""
    file = context.settings.mtu_file
    try:
        mtu = context.mtu(file)
    except FileNotFoundError:
        if request.config.document.get("require_mtu_file") is True:
            raise CNIError(
                Code.TRY_AGAIN_LATER, f"{file} does not exist yet, and require_mtu_file is true"
            ) from None
        mtu = 0
    except ValueError:
        log.warning("%s holds no number, it is ignored", file)
        mtu = 0
    return mtu if 68 <= mtu <= 65535 else wiring.default_mtu(context.host)
