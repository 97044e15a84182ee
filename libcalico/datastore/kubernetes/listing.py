"""Listings of one collection of the API, in pages at one revision.

Tested in tests/apiserver/test_kdd_store.py and in the simulation (tests/simulation).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from libcalico.datastore.interface import Listing
from libcalico.datastore.kubernetes.answers import list_of
from libcalico.datastore.kubernetes.decode import entry_of, selected
from libcalico.datastore.kubernetes.failures import as_datastore_error, translated
from libcalico.datastore.kubernetes.feeds import NOWHERE, Feed
from libcalico.datastore.kubernetes.mapping import Mapping, OfNodes
from libcalico.datastore.kubernetes.metadata import Tree
from libcalico.errors import InvalidValue
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import KubernetesError, ObjectNotFound
from libcalico.process import unlooped

PAGE, SLICE = 500, 100


async def pages(client: Client, feed: Feed, revision: int) -> AsyncIterator[tuple[Listing, int]]:
    """The pages of one collection, each with the revision of the list. Raises DatastoreError."""
    token = ""
    while True:
        asked = {**feed.parameters, "limit": str(PAGE)}
        if token:
            asked["continue"] = token
        elif revision:
            asked |= {"resourceVersion": str(revision), "resourceVersionMatch": "Exact"}
        try:
            with translated():
                try:
                    answer = await client.request(
                        "GET", feed.path, asked, accept=feed.accepts_of_list
                    )
                except ObjectNotFound:
                    if not feed.mapping.collection.optional:
                        raise
                    yield Listing([], 0, []), NOWHERE
                    return
            tree = list_of(feed.path, answer, feed.mapping.collection)
            await have_nodes(client, feed.mapping, tree.get("items") or [])
        except KubernetesError as error:
            raise as_datastore_error(error) from None
        meta = tree.get("metadata") or {}
        at = int(meta.get("resourceVersion") or 0)
        page = Listing([], at, [])
        items = tree.get("items") or []
        for start in range(0, len(items), SLICE):
            for item in items[start : start + SLICE]:
                _collect(feed, item, page)
            await unlooped.pause(0)
        yield page, at
        token = meta.get("continue") or ""
        if not token:
            return


async def have_nodes(client: Client, mapping: Mapping, trees: Sequence[Tree]) -> None:
    """Read the nodes if these objects depend on them. Raises KubernetesError."""
    if isinstance(mapping, OfNodes) and mapping.lacks_nodes(trees):
        await mapping.read_nodes(client)


def _collect(feed: Feed, tree: Tree, page: Listing) -> None:
    try:
        key = feed.mapping.key(tree)
    except (InvalidValue, KeyError, TypeError, ValueError, AttributeError) as problem:
        page.broken.append((feed.path, str(problem)))
        return
    if key is None or not selected(feed.selection, key):
        return
    entry, reason = entry_of(feed.mapping, key, tree, raw=feed.selection.raw)
    if reason:
        page.broken.append((str(key), reason))
    if entry is not None:
        page.entries.append(entry)
