"""Rules of one IPPool (docs/reference/data-model.md#ippool); rules over several pools:
libcalico/pools.py.

Tested in tests/libcalico/test_validate.py and tests/libcalico/test_invalid_documents.py.
"""

from __future__ import annotations

from ipaddress import ip_network

from libcalico.model.resources.pool import DEFAULT_BLOCK_SIZE, IPPool
from libcalico.model.validation.checks import Problems, indexed

MODES = ("Never", "Always", "CrossSubnet")
USES = ("Workload", "Tunnel", "LoadBalancer")
BLOCK_SIZES = {4: (20, 32), 6: (116, 128)}
LINK_LOCAL = {4: ip_network("169.254.0.0/16"), 6: ip_network("fe80::/10")}
MAX_CIDR = 48


def check(pool: IPPool, problems: Problems) -> None:
    """Check one pool."""
    spec = pool.spec
    if len(spec.cidr) > MAX_CIDR:
        problems.add("spec.cidr", spec.cidr, f"must be at most {MAX_CIDR} characters")
    before = len(problems)
    problems.network("spec.cidr", spec.cidr)
    if len(problems) == before and "/" not in spec.cidr:
        rule = f"must be a CIDR with a prefix length, such as {spec.network}"
        problems.add("spec.cidr", spec.cidr, rule)
    if len(problems) == before:
        _check_network(pool, problems)
    problems.one_of("spec.ipipMode", spec.ipipMode, MODES)
    problems.one_of("spec.vxlanMode", spec.vxlanMode, MODES)
    if _on(spec.ipipMode) and _on(spec.vxlanMode):
        problems.add(
            "spec.vxlanMode", spec.vxlanMode, "only one of ipipMode and vxlanMode may be on"
        )
    problems.selector("spec.nodeSelector", spec.nodeSelector)
    problems.selector("spec.namespaceSelector", spec.namespaceSelector)
    problems.one_of("spec.assignmentMode", spec.assignmentMode, ("Automatic", "Manual"))
    _check_uses(pool, problems)


def _check_network(pool: IPPool, problems: Problems) -> None:
    spec = pool.spec
    network = spec.network
    version = network.version
    if network.overlaps(LINK_LOCAL[version]):
        problems.add("spec.cidr", spec.cidr, f"must not overlap link-local {LINK_LOCAL[version]}")
    low, high = BLOCK_SIZES[version]
    size = spec.blockSize or DEFAULT_BLOCK_SIZE[version]
    if not low <= size <= high:
        problems.add("spec.blockSize", spec.blockSize, f"must be {low} to {high} for IPv{version}")
    elif network.prefixlen > size and not spec.disabled:
        problems.add(
            "spec.cidr",
            spec.cidr,
            f"must hold at least one block: a prefix length of at most {size} (spec.blockSize)",
        )
    if version == 6 and _on(spec.ipipMode):
        problems.add("spec.ipipMode", spec.ipipMode, "IP-in-IP is for IPv4 only")


def _check_uses(pool: IPPool, problems: Problems) -> None:
    spec = pool.spec
    uses = spec.allowedUses
    if len(uses) > 10:
        problems.add("spec.allowedUses", len(uses), "at most 10 entries")
    for where, use in indexed("spec.allowedUses", uses):
        problems.one_of(where, use, USES, empty=False)
    tunnel = not uses or "Tunnel" in uses
    if spec.namespaceSelector and uses and tunnel:
        problems.add(
            "spec.namespaceSelector", spec.namespaceSelector, "not in a pool with allowedUse Tunnel"
        )
    if "LoadBalancer" not in uses:
        return
    if len(set(uses)) > 1:
        problems.add("spec.allowedUses", uses, "LoadBalancer cannot be mixed with other uses")
    if _on(spec.ipipMode) or _on(spec.vxlanMode):
        problems.add("spec.ipipMode", spec.ipipMode, "a LoadBalancer pool has no encapsulation")
    if spec.nodeSelector not in ("", "all()"):
        problems.add("spec.nodeSelector", spec.nodeSelector, "must be all() in a LoadBalancer pool")
    if spec.disableBGPExport:
        problems.add("spec.disableBGPExport", True, "not in a LoadBalancer pool")


def _on(mode: str) -> bool:
    return mode not in ("", "Never")
