"""The table of v1 kinds, and the conversion of a v1 tree to v3 trees.

Documents of the first generation still stand in runbooks. The conversion keeps their meaning. It
refuses fields that v3 cannot express or that v1 did not have, with their path in the document.
Kinds may be written in any letter case.

Tested in tests/libcalico/test_legacy.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeGuard

import msgspec

from libcalico.errors import InvalidValue, UnsupportedKind
from libcalico.legacy import endpoints, infrastructure, policies, shapes
from libcalico.model.base.base import Struct
from libcalico.model.base.meta import API_VERSION
from libcalico.model.base.shape import UNKNOWN_FIELD, shape_problems, without_nulls

OLD_VERSION = "v1"
CONFIG_KIND = "calicoApiConfig"
_TOP = ("apiVersion", "kind", "metadata", "spec")


@dataclass(frozen=True, slots=True)
class _OldKind:
    name: str
    identity: str
    metadata: type[Struct]
    spec: type[Struct]
    convert: Callable[..., dict[str, object]]


_KINDS = {
    kind.name.lower(): kind
    for kind in (
        _OldKind(
            "ipPool", "cidr", shapes.V1IPPoolMetadata, shapes.V1IPPoolSpec, infrastructure.pool
        ),
        _OldKind(
            "bgpPeer",
            "peerIP",
            shapes.V1BGPPeerMetadata,
            shapes.V1BGPPeerSpec,
            infrastructure.bgp_peer,
        ),
        _OldKind("node", "name", shapes.V1Named, shapes.V1NodeSpec, infrastructure.node),
        _OldKind("policy", "name", shapes.V1PolicyMetadata, shapes.V1PolicySpec, policies.policy),
        _OldKind(
            "profile", "name", shapes.V1ProfileMetadata, shapes.V1ProfileSpec, policies.profile
        ),
        _OldKind(
            "hostEndpoint",
            "name",
            shapes.V1HostEndpointMetadata,
            shapes.V1HostEndpointSpec,
            endpoints.host_endpoint,
        ),
        _OldKind(
            "workloadEndpoint",
            "name",
            shapes.V1WorkloadEndpointMetadata,
            shapes.V1WorkloadEndpointSpec,
            endpoints.workload_endpoint,
        ),
    )
}


def is_legacy(tree: object) -> TypeGuard[Mapping[str, object]]:
    """Whether a parsed document is of the first generation, by its apiVersion."""
    return isinstance(tree, Mapping) and tree.get("apiVersion") == OLD_VERSION


def legacy_problems(tree: Mapping[str, object]) -> list[InvalidValue]:
    """All fields of a document that v1 did not have, or that have a wrong type."""
    kind, subject = _kind_of(tree)
    problems = [
        InvalidValue(str(name), "...", UNKNOWN_FIELD, subject) for name in tree if name not in _TOP
    ]
    for part, type_ in (("metadata", kind.metadata), ("spec", kind.spec)):
        value = tree.get(part)
        if value is None:
            continue
        if not isinstance(value, Mapping):
            problems.append(InvalidValue(part, value, "must be a mapping of fields", subject))
            continue
        problems += [
            InvalidValue(f"{part}.{problem.field}", problem.value, problem.rule, subject)
            for problem in shape_problems(type_, value)
        ]
    metadata = tree.get("metadata")
    if not problems and not (isinstance(metadata, Mapping) and metadata.get(kind.identity)):
        problems.append(InvalidValue(f"metadata.{kind.identity}", None, "is required", subject))
    return problems


def convert_document(tree: Mapping[str, object]) -> list[dict[str, object]]:
    """The v3 trees of a v1 document, today always one.

    Raises UnsupportedKind for a kind that v1 had not, InvalidValue for a field or value.
    """
    kind, subject = _kind_of(tree)
    for problem in legacy_problems(tree):
        raise problem
    metadata = msgspec.convert(without_nulls(tree.get("metadata") or {}), kind.metadata)
    spec = msgspec.convert(without_nulls(tree.get("spec") or {}), kind.spec)
    return [{"apiVersion": API_VERSION, **kind.convert(metadata, spec, subject)}]


def _kind_of(tree: Mapping[str, object]) -> tuple[_OldKind, str]:
    word = tree.get("kind")
    if isinstance(word, str) and word.lower() == CONFIG_KIND.lower():
        raise UnsupportedKind(
            f"{CONFIG_KIND} is no resource: it is the client's own configuration;"
            " save it as a file and name that with --config"
        )
    kind = _KINDS.get(word.lower()) if isinstance(word, str) else None
    if kind is None:
        known = ", ".join(old_kind.name for old_kind in _KINDS.values())
        raise UnsupportedKind(
            f"{word} of apiVersion {OLD_VERSION} is not a resource of Calico's first generation,"
            f" which are {known}; today's have apiVersion {API_VERSION}"
        )
    metadata = tree.get("metadata")
    identity = metadata.get(kind.identity, "") if isinstance(metadata, Mapping) else ""
    return kind, f"{kind.name}({identity})"
