"""Rules that hold between IP pools, and between a pool and its blocks
(docs/reference/data-model.md#ippool).

Pure functions for the writers of pools: `calicoctl` and node start-up.
Tested in tests/libcalico/test_validate.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from libcalico.errors import InvalidValue
from libcalico.model.keys import IPNetwork
from libcalico.model.resources.pool import DEFAULT_BLOCK_SIZE, IPPool

MOVE = "create another pool, and move the pods to it with `calicoctl ipam migrate`"


def network_of(pool: IPPool) -> IPNetwork | None:
    """The network of a stored pool, which may be unchecked; None where its CIDR is invalid."""
    try:
        return pool.spec.network
    except InvalidValue:
        return None


def check_create(
    pool: IPPool,
    others: Iterable[tuple[str, IPNetwork]],
    blocks: Iterable[IPNetwork] = (),
) -> None:
    """Refuse a new pool that overlaps another, or whose existing blocks have another size.

    `others` are names and networks of pools, `blocks` the CIDRs of all IPAM blocks. Raises
    InvalidValue.
    """
    network = pool.spec.network
    subject = f"IPPool({pool.metadata.name})"
    for name, theirs in others:
        if name == pool.metadata.name:
            continue
        if theirs.version == network.version and theirs.overlaps(network):
            rule = f"overlaps IPPool({name}) of {theirs}"
            raise InvalidValue("spec.cidr", pool.spec.cidr, rule, subject)
    size = pool.spec.blockSize or DEFAULT_BLOCK_SIZE[network.version]
    for block in blocks:
        inside = block.version == network.version and block.overlaps(network)
        if inside and block.prefixlen != size:
            raise InvalidValue(
                "spec.blockSize",
                size,
                f"an IPAM block {block} of another size exists inside {pool.spec.cidr}",
                subject,
            )


def check_update(old: IPPool, new: IPPool) -> None:
    """Refuse a change of a fixed field: CIDR, block size, LoadBalancer use. Raises InvalidValue."""
    subject = f"IPPool({new.metadata.name})"
    if old.spec.network != new.spec.network:
        rule = f"is fixed at {old.spec.cidr}: {MOVE}"
        raise InvalidValue("spec.cidr", new.spec.cidr, rule, subject)
    default = DEFAULT_BLOCK_SIZE[old.spec.network.version]
    if (old.spec.blockSize or default) != (new.spec.blockSize or default):
        rule = f"is fixed at {old.spec.blockSize or default}: {MOVE}"
        raise InvalidValue("spec.blockSize", new.spec.blockSize, rule, subject)
    if "LoadBalancer" in old.spec.allowedUses and "LoadBalancer" not in new.spec.allowedUses:
        raise InvalidValue(
            "spec.allowedUses", new.spec.allowedUses, "a LoadBalancer pool stays one", subject
        )
