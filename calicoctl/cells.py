"""How a cell of a table is made from a resource, as Calico prints it.

A pointer that is not set prints `<nil>`. The tables of the kinds are `calicoctl.columns`. Tested in
`tests/calicoctl/test_kinds.py` and `tests/calicoctl/test_tables.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

import msgspec

from libcalico.model import (
    BGPPeer,
    Node,
    Profile,
    StagedKubernetesNetworkPolicy,
    Tier,
    WorkloadEndpoint,
)
from libcalico.model.kinds import Resource
from libcalico.model.resources.policy import Tiered, tier_of

DEFAULT_AS_NUMBER = 64512


class Context(msgspec.Struct, frozen=True):
    """What a cell may need beside its resource: the cluster's AS number."""

    global_as: str = str(DEFAULT_AS_NUMBER)


Cell = Callable[..., str]
"""The text of a cell: of a resource of the kind that the column is of, and the context."""


def go_text(value: object) -> str:
    """A value as Go's templates print it: `true`, `<nil>`, floats with `%v`."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _go_float(value)
    return str(value)


def _go_float(value: float) -> str:
    # Go's %v: the shortest digits, with an exponent below 1e-04 and from 1e+06 on.
    sign, digits, _ = Decimal(repr(value)).normalize().as_tuple()
    exponent = Decimal(repr(value)).adjusted() if value else 0
    if -4 <= exponent < 6:
        return repr(value).removesuffix(".0")
    mantissa = str(digits[0]) + ("." + "".join(map(str, digits[1:])) if digits[1:] else "")
    return f"{'-' if sign else ''}{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def name_cell(resource: Resource, _: Context) -> str:
    """The name."""
    return str(resource.metadata.name)


def namespace_cell(resource: Resource, _: Context) -> str:
    """The namespace."""
    return str(resource.metadata.namespace)


def spec_cell(attribute: str) -> Cell:
    """A member of the spec."""
    return lambda resource, _: go_text(getattr(resource.spec, attribute))


def spec_or(attribute: str, missing: str) -> Cell:
    """A member of the spec, `missing` where it is not set."""

    def cell(resource: Resource, _: Context) -> str:
        value = getattr(resource.spec, attribute)
        return missing if value is None or value == "" else go_text(value)

    return cell


def joined_cell(attribute: str) -> Cell:
    """The items of a list in the spec, joined by commas."""
    return lambda resource, _: ",".join(str(item) for item in getattr(resource.spec, attribute))


def peer_node(resource: BGPPeer, _: Context) -> str:
    """The nodes that a BGP peer is of."""
    return str(resource.spec.node or resource.spec.nodeSelector or "(global)")


def node_bgp(attribute: str) -> Cell:
    """A member of a node's `bgp`."""

    def cell(resource: Node, _: Context) -> str:
        bgp = resource.spec.bgp
        return "" if bgp is None else str(getattr(bgp, attribute) or "")

    return cell


def node_as(resource: Node, context: Context) -> str:
    """The AS number of a node; the cluster's in parentheses."""
    bgp = resource.spec.bgp
    if bgp is None:
        return ""
    return f"({context.global_as})" if bgp.asNumber is None else str(bgp.asNumber)


def profile_labels(resource: Profile, _: Context) -> str:
    """The labels that a profile applies."""
    return ",".join(f"{key}={value}" for key, value in sorted(resource.spec.labelsToApply.items()))


def order_cell(resource: Tier | Tiered, _: Context) -> str:
    """The order of a tier or policy."""
    order = resource.spec.order
    return go_text(None if order is None else float(order))


def tier_cell(resource: Tiered, _: Context) -> str:
    """The tier of a policy."""
    return tier_of(resource)


def joined_short(items: Sequence[str], limit: int = 80) -> str:
    """Items joined by commas, cut to `limit` characters with `...` at the end."""
    text = ",".join(items)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def endpoint_nats(resource: WorkloadEndpoint, _: Context) -> str:
    """The address translations of an endpoint."""
    return ",".join(f"{{{nat.internalIP} {nat.externalIP}}}" for nat in resource.spec.ipNATs)


def count_cell(attribute: str) -> Cell:
    """How many items a list in the spec has."""
    return lambda resource, _: str(len(getattr(resource.spec, attribute)))


def short_cell(attribute: str) -> Cell:
    """A list in the spec, cut as `joined_short` cuts it."""
    return lambda resource, _: joined_short(getattr(resource.spec, attribute))


def pod_selector(resource: StagedKubernetesNetworkPolicy, _: Context) -> str:
    """The pod selector as Kubernetes' generated text has it, which Calico's template prints."""
    selector = resource.spec.podSelector
    labels = "".join(f"{key}: {value}," for key, value in sorted(selector.matchLabels.items()))
    expressions = "".join(
        "LabelSelectorRequirement{"
        f"Key:{one.key},Operator:{one.operator},Values:[{' '.join(one.values)}],}},"
        for one in selector.matchExpressions
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )


def endpoint_workload(resource: WorkloadEndpoint, _: Context) -> str:
    """The workload or pod of an endpoint."""
    return str(resource.spec.workload or resource.spec.pod)
