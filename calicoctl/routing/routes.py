"""The BGP routes of nodes, from their reports: which node has which way to a prefix. Pure.

Source: docs/reference/data-model.md#caliconodestatus (class `Routes`). Tested in
`tests/calicoctl/test_bgp_routes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from ipaddress import ip_network

from calicoctl import borders
from calicoctl.status.reports import is_current, newest
from libcalico.errors import InvalidValue
from libcalico.model.keys import IPNetwork
from libcalico.model.resources.nodestatus import CalicoNodeStatus

HEADINGS = ("NODE", "PREFIX", "USED", "GATEWAY", "INTERFACE", "LEARNED FROM", "PEER")


@dataclass(frozen=True, slots=True)
class Route:
    """A route of a node. `used`: the kernel has it; else BGP alone knows it.

    `peer`: the node or address of the session that it came by; empty for the node's own.
    """

    node: str
    prefix: str
    used: bool
    gateway: str
    interface: str
    source: str
    peer: str


@dataclass(frozen=True, slots=True)
class Found:
    """Routes, and the nodes whose routes are not known, with the reason."""

    routes: tuple[Route, ...]
    unknown: Mapping[str, str]


def parse_prefix(text: str) -> IPNetwork:
    """A prefix or an address; raises InvalidValue."""
    try:
        return ip_network(text)
    except ValueError as error:
        raise InvalidValue(
            "PREFIX", text, f"an address or a network such as 10.65.0.0/16 ({error})"
        ) from None


def of_reports(
    reports: Iterable[CalicoNodeStatus],
    nodes: Sequence[str],
    now: float,
    named: Mapping[str, str],
    goal: IPNetwork | None = None,
) -> Found:
    """The routes of these nodes by their newest reports; `named`: the node of each address."""
    known = newest(reports, "Routes")
    routes: list[Route] = []
    unknown: dict[str, str] = {}
    for node in nodes:
        latest = known.get(node)
        if latest is None:
            unknown[node] = "it has reported no routes"
        elif not is_current(latest, now):
            unknown[node] = f"its report of {latest.status.lastUpdated} is too old"
        else:
            routes += _routes(latest, named)
    if goal is not None:
        routes = [one for one in routes if _meets(ip_network(one.prefix), goal)]
    routes.sort(key=_order(goal))
    return Found(tuple(routes), unknown)


def _routes(report: CalicoNodeStatus, named: Mapping[str, str]) -> list[Route]:
    latest = report.status.routes
    return [
        Route(
            report.spec.node,
            one.destination,
            one.type == "FIB",
            one.gateway,
            one.interface,
            one.learnedFrom.sourceType,
            named.get(one.learnedFrom.peerIP, one.learnedFrom.peerIP),
        )
        for one in (*latest.routesV4, *latest.routesV6)
    ]


def _meets(prefix: IPNetwork, goal: IPNetwork) -> bool:
    """Whether a route leads to the wanted addresses, or to a part of them."""
    if prefix.version != goal.version:
        return False
    return prefix.overlaps(goal)


def _order(goal: IPNetwork | None) -> Callable[[Route], tuple[int | str, ...]]:
    def key(one: Route) -> tuple[int | str, ...]:
        prefix = ip_network(one.prefix)
        place = (prefix.version, int(prefix.network_address), prefix.prefixlen)
        if goal is None:
            return (one.node, *place, not one.used)
        # Of one address the longest prefix first: it decides.
        return (one.node, -prefix.prefixlen, *place, not one.used)

    return key


def table(answer: Found) -> str:
    """A route a line, then the nodes whose routes are not known."""
    rows = [
        (
            one.node,
            one.prefix,
            "yes" if one.used else "no",
            one.gateway or "-",
            one.interface or "-",
            one.source,
            one.peer or "-",
        )
        for one in answer.routes
    ]
    text = borders.render(HEADINGS, rows) if rows else "No routes.\n"
    return text + "".join(f"{node}: {why}\n" for node, why in answer.unknown.items())


def as_tree(answer: Found) -> dict[str, object]:
    """`routes` and `unknown`."""
    return {
        "routes": [asdict(one) for one in answer.routes],
        "unknown": [{"node": node, "reason": why} for node, why in answer.unknown.items()],
    }
