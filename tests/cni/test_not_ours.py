"""CNI-14, CNI-20: only a link that is proven to be this container's is removed or taken over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from cni.pods.endpoint import recorded_addresses, remover
from cni.request.attachment import Attachment
from cni.request.errors import CNIError
from cni.verbs import datastore_release
from cni.veth import wiring
from cni.veth.orphan_veths import HOST_MAC, is_orphan
from libcalico.datastore.interface import Delete, Entry
from libcalico.model import Metadata, WorkloadEndpoint, WorkloadEndpointSpec
from linux import links
from linux.netlink import Socket, open_in_netns
from tests.support.netns import Namespace, network_namespace

WEB = Attachment("node1", "net", "c" * 64, "eth0", "default", "web-1")
MARK = WEB.mark
HOST = WEB.host_interface


@pytest.fixture
def space() -> Iterator[Namespace]:
    with network_namespace("mine") as made, made.entered():
        yield made


def make(space: Namespace, alias: str, name: str = HOST, kind: str = "veth") -> None:
    peer = ("peer", "name", "other") if kind == "veth" else ()
    space.run("ip", "link", "add", name, "type", kind, *peer)
    if alias:
        space.run("ip", "link", "set", name, "alias", alias)


def stands(space: Namespace, name: str = HOST) -> bool:
    with Socket() as host:
        return links.is_there(host, name)


@pytest.mark.parametrize("unmarked", [False, True])
@pytest.mark.parametrize(("alias", "ours"), [(MARK, True), ("", None), ("another", False)])
def test_a_link_without_our_mark_stays(
    space: Namespace, alias: str, ours: bool | None, unmarked: bool
) -> None:
    """`ours` None: where the datastore has recorded it for this container."""
    make(space, alias)
    goes = unmarked if ours is None else ours
    assert wiring.remove(HOST, MARK, unmarked=unmarked) == goes
    assert stands(space) != goes


@pytest.mark.parametrize(
    ("kind", "alias", "mark", "goes"),
    [
        ("veth", MARK, MARK, True),
        ("veth", "another", MARK, False),
        ("veth", "", MARK, False),
        ("veth", "another", None, True),
        ("bridge", MARK, MARK, False),
        ("bridge", "", None, False),
    ],
)
def test_only_a_cable_is_replaced_and_with_a_mark_only_its_own(
    space: Namespace, kind: str, alias: str, mark: str | None, goes: bool
) -> None:
    make(space, alias, kind=kind)
    if goes:
        wiring.remove_stale(HOST, mark)
    else:
        with pytest.raises(CNIError, match="is not this container's"):
            wiring.remove_stale(HOST, mark)
    assert stands(space) != goes


def test_a_cable_of_others_in_the_container_is_not_taken_for_an_earlier_adds(
    space: Namespace,
) -> None:
    spec = wiring.VethSpec(HOST, "eth0", MARK, "ee:00:00:00:00:01", 1450)
    with network_namespace("pod") as pod:
        space.run("ip", "link", "add", HOST, "type", "veth", "peer", "eth0", "netns", pod.name)
        with Socket() as host, pod.path.open() as file, open_in_netns(file.fileno()) as inside:
            for alias in ("another", ""):
                space.run("ip", "link", "set", HOST, "alias", alias)
                with pytest.raises(CNIError, match="is not ours"):
                    wiring.existing(host, inside, spec)
            space.run("ip", "link", "set", HOST, "alias", MARK)
            found = wiring.existing(host, inside, spec)
            assert found is not None
            assert found.reused
            with pytest.raises(CNIError, match="is not ours"):
                wiring.existing(host, inside, replace(spec, host_interface="cali0"))
        assert stands(space)


def test_half_made_is_the_whole_picture_or_nothing() -> None:
    outer = SimpleNamespace(name=HOST, kind="veth", mac=HOST_MAC, alias="", peer_index=7)
    inner = SimpleNamespace(index=7, up=False)

    def half_made(**differs: object) -> bool:
        pair: Any = (SimpleNamespace(**vars(outer)), SimpleNamespace(**vars(inner)))
        for name, value in differs.items():
            setattr(pair[name in vars(inner)], name, value)
        return is_orphan(pair[0], pair[1], HOST)

    assert half_made()
    for name, value in {
        "name": "cali1", "kind": "macvlan", "mac": "ee:ee:ee:ee:ee:ef", "alias": "another",
        "peer_index": 8, "index": 9, "up": True,
    }.items():  # fmt: skip
        assert not half_made(**{name: value}), name


@pytest.mark.parametrize(
    ("container", "link", "asked"),
    [
        (WEB.container_id, "cali9", ["cali9"]),
        ("d" * 64, "cali9", []),
        (WEB.container_id, "veth9", []),
        (WEB.container_id, "eth0", []),
        (WEB.container_id, "", []),
    ],
)
def test_a_recorded_link_goes_if_record_and_name_are_ours(
    container: str, link: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host interface of another plugin, or of a newer sandbox of the pod, stays."""
    removed: list[str] = []

    def remove(name: str, mark: str, *, unmarked: bool) -> bool:
        assert (mark, unmarked) == (MARK, True)
        removed.append(name)
        return True

    async def in_thread(work: Any) -> Any:
        return work()

    monkeypatch.setattr(wiring, "remove", remove)
    spec = WorkloadEndpointSpec(containerID=container, interfaceName=link)
    value = WorkloadEndpoint(metadata=Metadata(name="w"), spec=spec)
    context: Any = SimpleNamespace(in_thread=in_thread)
    for own in (None, Entry(WEB.endpoint_key, value, 7, b"")):
        asyncio.run(datastore_release._remove_recorded_veth(context, WEB, own))
    assert removed == asked


@pytest.mark.parametrize("container", [WEB.container_id, "d" * 64])
def test_a_del_takes_the_endpoint_of_its_own_container_as_it_was_seen(container: str) -> None:
    """CNI-12: a newer sandbox of the pod has the same name, and keeps it."""
    value = WorkloadEndpoint(
        metadata=Metadata(name="w"),
        spec=WorkloadEndpointSpec(containerID=container, ipNetworks=["10.65.0.1/32"]),
    )
    entry, own = Entry(WEB.endpoint_key, value, 7, b""), container == WEB.container_id
    change = remover(WEB).change(entry, [])
    assert change == (Delete(WEB.endpoint_key, 7) if own else None)
    assert bool(recorded_addresses(entry, WEB)) == own
