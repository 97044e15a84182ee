"""One reading of the datastore: everything that the views are made of.

Read in a thread of its own, without an event loop, so that the page answers meanwhile. Tested in
tests/web/test_reading.py on a real etcd.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bgp.cluster.view import ClusterView
from calicoctl.explaining.reading import world_of
from calicoctl.session import CLUSTER, Options, datastore
from felix.explain.world import World
from ipam.admin import check as checks
from ipam.records import snapshot as snapshots
from libcalico.datastore.interface import Datastore, Selection
from libcalico.model.kinds import Resource, key_of
from libcalico.model.resources.cluster import ClusterInformationSpec
from libcalico.model.resources.nodestatus import CalicoNodeStatus
from libcalico.process import unlooped
from web.cleaning import cleaned
from web.facts.events import read_events
from web.facts.facts import Facts
from web.facts.readonly import ReadOnly
from web.facts.sessions import sessions_of
from web.facts.words import of_folders

ROUTING = ("BGPConfiguration", "BGPPeer", "BGPFilter")
STATUS = "CalicoNodeStatus"


@dataclass(frozen=True, slots=True)
class Source:
    """Where facts come from: the datastore's settings, and folders of status files by node."""

    options: Options
    folders: Mapping[str, Path]


def read(source: Source, before: Facts | None = None) -> Facts:
    """Read everything once. Blocks; raises MuslinError. Call it outside of event loops.

    `before`: an earlier reading, whose sessions stay where nothing that decides about them changed:
    laying them out is most of the work in a large cluster.
    """
    return unlooped.run(_read(source, before))


async def _read(source: Source, before: Facts | None) -> Facts:
    began = time.monotonic()
    async with datastore(source.options) as opened:
        store: Datastore = ReadOnly(opened)
        world = await world_of(store)
        extra, unreadable = await _listed(store, (*ROUTING, STATUS))
        information = await store.get(CLUSTER)
        snapshot = await snapshots.read(store)
        report = checks.check(snapshot)
        if report.problems:
            # A living cluster changes while it is read: what was there twice is there.
            snapshot = await snapshots.read(store)
            report = checks.confirmed(report, checks.check(snapshot))
    events, why = await read_events(source.options)
    unreadable += [why] if why else []
    view = view_of(world, extra)
    now = datetime.now(UTC)
    same = before is not None and before.view == view
    return Facts(
        at=now,
        seconds=time.monotonic() - began,
        world=world,
        view=view,
        topology=before.topology if same and before is not None else sessions_of(view),
        snapshot=snapshot,
        report=report,
        statuses=_statuses(extra),
        words=of_folders(source.folders, now),
        events=events,
        cluster=information.value.spec if information else ClusterInformationSpec(),
        unreadable=tuple(
            str(cleaned(text)) for text in (*world.unreadable, *unreadable, *_unusable(view))
        ),
    )


async def _listed(store: Datastore, kinds: tuple[str, ...]) -> tuple[list[Resource], list[str]]:
    result: list[Resource] = []
    unreadable: list[str] = []
    for kind in kinds:
        listing = await store.list(Selection(kind))
        result += [entry.value for entry in listing.entries]
        unreadable += [f"{name} cannot be read: {reason}" for name, reason in listing.broken]
    return result, unreadable


def view_of(world: World, extra: list[Resource]) -> ClusterView:
    view = ClusterView("")
    for key, value in world.of("Node"):
        view.apply(key, value)
    for each in extra:
        if each.kind in ROUTING:
            view.apply(key_of(each), each)
    return view


def _unusable(view: ClusterView) -> list[str]:
    return [f"{name} cannot be used: {reason}" for name, reason in view.broken.items()]


def _statuses(extra: list[Resource]) -> dict[str, CalicoNodeStatus]:
    """The newest report of each node; one that never came does not count."""
    newest: dict[str, CalicoNodeStatus] = {}
    for each in extra:
        if not isinstance(each, CalicoNodeStatus) or not each.status.lastUpdated:
            continue
        known = newest.get(each.spec.node)
        if known is None or (known.status.lastUpdated or "") < each.status.lastUpdated:
            newest[each.spec.node] = each
    return newest
