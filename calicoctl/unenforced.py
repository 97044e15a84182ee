"""What we store but cannot keep, where keeping silent would be dangerous.

Encryption that does not happen is worse than none: asking for it is refused unless the
operator says that it is known. What a policy asks for beyond this release is stored, never
widens access, and is named on standard error. Tested in `tests/calicoctl/test_validate.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from libcalico.errors import InvalidValue
from libcalico.model.rules import Rule

ENCRYPTION = ("wireguardEnabled", "wireguardEnabledV6")
INSTEAD = {
    "Allow": "this Allow rule matches nothing",
    "Pass": "this Pass rule denies what the rest of it matches",
    "Log": "this Log rule logs nothing",
}
HOST_ONLY = ("doNotTrack", "preDNAT", "applyOnForward")


def refused(resource: Any) -> list[InvalidValue]:
    """The fields of a resource that ask for what this release does not enforce."""
    if resource.kind != "FelixConfiguration":
        return []
    return [
        InvalidValue(
            f"spec.{field}",
            True,
            "this release does not encrypt: leave it out,"
            " or give --accept-unenforced to store it all the same",
            f"FelixConfiguration({resource.metadata.name})",
        )
        for field in ENCRYPTION
        if getattr(resource.spec, field)
    ]


def notices(resource: Any) -> list[tuple[str, str]]:
    """(field path, what it means) of everything in a resource that is stored, not enforced."""
    found: list[tuple[str, str]] = []
    if resource.kind == "GlobalNetworkPolicy":
        found += [
            (f"spec.{name}", "acts on host endpoints, which this release does not serve")
            for name in HOST_ONLY
            if getattr(resource.spec, name)
        ]
    for direction in ("ingress", "egress"):
        for index, rule in enumerate(getattr(resource.spec, direction, None) or []):
            for field, lacking in _lacking(rule):
                found.append((f"spec.{direction}[{index}].{field}", f"{lacking}; {_instead(rule)}"))
    return found


def _lacking(rule: Rule) -> Iterator[tuple[str, str]]:
    if rule.http is not None:
        yield "http", "HTTP is not looked into"
    for side in ("source", "destination"):
        if getattr(rule, side).services is not None:
            yield f"{side}.services", "services need a Kubernetes API, which is not followed"


def _instead(rule: Rule) -> str:
    return INSTEAD.get(rule.action, "this rule applies without that match")
