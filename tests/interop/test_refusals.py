"""The tables of refused and accepted documents, given to Calico's `calicoctl` on a real etcd.

Where the two differ it is written down here with the reason; a difference that is new, or one
that is gone, fails.
"""

from __future__ import annotations

import pytest

from tests.interop.conftest import Theirs
from tests.interop.stored import RESOURCES, put_tiers
from tests.libcalico.documents import Refused, Taken
from tests.libcalico.test_invalid_documents import REFUSED, TAKEN
from tests.support.etcd import Etcd

WE_ALONE_REFUSE = {
    # v3.32's command line does not look into parts that are Kubernetes' own types.
    "bgpconfig-password-key", "peer-password", "StagedKubernetesNetworkPolicy-type",
    "StagedKubernetesNetworkPolicy-operator", "StagedKubernetesNetworkPolicy-values",
    "StagedKubernetesNetworkPolicy-port", "StagedKubernetesNetworkPolicy-block",
    "StagedKubernetesNetworkPolicy-except",
    # Limits of the schema that its command line does not apply.
    "NetworkPolicy-rules-many", "NetworkPolicy-nets-many", "NetworkPolicy-ports-many",
    "pool-selector-long",
    # Values that nothing could use: it stores them, and what reads them fails or drops them.
    "peer-local-as-numbers", "peer-reachable-host",
    "node-address-type", "node-address-none", "wep-dscp", "wep-dscp-name",
    "NetworkPolicy-icmp-not-v6", "NetworkPolicy-selector-not", "felix-name", "felix-selector",
    "felix-failsafe", "felix-failsafe-net", "felix-dscp", "controllers-template-name-case",
    "controllers-template-pattern", "controllers-template-cidr", "controllers-template-label",
    "controllers-template-selector",
    # Its parser takes names in any case, and numbers for text.
    "felix-unknown", "Profile-label-text",
}  # fmt: skip

THEY_ALONE_REFUSE = {
    # Kinds and fields of the release after v3.32.1.
    "CalicoNodeStatus-frozen", "ipam", "ipam-cooldown", "bgpconfig-routes",
    "controllers-template",
    # Kinds that no command of theirs or ours writes; our table tries the validator alone.
    "affinity", "migration", "information", "NetworkPolicy-name-of-kubernetes",
    # They meet what is stored: the tier is there, the filter is not.
    "Tier-default", "Tier-default-bare", "peer-filters",
    # Its parser stumbles over a bare `name:` inside braces, which YAML allows.
    "pool-nulls", "controllers-all",
    # Stricter there: the case of words, an address without prefix, protocol 6 for TCP, fractions.
    "bgpconfig-of-a-node", "felix-case", "bgpconfig-service-address", "NetworkPolicy-http",
    "felix-fractions",
}  # fmt: skip


def _taken(theirs: Theirs, etcd: Etcd, text: str) -> bool:
    done = theirs("create", "-f", "-", stdin=text)
    if done.code == 0:
        etcd.delete(RESOURCES)
        put_tiers(etcd)
    return done.code == 0


@pytest.mark.interop
def test_what_we_refuse_they_refuse_but_for_the_known_ones(theirs: Theirs, etcd: Etcd) -> None:
    put_tiers(etcd)
    taken = {case.id for case in REFUSED if _taken(theirs, etcd, _text(case))}
    assert taken == WE_ALONE_REFUSE


@pytest.mark.interop
def test_what_we_take_they_take_but_for_the_known_ones(theirs: Theirs, etcd: Etcd) -> None:
    put_tiers(etcd)
    refused = {case.id for case in TAKEN if not _taken(theirs, etcd, _text(case))}
    assert refused == THEY_ALONE_REFUSE


def _text(case: Refused | Taken) -> str:
    return case.text
