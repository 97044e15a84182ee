"""The readable part of a policy resource that cannot be decoded: it closes, and never opens.

A policy whose JSON has a wrong type somewhere cannot be enforced as it was meant. If it counted
as deleted, everything that it denies would open; a network set or a profile that vanished would
empty the sets that deny rules use. So the value is read again, member by member. What is readable
keeps its meaning, and a rule that is not becomes a rule without an action, which felix lets deny.
`validate.problems` is never empty for the result. The readable ones of Felix's parameters stay in
force: one typing error must not reset all the others to their defaults.

Tested in tests/libcalico/test_salvage.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, get_origin

import msgspec

from libcalico.errors import NO_DOCUMENT
from libcalico.model.base.meta import Metadata
from libcalico.model.base.overlay import struct_fields
from libcalico.model.keys import Key, ResourceKey
from libcalico.model.kinds import KINDS, Resource
from libcalico.model.resources import policy
from libcalico.model.resources.felixconfig import FelixConfiguration, FelixConfigurationSpec
from libcalico.model.resources.policy import GlobalNetworkPolicy, NetworkPolicy
from libcalico.model.resources.rules import Rule

SETTINGS = "FelixConfiguration"
KINDS_OF_POLICY = frozenset(
    {*policy.POLICY_KINDS, "Tier", "Profile", "NetworkSet", "GlobalNetworkSet", "HostEndpoint"}
)
UNREADABLE = Rule()
UNREADABLE_TEXT = "?"
"""This text is no selector, no name of a tier, no direction and no network."""

_RULES = ("ingress", "egress")
_TEXTS = ("nets", "profiles", "expectedIPs")


def salvage(key: Key, raw: bytes) -> Resource | None:
    """Make a resource of undecodable bytes; None for kinds that need none."""
    if not isinstance(key, ResourceKey) or key.kind not in {*KINDS_OF_POLICY, SETTINGS}:
        return None
    type_ = KINDS[key.kind].type
    tree = _mapping(_tree(raw))
    if key.kind == SETTINGS:
        return FelixConfiguration(metadata=_metadata(key, tree), spec=_parameters(tree.get("spec")))
    resource: Resource = type_(
        metadata=_metadata(key, tree), spec=_spec(struct_fields(type_)["spec"], tree.get("spec"))
    )
    if isinstance(resource, (NetworkPolicy, GlobalNetworkPolicy)):
        return policy.shown(resource, key.name)
    return resource


def _tree(raw: bytes) -> object:
    try:
        return msgspec.json.decode(raw)
    except NO_DOCUMENT:
        return None


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        return {}
    return {name: one for name, one in value.items() if one is not None}


def _metadata(key: ResourceKey, tree: Mapping[str, object]) -> Metadata:
    members = _mapping(tree.get("metadata"))
    try:
        metadata = msgspec.convert(members, Metadata)
    except msgspec.ValidationError:
        # Labels decide which selectors find a network set.
        labels = _texts(_mapping(members.get("labels")))
        annotations = _texts(_mapping(members.get("annotations")))
        metadata = Metadata(name=key.name, labels=labels, annotations=annotations)
    # The namespace decides whom a policy selects: the key's is always readable.
    return msgspec.structs.replace(
        metadata, name=metadata.name or key.name, namespace=key.namespace
    )


def _spec(type_: Any, value: object) -> Any:
    fields = struct_fields(type_)
    members = _mapping(value)
    doubtful = not isinstance(value, Mapping)
    known: dict[str, Any] = {}
    for name, member in members.items():
        if name not in fields:
            continue
        try:
            known[name] = msgspec.convert(member, fields[name])
        except msgspec.ValidationError:
            readable = _member(name, fields[name], member)
            doubtful = doubtful or readable is None
            if readable is not None:
                known[name] = readable
    if doubtful and "ingress" in fields:
        # A lost member, such as the order, could put a rule that denies behind one that allows.
        for name in _RULES:
            known[name] = [UNREADABLE, *known.get(name, [])]
        if "types" in fields:
            known["types"] = [policy.INGRESS, policy.EGRESS]
    elif doubtful and "profiles" in fields:
        # No profile can have this name, so a host endpoint that depends on it is closed.
        known["profiles"] = [UNREADABLE_TEXT, *known.get("profiles", [])]
    elif doubtful and "defaultAction" in fields:
        # A tier without a readable place denies at its end, as an undefined one does.
        known["defaultAction"] = UNREADABLE_TEXT
    elif doubtful:
        known["nets"] = [UNREADABLE_TEXT, *known.get("nets", [])]
    return type_(**known)


def _parameters(value: object) -> FelixConfigurationSpec:
    fields = struct_fields(FelixConfigurationSpec)
    known: dict[str, Any] = {}
    for name, member in _mapping(value).items():
        if name in fields:
            with suppress(msgspec.ValidationError):
                known[name] = msgspec.convert(member, fields[name])
    return FelixConfigurationSpec(**known)


def _member(name: str, type_: object, value: object) -> object:
    """The readable part of one member; None if its meaning is lost."""
    if name in _RULES:
        return [_rule(item) for item in value] if isinstance(value, list) else [UNREADABLE]
    if type_ is str:
        return UNREADABLE_TEXT
    if get_origin(type_) is list and isinstance(value, list) and name in _TEXTS:
        return [item if isinstance(item, str) else UNREADABLE_TEXT for item in value]
    if get_origin(type_) is dict and isinstance(value, Mapping):
        # A pair that is no label makes the rest doubtful for `problems` all the same.
        return _texts(value) | {UNREADABLE_TEXT: UNREADABLE_TEXT}
    return None


def _texts(value: Mapping[str, object]) -> dict[str, str]:
    return {str(key): one for key, one in value.items() if isinstance(one, str)}


def _rule(value: object) -> Rule:
    try:
        return msgspec.convert(value, Rule)
    except msgspec.ValidationError:
        return UNREADABLE
