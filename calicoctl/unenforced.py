"""What we store but cannot keep, where keeping silent would be dangerous.

Encryption that does not happen is worse than none: asking for it is refused unless the
operator says that it is known. Everything else that is stored without effect never widens
access, and is named on standard error; the table is `libcalico.model.enforcement.table`.
Tested in `tests/calicoctl/test_validate.py`.
"""

from __future__ import annotations

from libcalico.errors import InvalidValue
from libcalico.model.enforcement.table import not_enforced
from libcalico.model.kinds import Resource

ENCRYPTION = ("wireguardEnabled", "wireguardEnabledV6")


def refused(resource: Resource) -> list[InvalidValue]:
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


def notices(resource: Resource) -> list[tuple[str, str]]:
    """(field path, what it means) of everything in a resource that is stored, not enforced."""
    return not_enforced(resource)
