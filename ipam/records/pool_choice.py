"""Which pools serve a node, a namespace, a use. Pure.

Tested in tests/ipam/test_pools.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_network

from ipam.records.errors import NoPool, NotInPool
from ipam.records.pools import SERVICE, WORKLOAD, IPAddress, Pool, containing
from libcalico.errors import InvalidValue
from libcalico.selectors import selectors


def select(
    pools: Iterable[Pool],
    family: int,
    *,
    node_labels: Mapping[str, str],
    requested: Sequence[str] = (),
    use: str = WORKLOAD,
    namespace_labels: Mapping[str, str] | None = None,
) -> list[Pool]:
    """The pools of a family that may serve a request on this node, sorted by name.

    `requested` names pools by name or CIDR and overrides their selectors; every one of them
    must exist and be enabled. Without `namespace_labels` (no namespace is known) a pool with
    a namespaceSelector serves only where that selects everything. Raises `NoPool`, saying for
    each pool why it does not serve.
    """
    family_pools = sorted((p for p in pools if p.family == family), key=lambda p: p.name)
    if requested:
        chosen = [_find(family_pools, text, family) for text in requested]
    else:
        chosen = family_pools
    usable: list[Pool] = []
    reasons: list[str] = []
    for pool in chosen:
        reason = _refusal(pool, node_labels, namespace_labels, use, explicit=bool(requested))
        if reason and requested and pool.disabled:
            raise NoPool(f"the requested IPv{family} pool {pool.name} ({pool.cidr}) {reason}")
        if reason:
            reasons.append(f"{pool.name} ({pool.cidr}) {reason}")
        else:
            usable.append(pool)
    if not usable:
        why = "; ".join(reasons) or f"there is no IPv{family} pool: create one with calicoctl"
        raise NoPool(f"no IPv{family} pool may serve this node: {why}")
    return usable


def _find(pools: Sequence[Pool], text: str, family: int) -> Pool:
    for pool in pools:
        if is_meant(pool, text):
            return pool
    known = ", ".join(pool.name for pool in pools) or "none"
    raise NoPool(f"the requested IPv{family} pool {text!r} does not exist (there are: {known})")


def is_meant(pool: Pool, text: str) -> bool:
    """Whether a text is the pool's name or its network, however that is written."""
    if text == pool.name:
        return True
    try:
        return pool.cidr == ip_network(text, strict=False)
    except ValueError:
        return False


def serving(pools: Iterable[Pool], address: IPAddress, use: str, *, disabled: bool = False) -> Pool:
    """The pool of a named address; raises `NotInPool`. An empty `use` asks for none.

    `disabled`: one that gives out no new address will do, too.
    """
    pool = containing(pools, ip_network(address))
    if pool is None or (pool.disabled and not disabled):
        why = f": pool {pool.name} is disabled" if pool else ""
        raise NotInPool(f"The provided IP address {address} is not in a configured pool{why}")
    if use and use not in pool.allowed_uses:
        raise NotInPool(
            f"address {address} is in pool {pool.name} ({pool.cidr}), "
            f"which does not allow the use {use} (allowedUses {', '.join(pool.allowed_uses)})"
        )
    return pool


def selects_node(pool: Pool, labels: Mapping[str, str]) -> bool:
    """Whether the pool's nodeSelector selects the node; one that cannot be read does not."""
    try:
        return selectors.parse(pool.node_selector).matches(labels)
    except InvalidValue:
        return False


def selects_by_namespace(pool: Pool) -> bool:
    """Whether the namespace matters to this pool."""
    return pool.namespace_selector.strip() not in ("", "all()")


def _refusal(
    pool: Pool,
    node_labels: Mapping[str, str],
    namespace_labels: Mapping[str, str] | None,
    use: str,
    explicit: bool,
) -> str:
    if pool.disabled:
        return "is disabled"
    if use not in pool.allowed_uses:
        return f"does not allow the use {use}"
    if explicit:
        return ""
    if not pool.automatic:
        return "is served on request only (assignmentMode Manual)"
    if use != SERVICE and (why := _unselected("node", pool.node_selector, node_labels)):
        return why
    if selects_by_namespace(pool):
        if namespace_labels is None:
            return f"has the namespaceSelector {pool.namespace_selector}, and no namespace is known"
        return _unselected("namespace", pool.namespace_selector, namespace_labels)
    return ""


def _unselected(what: str, selector: str, labels: Mapping[str, str]) -> str:
    try:
        chosen = selectors.parse(selector).matches(labels)
    except InvalidValue as error:
        # One misspelled pool must not stop the pools beside it (IPAM-13).
        return f"has a {what}Selector that cannot be read ({error})"
    return "" if chosen else f"does not select this {what} ({what}Selector {selector})"
