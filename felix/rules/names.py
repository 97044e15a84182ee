"""Names of chains and ipsets: Calico's, so that people and other tools find their way.

Dataplane reference 2.9, 2.11, 2.12. The kernel allows 28 characters for a chain and 31 for
a set; longer names become a prefix and a digest.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256

from libcalico.model.keys import ResourceKey

MAX_CHAIN = 28
MAX_SET = 31

FROM_WORKLOAD_DISPATCH = "cali-from-wl-dispatch"
TO_WORKLOAD_DISPATCH = "cali-to-wl-dispatch"
WORKLOAD_TO_HOST = "cali-wl-to-host"
FROM_WORKLOAD = "cali-fw-"
TO_WORKLOAD = "cali-tw-"
POLICY_INGRESS, POLICY_EGRESS = "cali-pi-", "cali-po-"
PROFILE_INGRESS, PROFILE_EGRESS = "cali-pri-", "cali-pro-"

_SHORT_KINDS = {"NetworkPolicy": "np", "GlobalNetworkPolicy": "gnp"}


def limited(prefix: str, suffix: str, maximum: int = MAX_CHAIN) -> str:
    """`prefix + suffix`, or the prefix, `_` and a digest of the suffix where it is too long."""
    text = prefix + (suffix or "_")
    if len(text) > maximum or (len(text) == maximum and suffix.startswith("_")):
        digest = urlsafe_b64encode(sha256(suffix.encode()).digest()).decode().rstrip("=")
        return f"{prefix}_{digest}"[:maximum]
    return text


def endpoint_chain(prefix: str, interface: str) -> str:
    """The chain of one interface, such as `cali-tw-cali0761ccbeace`."""
    return limited(prefix, interface)


def policy_chain(prefix: str, key: ResourceKey) -> str:
    """The chain of a policy or a profile, such as `cali-pi-np/default/web`, `cali-pri-kns.a`."""
    if key.kind == "Profile":
        return limited(prefix, key.name)
    kind = _SHORT_KINDS.get(key.kind, key.kind.lower())
    return limited(prefix, "/".join(filter(None, (kind, key.namespace, key.name))))


def ip_set(set_id: str, version: int) -> str:
    """The ipset of an id in one family, such as `cali40masq-ipam-pools`."""
    return f"cali{version}0{set_id}"[:MAX_SET]
