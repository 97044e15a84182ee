"""The CalicoNodeStatus resource (docs/reference/data-model.md#caliconodestatus): one node's report
of its routing.

Tested in tests/libcalico/test_golden.py.
"""

from __future__ import annotations

from libcalico.model.base.base import Struct, always
from libcalico.model.base.meta import APIObject


class CalicoNodeStatusSpec(Struct, frozen=True):
    """The node, the classes of its report and the period; 0 freezes the report."""

    node: str = ""
    classes: list[str] = []
    updatePeriodSeconds: int | None = None


class BGPDaemonStatus(Struct, frozen=True):
    """One BGP daemon; `state` is Ready or NotReady."""

    state: str = ""
    version: str = ""
    routerID: str = ""
    lastBootTime: str = ""
    lastReconfigurationTime: str = ""


class CalicoNodeAgentStatus(Struct, frozen=True):
    """The daemons by family."""

    birdV4: BGPDaemonStatus = always(BGPDaemonStatus())
    birdV6: BGPDaemonStatus = always(BGPDaemonStatus())


class CalicoNodePeer(Struct, frozen=True):
    """One session: NodeMesh, NodePeer or GlobalPeer, and since when it has its state."""

    peerIP: str = ""
    type: str = ""
    state: str = ""
    since: str = ""


class CalicoNodeBGPStatus(Struct, frozen=True):
    """The sessions by family, counted and listed."""

    numberEstablishedV4: int = always(0)
    numberNotEstablishedV4: int = always(0)
    numberEstablishedV6: int = always(0)
    numberNotEstablishedV6: int = always(0)
    peersV4: list[CalicoNodePeer] = []
    peersV6: list[CalicoNodePeer] = []


class CalicoNodeRouteLearnedFrom(Struct, frozen=True):
    """Where a route comes from; `peerIP` when from a BGP session."""

    sourceType: str = ""
    peerIP: str = ""


class CalicoNodeRoute(Struct, frozen=True):
    """One route, of the kernel (FIB) or of BGP alone (RIB)."""

    type: str = ""
    destination: str = ""
    gateway: str = ""
    interface: str = ""
    learnedFrom: CalicoNodeRouteLearnedFrom = always(CalicoNodeRouteLearnedFrom())


class CalicoNodeBGPRouteStatus(Struct, frozen=True):
    """The routes by family."""

    routesV4: list[CalicoNodeRoute] = []
    routesV6: list[CalicoNodeRoute] = []


class CalicoNodeStatusStatus(Struct, frozen=True):
    """The report; `lastUpdated` None: there was none yet."""

    lastUpdated: str | None = always(None)
    agent: CalicoNodeAgentStatus = always(CalicoNodeAgentStatus())
    bgp: CalicoNodeBGPStatus = always(CalicoNodeBGPStatus())
    routes: CalicoNodeBGPRouteStatus = always(CalicoNodeBGPRouteStatus())


class CalicoNodeStatus(APIObject, frozen=True, kw_only=True):
    """A request for a report, and the report."""

    kind: str = always("CalicoNodeStatus")
    spec: CalicoNodeStatusSpec = always(CalicoNodeStatusSpec())
    status: CalicoNodeStatusStatus = always(CalicoNodeStatusStatus())
