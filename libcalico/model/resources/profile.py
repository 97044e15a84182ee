"""The Profile resource (docs/reference/data-model.md#profile) and the one that always exists (1.2).

Tested in tests/libcalico/test_golden.py.
"""

from __future__ import annotations

from libcalico.model.base.base import Struct, always
from libcalico.model.base.meta import APIObject, Metadata
from libcalico.model.resources.rules import Rule

DEFAULT_ALLOW = "projectcalico-default-allow"


class ProfileSpec(Struct, frozen=True):
    """Rules that apply after all tiers, and labels that endpoints inherit."""

    ingress: list[Rule] = []
    egress: list[Rule] = []
    labelsToApply: dict[str, str] = {}


class Profile(APIObject, frozen=True, kw_only=True):
    """A profile of endpoints."""

    kind: str = always("Profile")
    spec: ProfileSpec = always(ProfileSpec())


def default_allow() -> Profile:
    """The built-in profile that lets everything pass; it is never stored."""
    allow = [Rule(action="Allow")]
    return Profile(
        metadata=Metadata(name=DEFAULT_ALLOW), spec=ProfileSpec(ingress=allow, egress=allow)
    )
