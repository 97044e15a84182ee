"""Rules of the small kinds: Tier, Profile, ClusterInformation, IPAM's objects (2.9, 2.14-2.17).

Tested in tests/libcalico/test_invalid_documents.py.
"""

from __future__ import annotations

from libcalico.model.resources.affinity import BlockAffinityResource
from libcalico.model.resources.cluster import FIXED_TIERS, ClusterInformation, Tier
from libcalico.model.resources.ipam import IPAMConfiguration
from libcalico.model.resources.migration import LiveMigration
from libcalico.model.resources.profile import Profile
from libcalico.model.resources.reservation import IPReservation
from libcalico.model.validation.checks import Problems
from libcalico.model.validation.kubernetes_names import SINGLE_LABEL
from libcalico.model.validation.rules import check_rules

MAX_TIER_NAME = 63
MAX_BLOCKS, MAX_COOLDOWN = 1_000_000, 1_200
AFFINITY_STATES = ("confirmed", "pending", "pendingDeletion")


def check_profile(profile: Profile, problems: Problems) -> None:
    """Check a profile."""
    check_rules(problems, "spec.ingress", profile.spec.ingress)
    check_rules(problems, "spec.egress", profile.spec.egress)
    problems.labels("spec.labelsToApply", profile.spec.labelsToApply)


def check_tier(tier: Tier, problems: Problems) -> None:
    """Check a tier."""
    name, spec = tier.metadata.name, tier.spec
    if len(name) > MAX_TIER_NAME or not SINGLE_LABEL.fullmatch(name):
        problems.add("metadata.name", name, "must be one DNS label of at most 63 characters")
    problems.one_of("spec.defaultAction", spec.defaultAction, ("Deny", "Pass"))
    if name in FIXED_TIERS:
        order, action = FIXED_TIERS[name]
        if spec.order is not None and spec.order != order:
            problems.add("spec.order", spec.order, f"is always {order} in tier {name}")
        if spec.defaultAction is not None and spec.defaultAction != action:
            problems.add("spec.defaultAction", spec.defaultAction, f"is always {action} in {name}")


def check_information(info: ClusterInformation, problems: Problems) -> None:
    """Check the cluster's information."""
    problems.only_default(info.metadata.name)


def check_ipam(config: IPAMConfiguration, problems: Problems) -> None:
    """Check IPAM's settings."""
    problems.only_default(config.metadata.name)
    spec = config.spec
    problems.limits("spec.maxBlocksPerHost", spec.maxBlocksPerHost, 0, MAX_BLOCKS)
    problems.limits("spec.ipCooldownSeconds", spec.ipCooldownSeconds, 0, MAX_COOLDOWN)
    switch = ("Enabled", "Disabled")
    problems.one_of("spec.kubeVirtVMAddressPersistence", spec.kubeVirtVMAddressPersistence, switch)


def check_affinity(affinity: BlockAffinityResource, problems: Problems) -> None:
    """Check a claim on a block."""
    spec = affinity.spec
    problems.one_of("spec.state", spec.state, AFFINITY_STATES)
    problems.network("spec.cidr", spec.cidr, host_bits=True)
    if spec.deleted not in (False, "false"):
        problems.add("spec.deleted", spec.deleted, "must be false: delete the object itself")


def check_reservation(reservation: IPReservation, problems: Problems) -> None:
    """Check a reservation of addresses."""
    problems.cidrs("spec.reservedCIDRs", reservation.spec.reservedCIDRs)


def check_migration(migration: LiveMigration, problems: Problems) -> None:
    """Check a live migration."""
    target = migration.spec.target
    if target is not None and target.selector:
        problems.selector("spec.target.selector", target.selector)
