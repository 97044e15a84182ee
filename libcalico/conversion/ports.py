"""Ports of a Kubernetes rule, grouped as Calico groups them: one list for each protocol.

Tested in tests/libcalico/test_conversion.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from libcalico.conversion import tree
from libcalico.errors import InvalidValue
from libcalico.model.base.numorstring import PORT_NAME
from libcalico.model.resources.rules import EntityRule
from libcalico.model.validation.checks import indexed

PROTOCOLS = ("TCP", "UDP", "SCTP")
_FIELDS = frozenset({"protocol", "port", "endPort"})
_PORT_RULE = "must be 1 to 65535 or the name of a port"

Ports = list[int | str]


def by_protocol(entries: Sequence[object], path: str) -> dict[str, Ports]:
    """The ports of each protocol, protocols sorted; no ports: every port of that protocol.

    Raises InvalidValue for an entry that cannot be converted.
    """
    grouped: dict[str, Ports] = {}
    unlimited: set[str] = set()
    for where, item in indexed(path, entries):
        entry = tree.as_mapping(item, where)
        tree.only(entry, _FIELDS, where)
        protocol = tree.text(entry, "protocol", where) or "TCP"
        if protocol.upper() not in PROTOCOLS:
            raise InvalidValue(f"{where}.protocol", protocol, "must be TCP, UDP or SCTP")
        protocol = protocol.upper()
        ports = grouped.setdefault(protocol, [])
        if entry.get("port") is None:
            if entry.get("endPort") is not None:
                raise InvalidValue(f"{where}.endPort", entry["endPort"], "needs a port")
            unlimited.add(protocol)
        else:
            ports.append(_port(entry, where))
    return {
        protocol: [] if protocol in unlimited else simplified(ports)
        for protocol, ports in sorted(grouped.items())
    }


def sides(ingress: bool, peer: EntityRule, ports: Ports) -> tuple[EntityRule, EntityRule]:
    """(source, destination) of a rule about a peer; the ports are the destination's."""
    if ingress:
        return peer, EntityRule(ports=ports)
    return EntityRule(), replace(peer, ports=ports)


def simplified(ports: Ports) -> Ports:
    """Names first, then sorted ranges without overlap; a list with one number stays as it is."""
    ranges = sorted(_range(port) for port in ports if isinstance(port, int) or ":" in port)
    if sum(last - first + 1 for first, last in ranges) <= 1:
        return ports
    merged: list[tuple[int, int]] = []
    for first, last in ranges:
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    names: Ports = [port for port in ports if isinstance(port, str) and ":" not in port]
    return names + [first if first == last else f"{first}:{last}" for first, last in merged]


def _range(port: int | str) -> tuple[int, int]:
    if isinstance(port, int):
        return port, port
    first, _, last = port.partition(":")
    return int(first), int(last)


def _port(entry: tree.Tree, path: str) -> int | str:
    value, end = entry["port"], entry.get("endPort")
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, str) and PORT_NAME.fullmatch(value):
        if end is not None:
            raise InvalidValue(f"{path}.endPort", end, "only with a numeric port")
        return value
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 65535:
        raise InvalidValue(f"{path}.port", value, _PORT_RULE)
    if end is None:
        return value
    if isinstance(end, bool) or not isinstance(end, int) or not value <= end <= 65535:
        raise InvalidValue(f"{path}.endPort", end, f"must be {value} to 65535")
    return value if end == value else f"{value}:{end}"
