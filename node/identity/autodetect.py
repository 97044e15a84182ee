"""The choice of the node's address among those of its interfaces. Pure.

Interfaces are examined in reverse kernel order, as Calico does, so that both choose the same
address on the same machine. There is one difference. Where no method is named and this machine is a
node of Kubernetes, its InternalIP is chosen if an interface has it: all others know the node by
that address, and first-found often chooses another one. Every choice has a reason for the log.
Source: docs/reference/data-model.md#autodetection. Tested in `tests/node/test_autodetect.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_interface, ip_network

from libcalico.errors import InvalidValue, MuslinError
from libcalico.model.keys import IPNetwork
from node.settings.environment import INTERNAL_IP, METHODS_TOLD, AddressSetting, IPInterface

IPAddress = IPv4Address | IPv6Address

EXCLUDED = tuple(
    re.compile(pattern)
    for pattern in (
        "^docker.*",
        "^cbr.*",
        "^dummy.*",
        "^podman.*",
        "^virbr.*",
        "^lxcbr.*",
        "^veth.*",
        "^lo",
        "^br-.*",
        "^cali.*",
        "^tunl.*",
        "^flannel.*",
        "^kube-ipvs.*",
        "^cni.*",
        r"^vxlan\.calico.*",
        r"^vxlan-v6\.calico.*",
        r"^wireguard\.cali.*",
        r"^wg-v6\.cali.*",
        "^nodelocaldns.*",
    )
)


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface and its addresses with their real prefix lengths, in kernel order."""

    name: str
    addresses: tuple[IPInterface, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """An address with its mask, and the reason that the log shows.

    `ordered`: it is only the first of several that the method allows.
    """

    address: IPInterface
    why: str
    ordered: bool = False


def choose(
    setting: AddressSetting,
    version: int,
    interfaces: Sequence[Interface],
    source_towards: Callable[[str, int], IPAddress | None],
    internal: Iterable[IPAddress] = (),
) -> Choice | None:
    """The address that `setting` means on this node, None when no interface has one.

    `source_towards(host, version)` is the source address that the kernel would use towards
    a host; `internal` are the InternalIPs of the node in Kubernetes. Raises `InvalidValue` for
    an unknown method.
    """
    if setting.mode == "explicit" and setting.address is not None:
        return _explicit(setting.address, setting.has_mask, interfaces)
    variable = "IP_AUTODETECTION_METHOD" if version == 4 else "IP6_AUTODETECTION_METHOD"
    ours = next((one for one in internal if one.version == version), None)
    if setting.method == INTERNAL_IP:
        if ours is None:
            return None
        return Choice(with_local_mask(ours, interfaces), "the InternalIP of the Kubernetes node")
    declined = ""
    if not setting.asked and ours is not None:
        masked = with_local_mask(ours, interfaces)
        if any(ours == one.ip for one in local(interfaces, version)):
            return Choice(masked, "the InternalIP of the Kubernetes node, on an interface here")
        declined = f" (the InternalIP {ours} of the Kubernetes node is on no interface here)"
    method, _, argument = setting.method.partition("=")
    if method == "can-reach" and argument:
        source = source_towards(argument, version)
        if source is None:
            return None
        return Choice(with_local_mask(source, interfaces), f"the source address towards {argument}")
    if method == "cidr" and argument:
        networks = [_network(variable, part) for part in argument.split(",")]
        allowed = [network for network in networks if network.version == version]
        for interface, address in _candidates(version, interfaces):
            if any(address.ip in network for network in allowed):
                why = f"the first address inside {argument}, on {interface.name}"
                return Choice(address, why, ordered=True)
        return None
    if method == "interface" and argument:
        patterns = _patterns(variable, argument)
        chosen = [one for one in interfaces if _matches(one.name, patterns)]
    elif method == "skip-interface" and argument:
        skipped = (*EXCLUDED, *_patterns(variable, argument))
        chosen = [one for one in interfaces if not _matches(one.name, skipped)]
    elif setting.method == "first-found":
        chosen = [one for one in interfaces if not _matches(one.name, EXCLUDED)]
    else:
        raise InvalidValue(variable, setting.method, f"allowed: {METHODS_TOLD}")
    candidates = list(_candidates(version, chosen))
    for interface, address in candidates:
        why = f"the first address found by {setting.method}, on {interface.name}{declined}"
        return Choice(address, why + _beside(interface, candidates), ordered=True)
    return None


def _beside(taken: Interface, candidates: Sequence[tuple[Interface, IPInterface]]) -> str:
    """The other candidates, for the log: with two NICs the first may not be the expected one."""
    others = [f"{address} on {one.name}" for one, address in candidates if one is not taken]
    return f"; the interface made last comes first, before {', '.join(others)}" if others else ""


def choose_again(
    setting: AddressSetting,
    stored: IPInterface | None,
    version: int,
    interfaces: Sequence[Interface],
    source_towards: Callable[[str, int], IPAddress | None],
    internal: Iterable[IPAddress] = (),
) -> Choice | None:
    """The choice of a node that has an address already.

    The order of interfaces changes with every new interface. So an address that is still here, and
    that the method allows, is not given up for one that only comes first.
    """
    internal = tuple(internal)
    choice = choose(setting, version, interfaces, source_towards, internal)
    if choice is None or stored is None or not choice.ordered:
        return choice
    only = [
        Interface(one.name, tuple(each for each in one.addresses if each.ip == stored.ip))
        for one in interfaces
    ]
    kept = choose(setting, version, only, source_towards, internal)
    return kept or choice


def local(interfaces: Iterable[Interface], version: int) -> Iterator[IPInterface]:
    """Every global address of the node."""
    for _, address in _candidates(version, list(interfaces)):
        yield address


def with_local_mask(address: IPAddress, interfaces: Iterable[Interface]) -> IPInterface:
    """The address with the mask of the interface that has it; alone (/32, /128) if none has."""
    for interface in interfaces:
        for candidate in interface.addresses:
            if candidate.ip == address:
                return candidate
    return ip_interface(address)


def shown(interfaces: Iterable[Interface]) -> list[Interface]:
    """The interfaces that a Node resource lists: default excludes applied, sorted by name."""
    kept = [one for one in interfaces if not _matches(one.name, EXCLUDED)]
    return sorted(kept, key=lambda one: one.name)


def is_global(address: IPAddress) -> bool:
    """Whether an address can be reached from other hosts (Go's `IsGlobalUnicast`)."""
    return not (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
        or (address.version == 4 and int(address) == 0xFFFFFFFF)
    )


def _explicit(address: IPInterface, has_mask: bool, interfaces: Sequence[Interface]) -> Choice:
    if has_mask:
        return Choice(address, "set by hand")
    masked = with_local_mask(address.ip, interfaces)
    return Choice(masked, "set by hand, with the mask of the interface that has it")


def _candidates(
    version: int, interfaces: Sequence[Interface]
) -> Iterator[tuple[Interface, IPInterface]]:
    for interface in reversed(interfaces):
        for address in interface.addresses:
            if address.version == version and is_global(address.ip):
                yield interface, address


def _matches(name: str, patterns: Iterable[re.Pattern[str]]) -> bool:
    return any(pattern.search(name) for pattern in patterns)


def _patterns(variable: str, text: str) -> list[re.Pattern[str]]:
    try:
        return [re.compile(part.strip()) for part in text.split(",") if part.strip()]
    except re.error as error:
        raise InvalidValue(variable, text, f"not a regular expression: {error}") from None


def _network(variable: str, text: str) -> IPNetwork:
    try:
        return ip_network(text.strip(), strict=False)
    except ValueError:
        raise InvalidValue(variable, text, "not a CIDR such as 10.0.0.0/8") from None


def require(choice: Choice | None, variable: str, method: str) -> Choice:
    """The choice, or a `MuslinError` that says how to name one."""
    if choice is None:
        raise MuslinError(
            f"no address was found for {variable} by {method}:"
            f" set {variable} or {variable}_AUTODETECTION_METHOD (allowed: {METHODS_TOLD})"
        )
    return choice
