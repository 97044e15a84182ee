"""Rules that iptables can see, written without starting iptables.

Problem: a restore is a process of 3 to 5 ms, and a new pod's rules are those of the pods before it
under other names. So a rule that a restore has written twice is read from the kernel once, and the
next one of its kind is sent as the same bytes with its own hash, interface and target in them, in a
batch of nf_tables. The kernel holds what a restore would have left; iptables lists and removes it.

Undesired objects are removed the same way: chains by name, a rule by its handle, which is read
together with its hash just before.

A batch that holds a line of an unknown kind is left to the restore as a whole, and so is every
batch that the kernel refuses.

PKD-1: a packed batch leaves the same rules as a restore of the same lines.
PKD-2: nothing is packed that could carry state over from the rule it was learned of (counters
       start at zero; only matches and actions that are known to be plain).
PKD-3: a packed batch takes no rule away but the one whose hash was asked for.
Tested in tests/linux/test_iptables_packed.py and tests/linux/test_iptables_packed_sweep.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from linux.errors import KernelError
from linux.iptables.hashes import HashScheme
from linux.iptables.kinds import DispatchRule, Line, PackedKind, Reader, packed_kind
from linux.iptables.render import Addition, Filling, Removal, Step
from linux.iptables.templates import Templates
from linux.nftables import messages
from linux.nftables.connection import Connection
from linux.nftables.expressions import Family

_DECLARED = re.compile(r":(\S+) - \[0:0\]")
_SAYING = (messages.RULE_USERDATA, messages.RULE_EXPRESSIONS)
"""Where a rule's comment stands."""
_MOST, _MOST_DISPATCH = 4000, 200
"""Kinds of rules, and of rules of dispatch, that are remembered."""


class Drifted(Exception):
    """Another program changed this chain of ours since it was read."""


class Packer:
    """The kinds of rules of one table that are known."""

    def __init__(self, table: str, family: Family, scheme: HashScheme) -> None:
        self._table, self._family, self._prefix = table, family, scheme.prefix
        self._ours, self._reader = scheme.owns, Reader(scheme)
        self._known: dict[tuple[str, int, int], PackedKind] = {}
        self._seen: set[tuple[str, int, int]] = set()
        self._templates = Templates(table, family)
        # The shape of rules of dispatch, and how they are packed.
        self._dispatch: dict[tuple[str, str, bool, int, int], tuple[str, PackedKind]] = {}
        self._connection: Connection | None = None

    def pack(self, lines: Sequence[Step]) -> list[bytes] | None:
        """The batch that replaces a restore of these lines; None where a line is of no known kind.

        Raises `Drifted` where a rule that is to be taken away is not where it was.
        """
        requests: list[bytes] = []
        places: dict[str, bytes] = {}
        # First, so that a restore instead of this does not take another rule away either.
        removals = [step for step in lines if isinstance(step, Removal)]
        try:
            gone = self._removals(removals, places)
        except (KernelError, OSError):
            return None
        for step in lines:
            if isinstance(step, Removal):
                requests.append(gone[step])
                continue
            if not isinstance(step, Filling):
                if not self._pack(step, requests, places):
                    return None
                continue
            filled = self._templates.filled(step)
            if filled is not None:
                requests += filled
            elif not all(self._pack(each, requests, places) for each in step.additions):
                return None
        return requests

    def _pack(self, step: str | Addition, requests: list[bytes], places: dict[str, bytes]) -> bool:
        """Pack one line. `places` remembers chains; False: the line is of no known kind."""
        dispatch: DispatchRule | None = None
        if isinstance(step, Addition):
            tail = self._templates.rule_tail(step)
            if tail is None:
                dispatch = DispatchRule.of(step.rule, self._ours)
                tail = self._by_dispatch(dispatch, step.hash) if dispatch is not None else None
            if tail is not None:
                place = self._place(step.chain, places)
                requests.append(self._templates.add_rule(place + tail, first=step.first))
                return True
        text = str(step)
        if text.startswith(":"):
            declared = _DECLARED.fullmatch(text)
            if declared is None:
                return False
            requests += self._templates.declared(declared.group(1))
            return True
        if text.startswith("-X "):
            requests.append(messages.delete_chain(self._family, self._table, text[3:]))
            return True
        line = self._reader.read(text)
        known = self._known.get(line.kind.shape) if line else None
        if line is None or known is None:
            return False
        tail = known.renamed(line)
        place = self._place(line.chain, places)
        requests.append(self._templates.add_rule(place + tail, first=line.first))
        if isinstance(step, Addition):
            if not line.kind.interface:
                self._templates.keep(step.rule, tail, line.hash.encode())
            elif dispatch is not None and line.kind.target:
                if len(self._dispatch) >= _MOST_DISPATCH:
                    self._dispatch.clear()
                self._dispatch[dispatch.kind] = line.kind.shape[0], known
        return True

    def _by_dispatch(self, dispatch: DispatchRule, own: str) -> bytes | None:
        """A rule of dispatch, if one of its kind was packed before; as `Reader.read` finds it."""
        shape, known = self._dispatch.get(dispatch.kind, ("", None))
        # What is said twice may mean another thing each time.
        if known is None or dispatch.interface in shape or dispatch.target in shape:
            return None
        return known.named(own.encode(), dispatch.target.encode(), dispatch.interface.encode())

    def _removals(self, steps: Sequence[Removal], places: dict[str, bytes]) -> dict[Removal, bytes]:
        """The requests that remove these rules (PKD-3); `places` remembers chains.

        Raises `Drifted`: another rule stands there; `KernelError`, `OSError`: the kernel does not
        say which.
        """
        chains = {step.chain for step in steps}
        rules_of = {
            chain: self._connect().rules(self._family, self._table, chain) for chain in chains
        }
        requests: dict[Removal, bytes] = {}
        for step in steps:
            rules = rules_of[step.chain]
            rule = rules[step.number - 1] if step.number <= len(rules) else {}
            own = f"{self._prefix}{step.hash}".encode()
            if not step.hash or not any(own in rule.get(part, b"") for part in _SAYING):
                raise Drifted(step.chain)
            place, handle = self._place(step.chain, places), rule[messages.RULE_HANDLE]
            requests[step] = messages.delete_rule(self._family, place, handle)
        return requests

    def _place(self, chain: str, places: dict[str, bytes]) -> bytes:
        place = places.get(chain)
        if place is None:
            place = places[chain] = messages.chain_place(self._table, chain)
        return place

    def send(self, requests: Sequence[bytes]) -> None:
        """Commit a batch. Raises `KernelError`: the kernel did nothing of it."""
        self._connect().commit(requests, [f"table {self._table}"] * len(requests))

    def learn(self, lines: Iterable[Step]) -> None:
        """Learn from lines that were just restored: a kind seen before is read from the kernel."""
        unknown: dict[str, list[Line]] = {}
        for step in lines:
            line = self._reader.read(str(step))
            if line is None or line.kind.shape in self._known:
                continue
            if line.kind.shape in self._seen:
                unknown.setdefault(line.chain, []).append(line)
            else:
                self._seen.add(line.kind.shape)
        if len(self._seen) > _MOST or len(self._known) > _MOST:
            self.forget()
            return
        for chain, unlearned in unknown.items():
            try:
                listed = self._connect().rules(self._family, self._table, chain)
            except (KernelError, OSError):
                return
            for line in unlearned:
                for attributes in listed:
                    known = packed_kind(attributes, line)
                    if known is not None:
                        self._known[line.kind.shape] = known
                        break

    def forget(self) -> None:
        """Forget all that was learned."""
        self._known.clear()
        self._seen.clear()
        self._reader.forget()
        self._templates.clear()
        self._dispatch.clear()

    def close(self) -> None:
        """Give the connection back."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = Connection()
        return self._connection
