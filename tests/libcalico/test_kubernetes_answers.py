"""Lists and events in both forms, and what is neither."""

from __future__ import annotations

import msgspec
import pytest

from libcalico.datastore.interface import Selection
from libcalico.datastore.kubernetes.answers import event_of, list_of
from libcalico.datastore.kubernetes.feeds import Feed
from libcalico.datastore.kubernetes.fields import POD
from libcalico.datastore.kubernetes.mapping import Collection
from libcalico.datastore.kubernetes.table import Table
from libcalico.kubernetes import protobuf
from libcalico.kubernetes.errors import Unreachable
from tests.support.packing import packed_event, packed_list

PODS = Collection("v1", "pods", "Pod", namespaced=True, fields=POD)
POOLS = Collection("crd.projectcalico.org/v1", "ippools", "IPPool")
TREE = {"metadata": {"name": "a", "labels": {"b": ""}}, "spec": {"nodeName": "n1"}}
LIST = {"metadata": {"resourceVersion": "7"}, "items": [TREE]}
EVENT = {"type": "ADDED", "object": TREE}


@pytest.mark.parametrize(
    ("family", "brief", "watch", "listing"),
    [
        ("WorkloadEndpoint", False, protobuf.ACCEPT, protobuf.ACCEPT),
        ("Node", False, protobuf.ACCEPT, protobuf.ACCEPT),
        ("Node", True, protobuf.METADATA, protobuf.METADATA_LIST),
        ("IPPool", True, "application/json", "application/json"),
    ],
)
def test_what_is_asked_for_in_which_form(
    family: str, brief: bool, watch: str, listing: str
) -> None:
    selection = Selection(family, brief=brief)
    (mapping,) = Table().of_family(family)
    asked = mapping.asked(selection)
    feed = Feed(selection, mapping, "/p", asked.parameters, asked.brief)
    assert (feed.accepts, feed.accepts_of_list) == (watch, listing)
    assert watch.endswith("application/json"), "a server may have nothing else"


@pytest.mark.parametrize("collection", [PODS, POOLS])
def test_json_is_always_understood(collection: Collection) -> None:
    """A server, or one between it and us, may have no protobuf."""
    assert list_of("/p", msgspec.json.encode(LIST), collection) == LIST
    assert event_of("watch", msgspec.json.encode(EVENT), collection) == ("ADDED", TREE)


def test_protobuf_says_the_same() -> None:
    assert list_of("/p", packed_list(LIST, POD), PODS) == LIST
    assert event_of("watch", packed_event("ADDED", TREE, POD), PODS) == ("ADDED", TREE)


@pytest.mark.parametrize("answer", [b"", b"[]", b"\xff", b"k8s\0\x12\x05a", b"k8s\0", b"<html>"])
@pytest.mark.parametrize("collection", [PODS, POOLS])
def test_what_is_no_list_is_named(answer: bytes, collection: Collection) -> None:
    if collection is PODS and answer == b"k8s\0":
        assert list_of("/p", answer, collection) == {}  # of length nought: a list of nothing
        return
    with pytest.raises(Unreachable, match="GET /p: the answer is no list"):
        list_of("/p", answer, collection)


@pytest.mark.parametrize("line", [b"{", b"{}", b"\xff\xff", b"[]", b"\x0a\x01a", b'{"type":1}'])
@pytest.mark.parametrize("collection", [PODS, POOLS])
def test_what_is_no_event_is_named(line: bytes, collection: Collection) -> None:
    with pytest.raises(Unreachable, match="watch: an event is none"):
        event_of("watch", line, collection)
