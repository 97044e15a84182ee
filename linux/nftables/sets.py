"""Named sets of our tables, with the interface of `linux.ipset.IPSets`: members are text.

A member is spelled as ipset spells it: "10.0.0.0/26" and "10.0.0.1" (hash:net),
"10.0.0.1" (hash:ip), "10.0.0.1,tcp:80" (hash:ip,port). The first becomes an interval set, in
which nothing may overlap (`linux.nftables.intervals`), the others plain hash sets.

Unlike an ipset, a set lies in a table: a flush of the table takes it along. The kernel gets no
limit, because it would reserve the room; the caller keeps it.

NFS-1: `members` of what `add` wrote are the same strings, if they were canonical.
NFS-2: one call is one batch: readers see the set before or after it.
Tested in tests/linux/test_nftables_sets.py.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from linux.closing import Closing
from linux.errors import KernelError
from linux.ipset import SetInfo, SetType
from linux.netlink import wire as m
from linux.nftables import intervals, messages
from linux.nftables.connection import Connection
from linux.nftables.expressions import Family
from linux.nftables.set_elements import (
    bounds_of,
    decode_member,
    encode_member,
    key_of_element,
    key_of_type,
    lies_in,
    parse_range,
    ranges_between,
    type_of_key,
)

_PER_MESSAGE = 400
_FOREIGN = "another type"
# Older kernels do not say how many members a set has: there may be many.
_UNCOUNTED = b"\xff\xff\xff"


@dataclass(slots=True)
class _SetState:
    """What is remembered of a set."""

    family: Family
    type: str
    ranges: intervals.Intervals | None
    count: int = 0

    @classmethod
    def empty(cls, family: Family, type: str) -> _SetState:
        return cls(family, type, intervals.Intervals(family) if type == "hash:net" else None)


class NamedSets(Closing):
    """The sets of the tables called `table`. Blocking, quick.

    `prefixes`: which families there are, and how names of sets of each begin. `naming`: from a
    name to what the kernel calls it, and back.
    """

    def __init__(
        self,
        prefixes: dict[Family, str],
        table: str,
        naming: tuple[Callable[[str], str], Callable[[str], str]] = (str, str),
    ) -> None:
        self.table = table
        self._inward, self._outward = naming
        self._prefixes = prefixes
        self._connection = Connection()
        self._known: dict[str, _SetState] = {}

    @property
    def port(self) -> int:
        """What the kernel calls our socket: changes that come from it are ours."""
        return self._connection.port

    def another(self) -> NamedSets:
        """The same sets by a connection of its own, for another thread."""
        other = NamedSets(self._prefixes, self.table, (self._inward, self._outward))
        # What one of them reads the other one knows; a set is in one thread's hands at a time.
        other._known = self._known
        return other

    def close(self) -> None:
        """Closes the connection; the sets stay."""
        self._connection.close()

    def create(
        self, name: str, type: SetType, family: Literal[4, 6], maxelem: int = 1 << 20
    ) -> bool:
        """Makes a set; False if an equal one exists. Raises `KernelError`.

        EEXIST: a set of that name has another type; destroy it first. `maxelem` is not used.
        """
        key_type, key_length = key_of_type(type, family)
        new_set = messages.new_set(
            family,
            self.table,
            self._inward(name),
            key_type=key_type,
            key_length=key_length,
            flags=messages.INTERVAL if type == "hash:net" else 0,
            exclusive=True,
        )
        requests = [messages.new_table(family, self.table), new_set]
        self._known.pop(name, None)
        try:
            self._connection.commit(requests, [f"make table {self.table}", f"create set {name}"])
        except KernelError as error:
            there = self.info(name) if error.errno == errno.EEXIST else None
            if there is None or there.type != type:
                raise
            return False
        self._known[name] = _SetState.empty(family, type)
        return True

    def destroy(self, name: str) -> None:
        """Removes a set; fine if it is gone. Raises `KernelError` (EBUSY: a rule uses it)."""
        request = messages.delete_set(self._family(name), self.table, self._inward(name))
        try:
            self._connection.commit([request], [f"destroy set {name}"])
        except KernelError as error:
            if error.errno != errno.ENOENT:
                raise
        self._known.pop(name, None)

    def swap(self, one: str, other: str) -> None:
        """Sets of ours have no size for which one would have to be built anew."""
        raise KernelError(errno.EOPNOTSUPP, f"swap sets {one} and {other}")

    def names(self) -> list[str]:
        """The names of all named sets of ours, maps excluded."""
        set_names: list[str] = []
        for family, prefix in self._prefixes.items():
            try:
                listed = self._connection.objects(messages.GETSET, family, self.table)
            except KernelError as error:
                if error.errno != errno.ENOENT:
                    raise
                continue
            for attributes in listed:
                name = self._outward(m.as_text(attributes[messages.SET_NAME]))
                flags = int.from_bytes(attributes.get(messages.SET_FLAGS, b""), "big")
                if name.startswith(prefix) and not flags & (messages.MAP | messages.ANONYMOUS):
                    set_names.append(name)
                    self._learn(name, family, attributes, flags)
        return set_names

    def _learn(self, name: str, family: Family, attributes: m.Attributes, flags: int) -> None:
        key_type = int.from_bytes(attributes.get(messages.SET_KEY_TYPE, b""), "big")
        kind = type_of_key(key_type, flags, family) or _FOREIGN
        before = self._known.get(name)
        if before is not None and before.type == kind:
            return
        known = self._known[name] = _SetState.empty(family, kind)
        known.count = int.from_bytes(attributes.get(messages.SET_COUNT, _UNCOUNTED), "big")

    def info(self, name: str) -> SetInfo | None:
        """What there is of this name, None if there is none; `maxelem` 0: no limit."""
        known = self._find(name)
        return SetInfo(name, known.type, known.family, 0, 0, known.count) if known else None

    def members(self, name: str) -> set[str]:
        """All members in canonical spelling. Raises `KernelError` (ENOENT)."""
        known = self._get(name)
        if known.type == _FOREIGN:
            return set()
        elements = self._connection.elements(known.family, self.table, self._inward(name))
        if known.ranges is None:
            keys = map(key_of_element, elements)
            decoded = {decode_member(key, known.family, known.type) for key in keys}
            known.count = len(decoded)
            return decoded
        ranges = ranges_between(elements, known.family)
        # A range that was removed covers nothing; a member that still lies in a range is present.
        covered = [each for each in known.ranges.covered() if lies_in(each, ranges)]
        known.ranges = intervals.Intervals(known.family)
        known.ranges.add(ranges)
        known.ranges.add(covered)
        known.count = len(ranges)
        return {intervals.render(each, known.family) for each in (*ranges, *covered)}

    def add(self, name: str, members: Iterable[str]) -> None:
        """Adds members, those already present are fine. Raises `KernelError`."""
        self._change(name, members, adding=True)

    def delete(self, name: str, members: Iterable[str]) -> None:
        """Deletes members that are there. Raises `KernelError`."""
        self._change(name, members, adding=False)

    def _change(self, name: str, members: Iterable[str], *, adding: bool) -> None:
        known = self._get(name)
        going: list[bytes]
        coming: list[bytes]
        if known.ranges is None:
            packed = [messages.element(encode_member(each, known.family)) for each in members]
            going, coming = ([], packed) if adding else (packed, [])
            difference = len(coming) - len(going)
        else:
            parsed = [parse_range(each, known.family, name) for each in members]
            work = known.ranges.add if adding else known.ranges.remove
            old, new = work(parsed)
            difference = len(new) - len(old)
            going, coming = bounds_of(old, known.family), bounds_of(new, known.family)
        requests = [
            messages.change_elements(
                kind, known.family, self.table, self._inward(name), elements[at : at + _PER_MESSAGE]
            )
            for kind, elements in ((messages.DELSETELEM, going), (messages.NEWSETELEM, coming))
            for at in range(0, len(elements), _PER_MESSAGE)
        ]
        try:
            self._connection.commit(requests, [f"change set {name}"] * len(requests))
        except KernelError:
            self._undo(known, name)
            raise
        known.count += difference

    def _undo(self, known: _SetState, name: str) -> None:
        """The memory is not what the kernel has: the next reading makes it so."""
        if known.ranges is not None:
            known.ranges = intervals.Intervals(known.family)
        with suppress(KernelError):
            self.members(name)

    def _family(self, name: str) -> Family:
        for family, prefix in self._prefixes.items():
            if name.startswith(prefix):
                return family
        raise KernelError(errno.ENOENT, f"look up set {name}", "not ours by its name")

    def _find(self, name: str) -> _SetState | None:
        if name not in self._known:
            self.names()
        return self._known.get(name)

    def _get(self, name: str) -> _SetState:
        known = self._find(name)
        if known is None:
            raise KernelError(errno.ENOENT, f"look up set {name}")
        return known
