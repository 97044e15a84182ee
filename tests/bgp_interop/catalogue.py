"""The list of cases, and which of them run where.

Every speaker has the same twelve. The fast tier deals them out, each to one or two speakers: the
long ones to whom they take least; named by hand all run with all.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.bgp_interop.fabric import Fabric

Case = Callable[["Fabric"], None]

ORDER = (
    *("session-v4-v6", "md5", "graceful-restart", "filters", "communities", "wide-as"),
    *("block-release", "hold-timer", "multihop-ttl", "reflectors", "local-pref", "malformed"),
)
_DEALT = {
    "bird": (
        *("session-v4-v6", "md5", "graceful-restart", "filters"),
        *("communities", "wide-as", "block-release"),
    ),
    "frr": ("session-v4-v6", "communities", "block-release", "reflectors"),
    "gobgp": ("filters", "local-pref", "multihop-ttl"),
    "openbgpd": ("wide-as", "hold-timer", "malformed"),
}
_cases: dict[str, tuple[Case, tuple[str, ...]]] = {}


def case(name: str, *promises: str) -> Callable[[Case], Case]:
    """A case by this name, which exercises these promises."""

    def keep(body: Case) -> Case:
        _cases[name] = (body, promises)
        return body

    return keep


def chosen(speaker: str) -> list[Any]:
    """The cases that a speaker runs, as parameters of its test."""
    from tests.bgp_interop import routes, sessions  # noqa: F401

    assert set(_cases) == set(ORDER) == {name for dealt in _DEALT.values() for name in dealt}
    names = ORDER if os.environ.get("MUSLIN_FULL_SIZE") else _DEALT[speaker]
    return [
        pytest.param(
            _cases[name][0], id=name, marks=[pytest.mark.promise(each) for each in _cases[name][1]]
        )
        for name in names
    ]
