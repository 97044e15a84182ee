"""The cells of `get caliconodestatus -o wide`: what a report says, in a word each.

`-` is what the report does not hold: the class was not asked for, or no node has answered yet.
Tested in `tests/calicoctl/test_report_cells.py`.
"""

from __future__ import annotations

from calicoctl.cells import Cell, Context, joined_short
from libcalico.model.resources.nodestatus import CalicoNodeStatus

NONE = "-"


def period(report: CalicoNodeStatus, _: Context) -> str:
    """Seconds between two reports; `once` for 0."""
    seconds = report.spec.updatePeriodSeconds
    return NONE if seconds is None else f"{seconds}s" if seconds else "once"


def last_updated(report: CalicoNodeStatus, _: Context) -> str:
    """When the node reported; `never`: it has not."""
    return report.status.lastUpdated or "never"


def _lacks(report: CalicoNodeStatus, kind: str) -> bool:
    return not report.status.lastUpdated or kind not in report.spec.classes


def agent(report: CalicoNodeStatus, _: Context) -> str:
    """Whether the BGP agent is ready: the worse of both families."""
    if _lacks(report, "Agent"):
        return NONE
    daemons = report.status.agent
    states = {one.state for one in (daemons.birdV4, daemons.birdV6) if one.state}
    return "NotReady" if "NotReady" in states else next(iter(states), NONE)


def sessions(family: str) -> Cell:
    """`up/all` of the sessions of a family (`V4`, `V6`)."""

    def cell(report: CalicoNodeStatus, _: Context) -> str:
        if _lacks(report, "BGP"):
            return NONE
        bgp = report.status.bgp
        up = int(getattr(bgp, f"numberEstablished{family}"))
        return f"{up}/{up + int(getattr(bgp, f'numberNotEstablished{family}'))}"

    return cell


def routes(report: CalicoNodeStatus, _: Context) -> str:
    """How many routes the report lists."""
    if _lacks(report, "Routes"):
        return NONE
    return str(len(report.status.routes.routesV4) + len(report.status.routes.routesV6))


def down(report: CalicoNodeStatus, _: Context) -> str:
    """The peers whose session is not up, with the state that it has."""
    if _lacks(report, "BGP"):
        return NONE
    bgp = report.status.bgp
    lost = [one for one in (*bgp.peersV4, *bgp.peersV6) if one.state != "Established"]
    return joined_short([f"{one.peerIP}({one.state})" for one in lost]) or NONE
