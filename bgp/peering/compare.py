"""What a change of the configuration does to sessions, before it is made. Pure.

For `calicoctl node bgp plan -f FILE`: the sessions of every node as they are planned now and
as they would be, and the difference, session by session. Tested in tests/bgp/test_compare.py.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from bgp.cluster.view import ClusterView
from bgp.peering import peering
from bgp.peering.passwords import Passwords, SecretRef
from bgp.peering.peering import Plan, Refused, Settings
from bgp.peering.planned import PlannedPeer
from bgp.speaker.interface import IPAddress, Peer
from libcalico.model.keys import Key

T = TypeVar("T", Peer, PlannedPeer)


class Fate(enum.Enum):
    """The effect on a session."""

    ADDED = "added"
    REMOVED = "removed"
    RESET = "reset"
    """Its definition changes: it closes and comes back, under graceful restart."""
    ADJUSTED = "adjusted"
    """It stays up; what travels over it changes."""


@dataclass(frozen=True, slots=True)
class SessionChange:
    """One session; `details` are `field: before -> after`."""

    address: IPAddress
    fate: Fate
    kind: str
    remote_as: int
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeChange:
    """One node: its sessions that change, how many do not, and peerings newly refused."""

    node: str
    sessions: tuple[SessionChange, ...]
    unchanged: int
    refused: tuple[Refused, ...] = ()


def difference(before: Plan, after: Plan) -> tuple[tuple[SessionChange, ...], int]:
    """The sessions that change, in the order of addresses, and how many do not."""
    old = {each.peer.address: each for each in before.peers}
    new = {each.peer.address: each for each in after.peers}
    changes, unchanged = [], 0
    for address in sorted(old.keys() | new.keys(), key=lambda each: (each.version, int(each))):
        change = _session(address, old.get(address), new.get(address))
        if change is None:
            unchanged += 1
        else:
            changes.append(change)
    return tuple(changes), unchanged


def _session(
    address: IPAddress, old: PlannedPeer | None, new: PlannedPeer | None
) -> SessionChange | None:
    one = new or old
    if one is None or old == new:
        return None
    kind, remote_as = one.kind, one.peer.remote_as
    if old is None or new is None:
        return SessionChange(address, Fate.ADDED if new else Fate.REMOVED, kind, remote_as)
    reset = _differing(old.peer, new.peer)
    other = _differing(old, new, without=("peer",))
    fate = Fate.RESET if reset else Fate.ADJUSTED
    return SessionChange(address, fate, kind, remote_as, (*reset, *other))


def _differing(old: T, new: T, without: tuple[str, ...] = ()) -> tuple[str, ...]:
    differences = []
    for each in fields(old):
        was, now = getattr(old, each.name), getattr(new, each.name)
        if each.name in without or was == now:
            continue
        if not each.repr:  # a password is never shown
            differences.append(f"{each.name}: changes")
        else:
            differences.append(f"{each.name}: {_text(was)} -> {_text(now)}")
    return tuple(differences)


def _text(value: object) -> str:
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return ", ".join(map(_text, value)) or "none"
    return str(value)


class Assumed(Passwords):
    """Every reference has a value, which is its name."""

    def get(self, ref: SecretRef) -> str:
        """A stand-in, different for each reference."""
        return str(ref)


def of_change(
    view: ClusterView,
    changes: Iterable[tuple[Key, Any | None]],
    settings: Settings,
) -> tuple[NodeChange, ...]:
    """The effect of applying objects (None: deleting) on the sessions of each node.

    `view` may be of any node, and stays as it is. Every named password is assumed to
    exist: the user of this command may not read Secrets.
    """
    passwords = Assumed()
    changed = _copy(view)
    for key, value in changes:
        changed.apply(key, value)
    by_node = []
    for name in sorted(view.nodes.keys() | changed.nodes.keys()):
        before = _plan(view, name, settings, passwords)
        after = _plan(changed, name, settings, passwords)
        sessions, unchanged = difference(before, after)
        refused = tuple(each for each in after.refused if each not in before.refused)
        by_node.append(NodeChange(name, sessions, unchanged, refused))
    return tuple(by_node)


def _plan(view: ClusterView, name: str, settings: Settings, passwords: Passwords) -> Plan:
    return peering.plan(replace(view, me=name), settings, passwords)


def _copy(view: ClusterView) -> ClusterView:
    """A view whose tables of nodes, peers, settings and filters may change."""
    tables = ("nodes", "configurations", "peers", "pools", "filters", "broken")
    copied = copy(view)
    for table in tables:
        setattr(copied, table, dict(getattr(view, table)))
    return copied
