"""The sets that rules refer to, their ids, and what an item has in one. Pure.

Tested in tests/felix/calc/policy/test_sets.py and test_rules.py.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

from felix.calc.sets.population import Members, Ports, texts
from libcalico.selectors.selectors import Selector

Port = tuple[str, str]


@dataclass(frozen=True, slots=True)
class SetNeed:
    """A set that a rule refers to: what `selector` matches, or its port (protocol, name)."""

    id: str
    selector: Selector
    port: Port | None = None


def selector_set(selector: Selector) -> SetNeed:
    """The set of what a selector matches; its id is Calico's
    (docs/reference/dataplane.md#identity-of-sets)."""
    return SetNeed(selector.uid, selector)


def port_set(selector: Selector, protocol: str, name: str) -> SetNeed:
    """The set of addresses with the number that each gives a named port."""
    text = f"n:{selector.uid},{protocol},{name}"
    digest = hashlib.sha224(text.encode()).digest()
    uid = "n:" + base64.urlsafe_b64encode(digest).decode().rstrip("=")
    return SetNeed(uid, selector, (protocol, name))


def contribution(members: Members, ports: Ports, port: Port | None) -> frozenset[str]:
    """What an item with these members and ports has in a set."""
    if port is None:
        return frozenset((members,) if isinstance(members, str) else members)
    return frozenset(
        f"{address},{own.protocol}:{own.number}"
        for own in ports
        if (own.protocol, own.name) == port
        for address in texts(members)
    )
