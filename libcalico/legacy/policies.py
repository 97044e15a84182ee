"""Policies and profiles of the first generation as v3 trees.

Tested in tests/libcalico/test_legacy.py and tests/calicoctl/test_legacy.py.
"""

from __future__ import annotations

from libcalico.errors import InvalidValue
from libcalico.legacy import names, rules
from libcalico.legacy.shapes import (
    V1PolicyMetadata,
    V1PolicySpec,
    V1ProfileMetadata,
    V1ProfileSpec,
)

_TYPES = {"ingress": "Ingress", "egress": "Egress"}


def policy(metadata: V1PolicyMetadata, spec: V1PolicySpec, subject: str) -> dict[str, object]:
    """A GlobalNetworkPolicy: v1 policies had no namespace. Raises InvalidValue."""
    host_only = spec.doNotTrack or spec.preDNAT
    tree = {
        "order": spec.order,
        "ingress": rules.rules(spec.ingress, "spec.ingress", subject),
        "egress": rules.rules(spec.egress, "spec.egress", subject),
        "selector": rules.selector(spec.selector),
        "types": _types(spec, subject),
        "doNotTrack": spec.doNotTrack,
        "preDNAT": spec.preDNAT,
        "applyOnForward": host_only,
    }
    return {
        "kind": "GlobalNetworkPolicy",
        "metadata": {
            "name": names.policy_name(metadata.name),
            **({"annotations": dict(metadata.annotations)} if metadata.annotations else {}),
        },
        "spec": {name: value for name, value in tree.items() if value not in (None, [], "", False)},
    }


def _types(spec: V1PolicySpec, subject: str) -> list[str]:
    if not spec.types:
        if not spec.egress:
            return ["Ingress"]
        return ["Ingress", "Egress"] if spec.ingress else ["Egress"]
    directions = []
    for index, text in enumerate(spec.types):
        if text.lower() not in _TYPES:
            field = f"spec.types[{index}]"
            raise InvalidValue(field, text, "must be ingress or egress", subject)
        directions.append(_TYPES[text.lower()])
    return directions


def profile(metadata: V1ProfileMetadata, spec: V1ProfileSpec, subject: str) -> dict[str, object]:
    """A Profile; its tags become labels without a value. Raises InvalidValue."""
    labels = dict(metadata.labels)
    for index, tag in enumerate(metadata.tags):
        if tag in metadata.labels:
            field, rule = f"metadata.tags[{index}]", "is the name of a label, too: change one"
            raise InvalidValue(field, tag, rule, subject)
        labels[tag] = ""
    tree = {
        "ingress": rules.rules(spec.ingress, "spec.ingress", subject),
        "egress": rules.rules(spec.egress, "spec.egress", subject),
        "labelsToApply": labels,
    }
    return {
        "kind": "Profile",
        "metadata": {"name": names.profile_name(metadata.name)},
        "spec": {name: value for name, value in tree.items() if value},
    }
