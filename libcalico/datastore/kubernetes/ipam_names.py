"""Names and labels of the custom resources of the allocator.

Tested in tests/libcalico/test_kubernetes_objects.py.
"""

from __future__ import annotations

from libcalico.model.keys import (
    IPNetwork,
)

NAME_LIMIT, HASH_DIGITS = 253, 11


def cidr_name(cidr: IPNetwork) -> str:
    """A CIDR as part of a name: `10-244-0-0-26`."""
    return str(cidr).translate(str.maketrans(".:/", "---"))


def affinity_name(host: str, cidr: IPNetwork) -> str:
    """The name of a claim. Where it is too long the host is cut, and a hash of both follows.

    The name is exactly Calico's: two names of one claim would be two claims.
    """
    block = cidr_name(cidr)
    name = f"{host}-{block}"
    if len(name) < NAME_LIMIT:
        return name
    import hashlib  # few names are so long

    digest = hashlib.sha256(f"{host}+{block}".encode()).hexdigest()[:HASH_DIGITS]
    # The hash and two dashes; names are shorter than the limit.
    kept = host[: NAME_LIMIT - 1 - len(block) - HASH_DIGITS - 2]
    return f"{kept}-{block}-{digest}"


def affinity_labels(host: str, kind: str, version: int) -> dict[str, str]:
    """The labels by which the API finds the claims of a host."""
    import base64
    import hashlib

    digest = hashlib.sha3_256(host.encode()).digest()
    return {
        "projectcalico.org/affinity-type": kind,
        "projectcalico.org/hostname-hash": base64.b32encode(digest).decode().rstrip("="),
        "projectcalico.org/ip-version": str(version),
    }
