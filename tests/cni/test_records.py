"""What the node remembers of its attachments: CNI-100, CNI-101, and that a restart keeps it."""

from __future__ import annotations

import asyncio
import os
import stat
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from cni.node.records import Record, Records
from cni.request.attachment import Attachment
from cni.request.errors import CNIError, Code
from ipam.records.blocks import parse_address
from libcalico.model import Metadata, WorkloadEndpoint, WorkloadEndpointSpec

WEB = Attachment("node1", "net", "c" * 64, "eth0", "default", "web-1")
AGAIN = replace(WEB, container_id="d" * 64)
OTHER = replace(WEB, container_id="e" * 64, pod="other")
SECOND = replace(WEB, ifname="net1")
ONE, TWO = parse_address("10.65.0.1"), parse_address("fd65::1")


def record(attachment: Attachment = WEB, *addresses: str) -> Record:
    spec = WorkloadEndpointSpec(
        node="node1", containerID=attachment.container_id, endpoint=attachment.ifname,
        interfaceName=attachment.host_interface, pod=attachment.pod, orchestrator="k8s",
    )  # fmt: skip
    key = attachment.endpoint_key
    value = WorkloadEndpoint(
        metadata=Metadata(name=key.name, namespace=key.namespace, labels={"a": "b"}), spec=spec
    )
    own = tuple(map(parse_address, addresses or (str(ONE), str(TWO))))
    return Record(attachment, attachment.host_interface, own, value)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path / "attachments")


def refused(records: Records, attachment: Attachment, *addresses: str) -> bool:
    try:
        records.refuse_taken(map(parse_address, addresses), attachment)
    except CNIError as error:
        return error.code == Code.TRY_AGAIN_LATER
    return False


def test_an_address_of_a_living_attachment_is_nobody_elses(records: Records) -> None:
    """CNI-100."""
    records.remember(record())
    for address in (str(ONE), str(TWO)):
        assert refused(records, OTHER, "10.65.0.9", address)
        assert not refused(records, WEB, address), "it is its own"
    assert records.comparison_due.is_set(), "it is put back"
    assert not refused(records, OTHER, "10.65.0.9")
    records.drop(WEB)
    assert not refused(records, OTHER, str(ONE), str(TWO))


def test_an_address_of_one_interface_is_no_other_ones_of_the_container(records: Records) -> None:
    """CNI-100: the datastore forgot it, and gave it out for the next interface of the pod."""
    records.remember(record())
    assert refused(records, replace(WEB, ifname="net1"), str(ONE))
    assert not refused(records, replace(WEB, network="renamed"), str(ONE)), "it is the same one"


def test_a_record_is_of_the_newest_container(records: Records) -> None:
    """CNI-101: the older one's DEL takes nothing of it, and its addresses are its own no more."""
    records.remember(record())
    newer = record(AGAIN, "10.65.0.2")
    records.remember(newer)
    assert records.all() == [newer]
    assert not refused(records, OTHER, str(ONE), str(TWO))
    records.flush()
    records.drop(WEB)
    assert records.all() == [newer]
    assert refused(records, OTHER, "10.65.0.2")
    records.drop_this(record(AGAIN, "10.65.0.2"))
    assert records.all() == [newer], "that was remembered anew meanwhile"
    records.drop_this(newer)
    assert not records.all()


def test_an_address_that_went_to_a_newer_record_stays_its_when_the_older_goes(
    records: Records,
) -> None:
    records.remember(record())
    records.remember(record(OTHER))
    records.drop(WEB)
    assert refused(records, WEB, str(ONE))


def test_an_address_of_two_records_stays_in_use_when_one_of_them_goes(records: Records) -> None:
    """CNI-100, whichever was remembered first."""
    for first, second in ((WEB, OTHER), (OTHER, WEB)):
        records.remember(record(first))
        records.remember(record(second))
        records.drop(second)
        assert refused(records, AGAIN, str(ONE))
        assert not refused(records, first, str(ONE))
        records.drop(first)
        assert not refused(records, AGAIN, str(ONE))


def test_a_label_makes_no_older_record_of_an_address_the_newest(records: Records) -> None:
    """CNI-100: what a comparison reads anew of an endpoint says nothing of its addresses."""
    records.remember(record(WEB))
    records.remember(record(OTHER))
    records.remember(msgspec.structs.replace(record(WEB), link="cali2"))
    assert not refused(records, OTHER, str(ONE))
    records.drop(OTHER)
    assert not refused(records, WEB, str(ONE))
    records.drop(WEB)
    assert not refused(records, AGAIN, str(ONE))


def test_a_collection_drops_one_interface_or_all_of_a_container(records: Records) -> None:
    second = record(SECOND, "10.65.0.3")
    for container, ifname, left in (
        (WEB.container_id, "eth0", {SECOND, OTHER}),
        (WEB.container_id, "", {OTHER}),
        (WEB.container_id, "net9", {WEB, SECOND, OTHER}),
        (AGAIN.container_id, "", {WEB, SECOND, OTHER}),
    ):
        for one in (record(), second, record(OTHER, "10.65.0.4")):
            records.remember(one)
        records.drop_interface(container, ifname)
        assert {one.attachment for one in records.all()} == left


def test_a_restart_remembers_the_same_and_what_was_dropped_stays_dropped(tmp_path: Path) -> None:
    place = tmp_path / "attachments"
    before = Records(place)
    for one in (record(), record(OTHER, "10.65.0.4"), record(SECOND, "10.65.0.3")):
        before.remember(one)
    before.flush()
    before.drop(SECOND)
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in place.iterdir()} == {0o600}
    after = Records(place)
    after.load()
    assert sorted(after.all(), key=str) == sorted(before.all(), key=str)
    assert refused(after, AGAIN, str(TWO))
    # One that was dropped before it was written is not written later.
    late = Records(place)
    late.remember(record(SECOND, "10.65.0.3"))
    late.drop(SECOND)
    late.flush()
    assert len(list(place.iterdir())) == 2


def test_what_cannot_be_read_goes_alone_and_no_link_is_followed(tmp_path: Path) -> None:
    place, victim = tmp_path / "attachments", tmp_path / "victim"
    records = Records(place)
    records.remember(record())
    records.flush()
    (file,) = place.iterdir()
    (place / "bad.json").write_text("{")
    victim.write_text("precious")
    after = Records(place)
    after.load()
    assert after.all() == [record()]
    assert not (place / "bad.json").exists()
    file.with_suffix(".new").symlink_to(victim)
    after.remember(record(WEB, "10.65.0.7"))
    after.flush()
    assert victim.read_text() == "precious"
    os.unlink(file.with_suffix(".new"))
    after.remember(record(WEB, "10.65.0.8"))
    after.flush()
    last = Records(place)
    last.load()
    assert [one.addresses for one in last.all()] == [(parse_address("10.65.0.8"),)]


def test_what_can_neither_be_read_nor_removed_ends_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "attachments"
    (directory / "folder.json").mkdir(parents=True)
    records = Records(directory)
    records.remember(record())
    records.flush()
    again = Records(directory)
    again.load()
    assert [one.attachment for one in again.all()] == [WEB]


def test_only_a_link_with_its_mark_is_its_own() -> None:
    """CNI-102."""
    one = record()
    assert one.stands({one.link: WEB.mark})
    assert not one.stands({one.link: AGAIN.mark})
    assert not one.stands({"cali9": WEB.mark})


def test_what_was_remembered_is_written_by_itself(tmp_path: Path) -> None:
    place = tmp_path / "attachments"

    async def story() -> None:
        records = Records(place)
        writing = asyncio.create_task(records.run(pause=0))
        records.remember(record())
        while not list(place.glob("*.json")):  # noqa: ASYNC110 - it writes when it comes to it
            await asyncio.sleep(0)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)

    asyncio.run(story())
