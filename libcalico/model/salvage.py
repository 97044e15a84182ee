"""What is left of a policy that cannot be decoded: enough to close, never to open.

A policy whose JSON has a wrong type somewhere cannot be enforced as it was meant. Treated
as if it were gone, everything that it denies would open. So it is read again, member by
member: what is readable keeps its meaning, a rule that is not becomes a rule without an
action, and `validate.problems` is never empty for the result. Whoever enforces policy lets
such a rule deny.

Tested in tests/libcalico/test_salvage.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from libcalico.model import policy
from libcalico.model.keys import Key, ResourceKey
from libcalico.model.kinds import KINDS
from libcalico.model.meta import Metadata
from libcalico.model.overlay import struct_fields
from libcalico.model.policy import Policy
from libcalico.model.rules import Rule

UNREADABLE = Rule()
UNREADABLE_TEXT = "?"
"""Neither a selector, nor the name of a tier, nor a direction."""


def salvage(key: Key, raw: bytes) -> Policy | None:
    """A policy that stands for undecodable bytes; None for other kinds of objects."""
    if not isinstance(key, ResourceKey) or key.kind not in policy.POLICY_KINDS:
        return None
    type_ = KINDS[key.kind].type
    tree = _mapping(_tree(raw))
    found: Policy = type_(
        metadata=_metadata(key, tree), spec=_spec(struct_fields(type_)["spec"], tree.get("spec"))
    )
    return policy.shown(found, key.name)


def _tree(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        return {}
    return {name: one for name, one in value.items() if one is not None}


def _metadata(key: ResourceKey, tree: Mapping[str, Any]) -> Metadata:
    try:
        found = msgspec.convert(_mapping(tree.get("metadata")), Metadata)
    except msgspec.ValidationError:
        found = Metadata(name=key.name)
    # The namespace decides whom a policy selects: the key's is always readable.
    return msgspec.structs.replace(found, namespace=key.namespace)


def _spec(type_: Any, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return type_(
            ingress=[UNREADABLE], egress=[UNREADABLE], types=[policy.INGRESS, policy.EGRESS]
        )
    fields = struct_fields(type_)
    known: dict[str, Any] = {}
    all_readable = True
    for name, one in value.items():
        if one is None or name not in fields:
            continue
        try:
            known[name] = msgspec.convert(one, fields[name])
        except msgspec.ValidationError:
            if name in ("ingress", "egress"):
                known[name] = _rules(one)
            elif fields[name] is str:
                known[name] = UNREADABLE_TEXT
            else:
                all_readable = False
                if name == "types":
                    known[name] = [policy.INGRESS, policy.EGRESS]
    if not all_readable:
        # An order that nobody knows could put a rule that denies behind one that allows.
        for name in ("ingress", "egress"):
            known[name] = [UNREADABLE, *known.get(name, [])]
    return type_(**known)


def _rules(value: Any) -> list[Rule]:
    if not isinstance(value, list):
        return [UNREADABLE]
    found = []
    for one in value:
        try:
            found.append(msgspec.convert(one, Rule))
        except msgspec.ValidationError:
            found.append(UNREADABLE)
    return found
