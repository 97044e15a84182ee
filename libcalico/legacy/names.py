"""Names of the first generation as names of v3: lower case, no `/`, no `_`.

Two old names can become alike (`a_b` and `a-b`). So a changed name ends in eight digits of the
old one's SHA-1, as in Calico's own migration: objects migrated then and documents applied now
meet under one name. Names of nodes get no digits, since nodes know their own names.
"""

from __future__ import annotations

import hashlib
import re
from ipaddress import IPv4Address, IPv6Address

from libcalico.model.keys import IPNetwork

_OTHER = re.compile(r"[^-.a-z0-9]+")
_DOTS = re.compile(r"[.-]*[.][.-]*")
OLD_NAMESPACE_PROFILE, NAMESPACE_PROFILE = "k8s_ns.", "kns."


def node_name(old: str) -> str:
    """The v3 name of a node."""
    name = _OTHER.sub("-", old.lower().replace("/", "."))
    return _DOTS.sub(".", name).strip(".-")


def name(old: str) -> str:
    """The v3 name of anything but nodes and policies."""
    return _marked(old, node_name(old))


def policy_name(old: str) -> str:
    """The v3 name of a policy, which has no dot: a dot would name a tier."""
    return _marked(old, node_name(old).replace(".", "-"))


def profile_name(old: str) -> str:
    """The v3 name of a profile; those of Kubernetes namespaces have another prefix now."""
    if old.startswith(OLD_NAMESPACE_PROFILE):
        old = NAMESPACE_PROFILE + old.removeprefix(OLD_NAMESPACE_PROFILE)
    return name(old)


def pool_name(network: IPNetwork) -> str:
    """The v3 name of a pool: `192-168-0-0-16`."""
    return re.sub("[.:/]", "-", str(network))


def address_name(address: IPv4Address | IPv6Address) -> str:
    """An address as part of a name: `192-0-2-1`, IPv6 with all of its eight groups."""
    return re.sub("[.:]", "-", address.exploded)


def _marked(old: str, new: str) -> str:
    if old == new:
        return old
    return f"{new}-{hashlib.sha1(old.encode(), usedforsecurity=False).hexdigest()[:8]}"
