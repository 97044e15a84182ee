"""What the simulated kernel answers to rtnetlink requests; nfnetlink goes to `sets`."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any

from linux.link_values import INET_CONF
from linux.netlink import wire as m
from tests.simulation.kernel import messages
from tests.simulation.kernel.rows import Route
from tests.simulation.kernel.state import BLACKHOLE, MAIN, Refused

if TYPE_CHECKING:
    from tests.simulation.kernel.machine import Machine

Answer = list[tuple[int, bytes]]
_NAMES = {number: name for name, number in INET_CONF.items()}
_CAPPED = 0x100


def answer(
    machine: Machine, protocol: int, port: int, data: bytes
) -> list[bytes | Iterator[bytes]]:
    """The datagrams that answer these requests; a dump is made part by part, as it is read."""
    offset = 0
    found: list[bytes | Iterator[bytes]] = []
    while offset + m.HEADER.size <= len(data):
        length, kind, flags, sequence, _ = m.HEADER.unpack_from(data, offset)
        body = data[offset + m.HEADER.size : offset + length]
        header = data[offset : offset + m.HEADER.size]
        offset += (length + 3) & ~3
        dumps = flags & m.NLM_F_DUMP == m.NLM_F_DUMP
        try:
            if protocol not in (0, 12):
                raise Refused(errno.EOPNOTSUPP)
            if protocol == 12:
                answers = machine.sets.answer(kind, flags, body)
            elif dumps:
                found.append(_walk(machine, _table(machine, kind, body), sequence, port))
                continue
            else:
                machine.namespace.port = port
                answers = _one(machine, kind, flags, body)
        except Refused as refused:
            machine.log(f"refused {kind} {body.hex()}: {refused}")
            found.append(_error(refused.number, header, sequence, port))
            continue
        finally:
            machine.namespace.port = 0
        if dumps:
            found += [_message(n, reply, sequence, port, m.NLM_F_MULTI) for n, reply in answers]
            found.append(_done(sequence, port))
            continue
        found += [_message(number, reply, sequence, port) for number, reply in answers]
        if flags & m.NLM_F_ACK:
            found.append(_error(0, header, sequence, port))
    return found


def _message(kind: int, body: bytes, sequence: int, port: int, flags: int = 0) -> bytes:
    data = m.HEADER.pack(m.HEADER.size + len(body), kind, flags, sequence, port) + body
    return data + bytes(-len(data) & 3)


def _error(code: int, header: bytes, sequence: int, port: int) -> bytes:
    body = struct.pack("=i", -code) + header
    return _message(m.NLMSG_ERROR, body, sequence, port, _CAPPED)


def _done(sequence: int, port: int, flags: int = 0) -> bytes:
    return _message(m.NLMSG_DONE, struct.pack("=i", 0), sequence, port, m.NLM_F_MULTI | flags)


Rows = list[tuple[Any, int, Callable[[Any], bytes], Any]]
"""Place in the walk, type, what makes a body, and of what."""


def _walk(machine: Machine, rows: Callable[[], Rows], sequence: int, port: int) -> Iterator[bytes]:
    """Each part is the table as it is then, behind the place where the part before ended."""
    reached: Any = None
    while True:
        left = [row for row in rows() if reached is None or row[0] > reached]
        part = left[: machine.dump_parts]
        if not part:
            break
        reached = part[-1][0]
        flags = m.NLM_F_MULTI
        yield b"".join(
            _message(kind, make(one), sequence, port, flags) for _, kind, make, one in part
        )
        machine.between_parts()
    yield _done(sequence, port)


def _table(machine: Machine, kind: int, body: bytes) -> Callable[[], Rows]:
    space = machine.namespace
    foreign = bool(body) and body[0] not in (0, 2)
    match kind:
        case 18:
            return lambda: [(n, 16, messages.link, one) for n, one in sorted(space.links.items())]
        case 22:
            return lambda: [
                ((one.index, place), 20, messages.address, one)
                for place, one in sorted(enumerate(space.addresses), key=lambda p: p[1].index)
            ]
        case 26 if foreign:
            return list
        case 26:
            table = m.as_uint(m.parse_attributes(body, 12).get(15, b""))
            if table and not any(each.table == table for each in space.routes):
                raise Refused(errno.ENOENT)
            return lambda: [
                (place, 24, messages.route, each)
                for place, each in sorted(
                    ((_place(each, number), each) for number, each in enumerate(space.routes)),
                    key=lambda pair: pair[0],
                )
                if table in (0, each.table)
            ]
        case 30:
            return lambda: [
                ((one.index, int(one.address)), 28, messages.neighbour, one)
                for one in sorted(space.neighbours.values(), key=lambda n: (n.index, n.address))
                if not foreign
            ]
    raise Refused(errno.EOPNOTSUPP)


def _place(route: Route, number: int) -> tuple[int, ...]:
    """Where the walk through the tables meets a route."""
    wide = 32 - route.dst.prefixlen
    return route.table, int(route.dst.network_address), wide, route.metric, number


def _one(machine: Machine, kind: int, flags: int, body: bytes) -> Answer:
    actions: dict[int, Callable[[Machine, int, bytes], Answer]] = {
        16: _new_link,
        17: _del_link,
        18: _get_link,
        19: _set_link,
        20: _new_address,
        21: _del_address,
        24: _new_route,
        25: _del_route,
        26: _get_route,
        28: _new_neighbour,
        29: _del_neighbour,
        67: lambda *_: [],
    }
    if kind not in actions:
        raise Refused(errno.EOPNOTSUPP)
    return actions[kind](machine, flags, body)


def _new_link(machine: Machine, flags: int, body: bytes) -> Answer:
    _, wanted, mask, found = messages.read_link(body)
    info = m.parse_attributes(found.get(18, b""))
    if m.as_text(info.get(1, b"")) != "veth":
        raise Refused(errno.EOPNOTSUPP)
    link = machine.namespace.add_cable(
        m.as_text(found[3]),
        found[1].hex(":"),
        m.as_uint(found[4]),
        up=bool(wanted & mask & 1),
    )
    return [(16, messages.link(link))] if flags & m.NLM_F_ECHO else []


def _which(machine: Machine, body: bytes) -> tuple[int, int, int, m.Attributes]:
    index, flags, mask, found = messages.read_link(body)
    if not index and 3 in found:
        index = machine.namespace.named(m.as_text(found[3])).index
    machine.namespace.indexed(index)
    return index, flags, mask, found


def _del_link(machine: Machine, flags: int, body: bytes) -> Answer:
    index, _, _, _ = _which(machine, body)
    machine.namespace.delete_link(machine.namespace.links[index])
    return []


def _get_link(machine: Machine, flags: int, body: bytes) -> Answer:
    index, _, _, _ = _which(machine, body)
    return [(16, messages.link(machine.namespace.links[index]))]


def _set_link(machine: Machine, flags: int, body: bytes) -> Answer:
    index, wanted, mask, found = _which(machine, body)
    space, link = machine.namespace, machine.namespace.links[index]
    if 1 in found:
        space.set_mac(link, found[1].hex(":"))
    if 4 in found:
        space.set_mtu(link, m.as_uint(found[4]))
    if 20 in found:
        link.alias = m.as_text(found[20])
    if 26 in found:
        inet = m.parse_attributes(m.parse_attributes(found[26]).get(2, b"")).get(1, b"")
        values = {_NAMES[n]: m.as_uint(v) for n, v in m.iterate_attributes(inet)}
        space.set_conf(link, values)
    if mask & 1:
        space.set_flags(link, up=bool(wanted & 1))
    return []


def _new_address(machine: Machine, flags: int, body: bytes) -> Answer:
    index, interface = messages.read_address(body)
    machine.namespace.add_address(index, interface, replace=bool(flags & m.NLM_F_REPLACE))
    return []


def _del_address(machine: Machine, flags: int, body: bytes) -> Answer:
    machine.namespace.remove_address(*messages.read_address(body))
    return []


def _new_route(machine: Machine, flags: int, body: bytes) -> Answer:
    machine.namespace.put_route(
        messages.read_route(body),
        create=bool(flags & m.NLM_F_CREATE),
        replace=bool(flags & m.NLM_F_REPLACE),
        exclusive=bool(flags & m.NLM_F_EXCL),
    )
    return []


def _del_route(machine: Machine, flags: int, body: bytes) -> Answer:
    machine.namespace.delete_route(messages.read_route(body))
    return []


def _get_route(machine: Machine, flags: int, body: bytes) -> Answer:
    asked = IPv4Address(m.parse_attributes(body, 12)[1])
    route = machine.namespace.lookup(asked)
    if route is None:
        raise Refused(errno.ENETUNREACH)
    if route.type == BLACKHOLE and route.table == MAIN:
        raise Refused(errno.EINVAL)
    return [(24, messages.route(route))]


def _new_neighbour(machine: Machine, flags: int, body: bytes) -> Answer:
    if body[0] == 2:
        machine.namespace.put_neighbour(*messages.read_neighbour(body))
    return []


def _del_neighbour(machine: Machine, flags: int, body: bytes) -> Answer:
    index, address, _, _ = messages.read_neighbour(body)
    machine.namespace.delete_neighbour(index, address)
    return []
