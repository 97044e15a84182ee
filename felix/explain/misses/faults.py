"""A clause that did not match, and the miss that it makes.

Tested in tests/felix/explain/misses/test_near.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from libcalico.model import ResourceKey


@dataclass(frozen=True, slots=True)
class Fault:
    """One clause that does not match: `field` of the policy or rule, `clause` as it is written.

    `actual`: what is there instead; `label`: the label that lacks or differs, if it is one;
    `hint`: what an author probably meant, empty where nothing is known.
    """

    field: str
    clause: str
    actual: str
    label: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A rule that nearly decided at a station.

    `direction` and `of` name the station; `rule` is the field in the policy (`ingress[2]`).
    """

    direction: str
    of: str
    tier: str
    policy: ResourceKey
    rule: str
    action: str
    faults: tuple[Fault, ...]
    selects: bool = True

    @property
    def rank(self) -> tuple[int, bool, bool, str, str]:
        """The nearest first; what has a hint before what has none."""
        hinted = any(fault.hint for fault in self.faults)
        return (len(self.faults), not self.selects, not hinted, str(self.policy), self.rule)
