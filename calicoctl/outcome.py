"""What a command did, and the sentences that say so.

Calico's texts (docs/reference/data-model.md#calicoctls-commands): scripts read them. Pure. Tested
in `tests/calicoctl/test_outcome.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

PAST = {
    "create": "created",
    "apply": "applied",
    "replace": "replaced",
    "delete": "deleted",
    "validate": "validated",
}


class Outcome(msgspec.Struct, frozen=True):
    """`kinds` of all resources of the input, how many were handled, and what went wrong."""

    verb: str
    kinds: Sequence[str]
    handled: int
    errors: Sequence[str]

    def sentences(self) -> tuple[str, str]:
        """(text for standard output, error text), either may be empty."""
        kind = self.kinds[0] if len(set(self.kinds)) == 1 else ""
        named = f"'{kind}' " if kind else ""
        total = len(self.kinds)
        if not total:
            return "No resources specified", ""
        if not self.errors:
            return f"Successfully {PAST[self.verb]} {self.handled} {named}resource(s)", ""
        errors = "[" + "; ".join(self.errors) + "]"
        if not self.handled:
            if self.verb == "replace":
                return "", "\n".join(self.errors)
            if total == 1:
                return "", f"failed to {self.verb} {named}resource: {errors}"
            return "", f"failed to {self.verb} any {named}resources: {errors}"
        done = f"{PAST[self.verb]} the first {self.handled} out of {total} {named}resources:"
        return f"Partial success: {done}", f"hit error: {errors}"
