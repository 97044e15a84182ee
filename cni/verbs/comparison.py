"""What CHECK compares: facts go in, complaints come out.

A runtime asks whether a pod is still connected as ADD left it. A false alarm costs a healthy
pod (CRI-O fails the sandbox), so only what ADD promised is compared, and what later plugins
of the chain add or change on purpose is not (CNI-52).

Pure. Invariants (tests/cni/test_comparison.py):
  CNI-51  Every point that differs gives its own complaint that names it, and what is as ADD
          left it gives none.
  CNI-52  Extra links, addresses and routes are fine, so are a MAC that prevResult states (the
          kernel forgets the neighbours of a link whose MAC changes; proxy ARP then answers), a
          changed MTU of the container's end, default routes of a sibling interface, and a pod of
          Calico's plugin, which sets neither the neighbours nor the alias of the host interface.

Source: docs/reference/cni.md#check; CAL-02, CAL-03.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cni.pods.endpoint import NETWORK_ANNOTATION
from cni.request.attachment import Attachment
from cni.request.errors import CNIError, Code
from cni.request.request import Request
from cni.request.result import Interface4or6
from cni.request.result_decoding import decode
from cni.verbs.attachment_state import HostSide, PodSide, Stored
from cni.verbs.delegation import destinations, is_delegated
from cni.veth.orphan_veths import HOST_MAC
from cni.veth.pod_end import EVERYTHING, GATEWAYS
from ipam.records.blocks import IPAddress
from libcalico.model import WorkloadEndpoint
from libcalico.model.keys import IPNetwork
from linux.links import Link

# Not rp_filter: felix sets it as the pod's own source prefixes ask.
HOST_INET = {"forwarding": 1, "proxy_arp": 1, "route_localnet": 1}
HOST_INET6 = {"forwarding": 1, "proxy_ndp": 1}


@dataclass(frozen=True, slots=True)
class Complaint:
    """One point that is not as it should be. `settles`: felix repairs it by itself, soon."""

    text: str
    settles: bool = False

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Expected:
    """Our own part of prevResult. `mac` "" and `host_mtu` 0: it does not say."""

    attachment: Attachment
    addresses: tuple[Interface4or6, ...]
    mac: str = ""
    host_mtu: int = 0
    destinations: tuple[IPNetwork, ...] = EVERYTHING
    own_ipam: bool = True

    @property
    def families(self) -> list[int]:
        """The IP versions of the addresses."""
        return sorted({address.version for address in self.addresses})


def expected_of(request: Request, attachment: Attachment) -> Expected:
    """What prevResult says of this attachment (PRV-08, PRV-09).

    Raises CNIError 7 when there is none or it does not list the attachment, 6 when it cannot
    be read.
    """
    if request.config.prev_result is None:
        raise CNIError(Code.INVALID_CONFIG, "Required prevResult missing")
    try:
        result = decode(request.config.prev_result, request.config.version)
    except CNIError as error:
        reason = error.msg.removeprefix("could not parse a CNI result: ")
        raise CNIError(error.code, f"could not parse prevResult: {reason}") from error
    inside = [
        (index, link)
        for index, link in enumerate(result.interfaces)
        if link.name == attachment.ifname and link.sandbox
    ]
    # A chain may list other sandboxes too; ours is the one that the runtime names.
    inside.sort(key=lambda pair: pair[1].sandbox != request.netns)
    if not inside:
        raise CNIError(
            Code.INVALID_CONFIG, f"prevResult lists no interface {attachment.ifname} of a container"
        )
    own, link = inside[0]
    addresses = tuple(ip.address for ip in result.ips if ip.interface in (None, own))
    if not addresses:
        raise CNIError(
            Code.INVALID_CONFIG, f"prevResult lists no address of interface {attachment.ifname}"
        )
    host = [
        each
        for each in result.interfaces
        if each.name == attachment.host_interface and not each.sandbox
    ]
    return Expected(
        attachment,
        addresses,
        link.mac,
        host[0].mtu if host else 0,
        destinations=destinations(request, result),
        own_ipam=not is_delegated(request),
    )


def pod_complaints(
    expected: Expected, pod: PodSide, host: HostSide, born: str = ""
) -> Iterator[Complaint]:
    """The container's end (CHK-03, CHK-05). `born` is the MAC that ADD gave it, if known."""
    name, link = expected.attachment.ifname, pod.link
    if link is None:
        yield Complaint(f"interface {name} is missing in the container")
        return
    if not link.up:
        yield Complaint(f"interface {name} in the container is down")
    if expected.mac and link.mac != expected.mac:
        yield Complaint(
            f"interface {name} in the container has the MAC {link.mac}, "
            f"prevResult says {expected.mac}"
        )
    if host.link is not None and link.peer_index != host.link.index:
        yield Complaint(f"interface {name} is not the other end of {host.link.name}")
    present = {address.interface for address in pod.addresses if address.index == link.index}
    for address in expected.addresses:
        if address not in present:
            yield Complaint(f"address {address} is missing on {name} in the container")
    for family in expected.families:
        gateway = GATEWAYS[family]
        ways = [network for network in expected.destinations if network.version == family]
        yield from _route_complaints(link.index, pod, gateway, ways)
        entries = [n for n in pod.neighbours if n.index == link.index and n.address == gateway]
        known = any(entry.permanent and entry.mac == HOST_MAC for entry in entries)
        # Calico's plugin sets none, and no alias: proxy ARP answers there.
        calicos = host.link is not None and not host.link.alias
        if not known and born in ("", link.mac) and not calicos:
            yield Complaint(
                f"the permanent neighbour {gateway} is missing on {name} in the container"
            )


def _route_complaints(
    index: int, pod: PodSide, gateway: IPAddress, destinations: Sequence[IPNetwork]
) -> Iterator[Complaint]:
    # The routes of several interfaces have one key: the last ADD of a container has them.
    ways = pod.veths | {index}
    if gateway.version == 4 and not any(
        route.dst.network_address == gateway
        and route.dst.prefixlen == gateway.max_prefixlen
        and route.gateway is None
        and route.oif in ways
        for route in pod.routes
    ):
        yield Complaint(f"the route to {gateway} is missing in the container")
    for network in destinations:
        if not any(
            route.dst == network
            and route.type == "unicast"
            and any(hop.gateway == gateway and hop.oif in ways for hop in route.next_hops)
            for route in pod.routes
        ):
            which = "the default route" if network.prefixlen == 0 else f"the route to {network}"
            yield Complaint(f"{which} via {gateway} is missing in the container")


def host_complaints(expected: Expected, host: HostSide) -> Iterator[Complaint]:
    """The host's end, and the host's routes to it (CHK-03, CHK-05)."""
    attachment, link = expected.attachment, host.link
    name = attachment.host_interface
    if link is None:
        yield Complaint(f"host interface {name} is missing")
        return
    if link.alias not in ("", attachment.mark):
        # Without an alias it was made by another release; the peer proves whose it is.
        yield Complaint(f"host interface {name} belongs to another container ({link.alias})")
        return
    if not link.up:
        yield Complaint(f"host interface {name} is down", settles=True)
    if link.mac != HOST_MAC:
        yield Complaint(f"host interface {name} has the MAC {link.mac}, not {HOST_MAC}")
    if expected.host_mtu and link.mtu != expected.host_mtu:
        yield Complaint(
            f"host interface {name} has the MTU {link.mtu}, prevResult says {expected.host_mtu}"
        )
    yield from _setting_complaints(expected, link)
    for address in expected.addresses:
        route = host.routes.get(address.ip)
        if route is None or route.dst.prefixlen != address.max_prefixlen:
            yield Complaint(f"the host has no route to {address.ip}", settles=True)
        elif route.oif != link.index:
            yield Complaint(
                f"the host's route to {address.ip} does not lead to {name}", settles=True
            )


def _setting_complaints(expected: Expected, link: Link) -> Iterator[Complaint]:
    if 4 in expected.families:
        for setting, value in HOST_INET.items():
            if link.inet(setting) != value:
                yield _unset("ipv4", link.name, setting, value)
    if 6 in expected.families:
        for setting, value in HOST_INET6.items():
            if link.inet6(setting) != value:
                yield _unset("ipv6", link.name, setting, value)


def _unset(family: str, link: str, setting: str, value: int) -> Complaint:
    return Complaint(f"net.{family}.conf.{link}.{setting} is not {value}", settles=True)


def stored_complaints(expected: Expected, stored: Stored) -> Iterator[Complaint]:
    """Endpoint and allocation in the datastore (CHK-05, CHK-06)."""
    attachment, endpoint = expected.attachment, stored.endpoint
    own_ipam = expected.own_ipam and not _is_unmanaged(attachment, endpoint)
    for address in expected.addresses if own_ipam else ():
        if address.ip not in stored.addresses:
            yield Complaint(f"address {address.ip} is not allocated to this container")
    if endpoint is None:
        yield Complaint(f"WorkloadEndpoint {attachment.endpoint_key.name} does not exist")
        return
    spec, name = endpoint.spec, attachment.endpoint_key.name
    if spec.containerID != attachment.container_id:
        yield Complaint(f"WorkloadEndpoint {name} belongs to container {spec.containerID}")
        return
    if spec.node != attachment.node:
        yield Complaint(f"WorkloadEndpoint {name} is on node {spec.node}")
    if spec.interfaceName != attachment.host_interface:
        yield Complaint(f"WorkloadEndpoint {name} names the host interface {spec.interfaceName}")
    recorded = {text.partition("/")[0] for text in spec.ipNetworks}
    for address in expected.addresses:
        if str(address.ip) not in recorded:
            yield Complaint(f"WorkloadEndpoint {name} lacks the address {address.ip}")


def _is_unmanaged(attachment: Attachment, endpoint: WorkloadEndpoint | None) -> bool:
    """Whether ADD took the pod's own addresses (`ipAddrsNoIpam`): no handle holds those."""
    if endpoint is None or endpoint.spec.containerID != attachment.container_id:
        return False
    return NETWORK_ANNOTATION in (endpoint.metadata.annotations or {})
