"""Names of chains and ipsets: Calico's, so that people and other tools find their way.

Source: docs/reference/dataplane.md#endpoint-chains, #ip-sets, #chain-names-and-hashes. The kernel
allows 28 characters for a chain and 31 for a set; longer names become a prefix and a digest, and so
do names that no validated object has, for what stands in the text of a rule must not break it.
Tested in tests/felix/rules/test_rules.py.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from hashlib import sha256

from libcalico.model.keys import ResourceKey

MAX_CHAIN = 28
MAX_SET = 31
_PLAIN = re.compile(r"[A-Za-z0-9_./-]*")

FROM_WORKLOAD_DISPATCH = "cali-from-wl-dispatch"
TO_WORKLOAD_DISPATCH = "cali-to-wl-dispatch"
WORKLOAD_TO_HOST = "cali-wl-to-host"
FROM_WORKLOAD = "cali-fw-"
TO_WORKLOAD = "cali-tw-"
FROM_HOST_DISPATCH, TO_HOST_DISPATCH = "cali-from-host-endpoint", "cali-to-host-endpoint"
FROM_FORWARD_DISPATCH, TO_FORWARD_DISPATCH = "cali-from-hep-forward", "cali-to-hep-forward"
FROM_HOST, TO_HOST = "cali-fh-", "cali-th-"
FROM_HOST_FORWARD, TO_HOST_FORWARD = "cali-fhfw-", "cali-thfw-"
FAILSAFE_IN, FAILSAFE_OUT = "cali-failsafe-in", "cali-failsafe-out"
ANY_INTERFACE = "any-interface-at-all"
POLICY_INGRESS, POLICY_EGRESS = "cali-pi-", "cali-po-"
GROUP_INGRESS, GROUP_EGRESS = "cali-gi-", "cali-go-"
GROUP = "PolicyGroup"
"""The kind of a group of policies (felix.rules.groups), which is never stored."""
PROFILE_INGRESS, PROFILE_EGRESS = "cali-pri-", "cali-pro-"

_SHORT_KINDS = {"NetworkPolicy": "np", "GlobalNetworkPolicy": "gnp"}


def limited(prefix: str, suffix: str, maximum: int = MAX_CHAIN) -> str:
    """`prefix + suffix`; the prefix, `_` and a digest where that is too long or no plain text."""
    text = prefix + (suffix or "_")
    digested = len(text) == maximum and suffix.startswith("_")
    if digested or len(text) > maximum or _PLAIN.fullmatch(suffix) is None:
        digest = urlsafe_b64encode(sha256(suffix.encode()).digest()).decode().rstrip("=")
        return f"{prefix}_{digest}"[:maximum]
    return text


def endpoint_chain(prefix: str, interface: str) -> str:
    """The chain of one interface, such as `cali-tw-cali0761ccbeace`."""
    return limited(prefix, interface)


def policy_chain(prefix: str, key: ResourceKey) -> str:
    """The chain of a policy, a profile or a group: `cali-pi-np/default/web`, `cali-pri-kns.a`."""
    if key.kind == GROUP:
        return prefix + key.name
    return limited(prefix, key.name if key.kind == "Profile" else policy_id(key))


def policy_id(key: ResourceKey) -> str:
    """A policy in short, such as `np/default/web`."""
    kind = _SHORT_KINDS.get(key.kind, key.kind.lower())
    return "/".join(filter(None, (kind, key.namespace, key.name)))


def ip_set(set_id: str, version: int) -> str:
    """The ipset of an id in one family, such as `cali40masq-ipam-pools`."""
    return f"cali{version}0{set_id}"[:MAX_SET]
