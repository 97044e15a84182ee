"""Protocols and ports of a ClusterNetworkPolicy's rule, in the form of Calico's rules.

Tested in tests/libcalico/test_cluster_policy.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from libcalico.conversion import tree
from libcalico.conversion.ports import Ports, simplified
from libcalico.conversion.tree import Tree
from libcalico.errors import InvalidValue
from libcalico.model.base.numorstring import PORT_NAME
from libcalico.model.validation.checks import indexed

NAMED = "destinationNamedPort"
PROTOCOLS = ("sctp", "tcp", "udp")
NAMES = tuple(one.upper() for one in PROTOCOLS)
_FIELDS = frozenset({*PROTOCOLS, NAMED})


def by_protocol(entries: Sequence[object], path: str) -> list[tuple[str | None, Ports]]:
    """Protocols, sorted, with their ports (none: every port); None is any protocol.

    No entries are everything. A named port has the protocol of the container's port: it stands
    with each of them. Raises InvalidValue.
    """
    if not entries:
        return [(None, [])]
    ports_of: dict[str, Ports] = {}
    unlimited: set[str] = set()
    for where, item in indexed(path, entries):
        protocol, port = _entry(tree.as_mapping(item, where), where)
        for name in [protocol] if protocol else NAMES:
            ports = ports_of.setdefault(name, [])
            if port is None:
                unlimited.add(name)
            else:
                ports.append(port)
    return [
        (protocol, [] if protocol in unlimited else simplified(ports))
        for protocol, ports in sorted(ports_of.items())
    ]


def _entry(entry: Tree, path: str) -> tuple[str, int | str | None]:
    tree.only(entry, _FIELDS, path)
    name = tree.exactly_one(entry, sorted(_FIELDS), path)
    if name == NAMED:
        port = tree.text(entry, NAMED, path)
        if not PORT_NAME.fullmatch(port):
            raise InvalidValue(f"{path}.{NAMED}", port, "must be the name of a port")
        return "", port
    where = f"{path}.{name}"
    below = tree.mapping(entry, name, path)
    tree.only(below, frozenset({"destinationPort"}), where)
    if below.get("destinationPort") is None:
        return name.upper(), None
    port_path = f"{where}.destinationPort"
    return name.upper(), _port(tree.mapping(below, "destinationPort", where), port_path)


def _port(port: Tree, path: str) -> int | str:
    tree.only(port, frozenset({"number", "range"}), path)
    if tree.exactly_one(port, ("number", "range"), path, " and ") == "number":
        return _number(port, "number", path)
    ends = tree.mapping(port, "range", path)
    where = f"{path}.range"
    tree.only(ends, frozenset({"start", "end"}), where)
    first, last = _number(ends, "start", where), _number(ends, "end", where)
    if first >= last:
        raise InvalidValue(f"{where}.end", last, f"must be greater than start, {first}")
    return f"{first}:{last}"


def _number(port: Tree, name: str, path: str) -> int:
    value = port.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 65535:
        raise InvalidValue(f"{path}.{name}", value, "must be 1 to 65535")
    return value
