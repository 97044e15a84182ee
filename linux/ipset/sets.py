"""IP sets over nfnetlink, in process: no ipset(8), thousands of members in one send.

A member is text in ipset's own spelling, canonical: "10.0.0.0/26" (hash:net; a host is
"10.0.0.1" without /32), "10.0.0.1" (hash:ip), "10.0.0.1,tcp:80" (hash:ip,port).

IPS-1: `members` of what `add` wrote are the same strings, if they were canonical.
Protocol: linux/netfilter/ipset/ip_set.h, protocol 6 (the oldest that kernels still speak), with
the newest revision of a type that both the kernel and ipset(8) 7 know.
Tested in tests/linux/test_ipset.py.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from socket import AF_INET, AF_INET6
from typing import Literal

from linux.closing import Closing
from linux.errors import KernelError
from linux.ipset.members import DATA, be32, decode_entry, encode_entry
from linux.netlink import wire as m
from linux.netlink.answers import Result
from linux.netlink.socket import NETLINK_NETFILTER, Socket

SetType = Literal["hash:ip", "hash:net", "hash:ip,port"]

# The newest revision per type that ipset(8) 7.17 shows; more would hide the sets from operators.
_REVISIONS: dict[SetType, int] = {"hash:ip": 6, "hash:net": 7, "hash:ip,port": 7}

_SUBSYSTEM = 6 << 8
_CREATE, _DESTROY, _SWAP, _LIST, _ADD, _DEL, _TYPE = 2, 3, 6, 7, 9, 10, 13
_PROTOCOL, _SETNAME, _TYPENAME, _REVISION, _FAMILY, _FLAGS = range(1, 7)
_ADT, _LINENO = 8, 9
_REVISION_MIN = 10
_MAXELEM, _ELEMENTS, _REFERENCES = 19, 24, 25
_LIST_NAMES, _LIST_HEADER = 2, 4
_PROTOCOL_VERSION = 6
_MEMBERS_PER_MESSAGE = 1000
_NO_TYPE = 4098
_ERRORS = {
    4097: "the kernel found the request malformed: does the member suit the set?",
    _NO_TYPE: "the kernel does not know this set type",
    4099: "there are as many sets as the kernel allows",
    4100: "the set is in use by a rule",
    4102: "a set of that name has another type",
    4103: "a member is there already (or not there)",
    4104: "the prefix length is not allowed",
    4106: "the address family is not that of the set",
    4109: "the set is in use by a rule",
    4110: "an IPv4 address is missing or malformed",
    4111: "an IPv6 address is missing or malformed",
    4352: "the set is full",
    4353: "a member is malformed",
    4354: "the protocol is not allowed",
    4355: "the protocol is missing",
}


@dataclass(frozen=True, slots=True)
class SetInfo:
    """A set as the kernel has it. `family` is 4 or 6."""

    name: str
    type: str
    family: int
    maxelem: int
    references: int
    entries: int


class IPSets(Closing):
    """A connection to the kernel's sets in the current network namespace. Blocking, quick."""

    def __init__(self) -> None:
        self._socket = Socket(family=NETLINK_NETFILTER)
        self._types: dict[tuple[str, int], int] = {}

    def another(self) -> IPSets:
        """The same sets by a connection of its own, for another thread."""
        return IPSets()

    def close(self) -> None:
        """Closes the connection; the sets stay."""
        self._socket.close()

    def create(
        self, name: str, type: SetType, family: Literal[4, 6], maxelem: int = 1 << 20
    ) -> bool:
        """Makes a set; False if an equal one exists. Raises `KernelError`.

        EEXIST: a set of that name has another type, family or size; destroy it first.
        """
        number = AF_INET if family == 4 else AF_INET6
        body = m.text(_SETNAME, _checked(name)) + m.text(_TYPENAME, type)
        body += m.u8(_REVISION, self._revision(type, number)) + m.u8(_FAMILY, number)
        body += m.nest(DATA, be32(_MAXELEM, maxelem))
        message = _message(_CREATE, m.NLM_F_CREATE | m.NLM_F_EXCL, body, number)
        result = self._socket.transact([message])[0]
        if result.errno == errno.EEXIST:
            existing = self.info(name)
            same = (type, family, maxelem)
            if existing and (existing.type, existing.family, existing.maxelem) == same:
                return False
            result.detail = f"there is {existing}"
        _check(result, f"create IP set {name}")
        return True

    def destroy(self, name: str) -> None:
        """Removes a set; fine if it is gone. Raises `KernelError` (EBUSY: a rule uses it)."""
        result = self._socket.transact([_message(_DESTROY, 0, m.text(_SETNAME, _checked(name)))])[0]
        if result.errno != errno.ENOENT:
            _check(result, f"destroy IP set {name}")

    def swap(self, one: str, other: str) -> None:
        """Exchanges the contents of two sets of one type, rules that use them included.

        At once for packets. Raises `KernelError`.
        """
        # The second name stands where a type's name stands else (IPSET_ATTR_SETNAME2).
        body = m.text(_SETNAME, _checked(one)) + m.text(_TYPENAME, _checked(other))
        result = self._socket.transact([_message(_SWAP, 0, body)])[0]
        _check(result, f"swap IP sets {one} and {other}")

    def names(self) -> list[str]:
        """The names of all sets."""
        request = _message(_LIST, 0, be32(_FLAGS, _LIST_NAMES))
        try:
            sets = self._dump(request, "list IP sets")
        except KernelError as error:
            if error.errno != errno.EINVAL:
                raise
            # So nfnetlink answers for a subsystem that it does not know.
            lack = "this kernel has no IP sets (modprobe ip_set)"
            raise KernelError(errno.EINVAL, "list IP sets", lack) from None
        return [m.as_text(attributes[_SETNAME]) for attributes in sets]

    def info(self, name: str) -> SetInfo | None:
        """What the kernel says of a set, None if there is none."""
        body = m.text(_SETNAME, _checked(name)) + be32(_FLAGS, _LIST_HEADER)
        try:
            sets = self._dump(_message(_LIST, 0, body), f"look up IP set {name}")
        except KernelError as error:
            if error.errno == errno.ENOENT:
                return None
            raise
        return _info(sets[0]) if sets else None

    def members(self, name: str) -> set[str]:
        """All members in canonical spelling. Raises `KernelError` (ENOENT)."""
        request = _message(_LIST, 0, m.text(_SETNAME, _checked(name)))
        decoded: set[str] = set()
        kind = ""
        for attributes in self._dump(request, f"list IP set {name}"):
            # Only the first part of a long list has the type.
            kind = m.as_text(attributes[_TYPENAME]) if _TYPENAME in attributes else kind
            for _, data in m.iterate_attributes(attributes.get(_ADT, b"")):
                decoded.add(decode_entry(data, kind))
        return decoded

    def add(self, name: str, members: Iterable[str]) -> None:
        """Adds members, those already present are fine. Raises `KernelError`."""
        self._change(_ADD, name, members, "add to")

    def delete(self, name: str, members: Iterable[str]) -> None:
        """Deletes members, those already gone are fine. Raises `KernelError`."""
        self._change(_DEL, name, members, "delete from")

    def _change(self, command: int, name: str, members: Iterable[str], verb: str) -> None:
        head = m.text(_SETNAME, _checked(name))
        messages = []
        waiting = iter(members)
        while part := list(islice(waiting, _MEMBERS_PER_MESSAGE)):
            data = [encode_entry(member, number) for number, member in enumerate(part, 1)]
            body = head + m.nest(_ADT, *data) + be32(_LINENO, 0)
            messages.append(_message(command, 0, body))
        for result in self._socket.transact(messages):
            _check(result, f"{verb} IP set {name}")

    def _revision(self, type: SetType, family: int) -> int:
        revision = self._types.get((type, family))
        if revision is None:
            body = m.text(_TYPENAME, type) + m.u8(_FAMILY, family)
            result = self._socket.transact([_message(_TYPE, 0, body, family)])[0]
            if result.errno == _NO_TYPE:
                module = f"ip_set_{type.replace(':', '_').replace(',', '')}"
                lack = f"this kernel has no such sets (modprobe {module})"
                raise KernelError(errno.EINVAL, f"look up IP set type {type}", lack)
            _check(result, f"look up IP set type {type}")
            attributes = m.parse_attributes(result.answers[0][1], 4)
            revision = min(attributes[_REVISION][0], _REVISIONS[type])
            if _REVISION_MIN in attributes and revision < attributes[_REVISION_MIN][0]:
                raise KernelError(
                    errno.EOPNOTSUPP, f"create a set of type {type}", "the kernel is too new"
                )
            self._types[type, family] = revision
        return revision

    def _dump(self, request: bytes, what: str) -> list[m.Attributes]:
        return [m.parse_attributes(body, 4) for _, body in self._socket.dump(request, what)]


def has_ipsets() -> bool:
    """Whether the kernel has IP sets; their module is loaded if there is one.

    Raises `KernelError` where that cannot be found out.
    """
    with IPSets() as sets:
        try:
            sets.names()
        except KernelError as error:
            if error.errno != errno.EINVAL:  # nfnetlink knows no such subsystem
                raise
            return False
    return True


def _message(command: int, flags: int, body: bytes, family: int = AF_INET) -> bytes:
    head = struct.pack("=BBH", family, 0, 0) + m.u8(_PROTOCOL, _PROTOCOL_VERSION)
    return m.message(_SUBSYSTEM | command, flags, head + body)


def _checked(name: str) -> str:
    if not 0 < len(name.encode()) < 32:
        raise ValueError(f"IP set name {name!r}: want 1 to 31 bytes")
    return name


def _check(result: Result, what: str) -> None:
    if result.errno in _ERRORS:
        code = errno.EBUSY if result.errno in (4100, 4109) else errno.EINVAL
        raise KernelError(code, what, _ERRORS[result.errno])
    result.check(what)


def _info(attributes: m.Attributes) -> SetInfo:
    data = m.parse_attributes(attributes.get(DATA, b""))
    return SetInfo(
        name=m.as_text(attributes[_SETNAME]),
        type=m.as_text(attributes[_TYPENAME]),
        family=4 if attributes[_FAMILY][0] == AF_INET else 6,
        maxelem=int.from_bytes(data.get(_MAXELEM, b""), "big"),
        references=int.from_bytes(data.get(_REFERENCES, b""), "big"),
        entries=int.from_bytes(data.get(_ELEMENTS, b""), "big"),
    )
