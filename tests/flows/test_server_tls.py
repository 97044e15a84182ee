"""Mutual TLS of the aggregator: who gets in, who may ask, and files that change."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from flows.attending import Attendance
from flows.client import Aggregator
from flows.place import AggregatorError, AggregatorUnavailable, Place
from flows.query import FlowQuery
from flows.sending import Sender
from flows.server.process import Process
from flows.server.settings import Settings
from lab.certificates import Certificates, make_certificates
from libcalico.errors import MuslinError
from libcalico.process import tasks
from tests.flows.running import aggregator
from tests.flows.test_client import WORLD
from tests.support.patience import HANG, until


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls") / "one")


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls") / "other")


def settings(files: Certificates, **more: object) -> Settings:
    paths = str(files.server_cert), str(files.server_key), str(files.ca)
    return Settings(0, *paths, health=False, **more)  # type: ignore[arg-type]


async def listed(place: Place) -> int:
    async with Aggregator(place, patience=HANG) as goldmane:
        return (await goldmane.list(FlowQuery())).total


@pytest.mark.asyncio
async def test_a_client_of_the_authority_delivers_and_asks(certificates: Certificates) -> None:
    async with aggregator(settings(certificates), certificates) as running:
        sender = Sender(running.place, "n1")
        async with tasks.beside(sender.run(), name="sender"):
            sender.offer(WORLD.values())
            await until(lambda: sender.counters.received == len(WORLD), "every receipt")
        assert await listed(running.place) == len(WORLD)


@pytest.mark.asyncio
async def test_others_do_not_get_in(certificates: Certificates, others: Certificates) -> None:
    """A certificate of another authority; no TLS at all; a server that is not trusted."""
    async with aggregator(settings(certificates), certificates) as running:
        address, ca = running.place.address, str(certificates.ca)
        foreign = Place(address, ca, str(others.client_cert), str(others.client_key))
        plain = Place(address)
        wary = Place(
            address, str(others.ca), str(certificates.client_cert), str(certificates.client_key)
        )
        for place in (foreign, plain, wary):
            with pytest.raises(AggregatorUnavailable):
                await listed(place)
        assert await listed(running.place) == 0


@pytest.mark.asyncio
async def test_names_narrow_down_who_asks_and_who_delivers(certificates: Certificates) -> None:
    narrow = settings(
        certificates, askers=frozenset({"admin"}), deliverers=frozenset({"muslin-lab-client"})
    )
    async with aggregator(narrow, certificates) as running:
        sender = Sender(running.place, "n1")
        async with tasks.beside(sender.run(), name="sender"):
            sender.offer(WORLD.values())
            await until(lambda: sender.counters.received == len(WORLD), "every receipt")
        with pytest.raises(AggregatorError, match="muslin-lab-client may not ask"):
            await listed(running.place)
        async with Aggregator(running.place) as goldmane:
            with pytest.raises(AggregatorError, match="may not ask"):
                await goldmane.nodes()
            with pytest.raises(AggregatorError, match="may not ask"):
                await anext(goldmane.ask("status"))
            with pytest.raises(AggregatorError, match="may not ask"):
                await anext(goldmane.stream(start=-100))


@pytest.mark.asyncio
async def test_who_may_not_deliver_learns_it(certificates: Certificates) -> None:
    narrow = settings(certificates, deliverers=frozenset({"calico-node"}))
    async with aggregator(narrow, certificates) as running:
        sender = Sender(running.place, "n1")
        attendance = Attendance(running.place, "n1", "v1", {})
        async with tasks.beside(sender.run(), attendance.run(), name="node"):
            sender.offer(WORLD.values())
            # gRPC may first say that the call broke while it was written.
            refused = "muslin-lab-client may not deliver or attend"
            await until(lambda: refused in sender.trouble, "the sender is told")
            await until(lambda: refused in attendance.trouble, "the attendance is told")
        assert await listed(running.place) == 0


def copied(source: Certificates, folder: Path) -> Certificates:
    """The server's files where they can be replaced in one step each."""
    folder.mkdir(exist_ok=True)
    paths = {}
    for field in ("ca", "server_cert", "server_key"):
        fresh = folder / f"{field}.fresh"
        shutil.copy(getattr(source, field), fresh)
        os.replace(fresh, folder / field)
        paths[field] = folder / field
    return Certificates(**paths, client_cert=source.client_cert, client_key=source.client_key)


@pytest.mark.asyncio
async def test_new_files_are_in_force_without_a_restart(
    certificates: Certificates, others: Certificates, tmp_path: Path
) -> None:
    served = copied(certificates, tmp_path / "served")
    async with aggregator(settings(served), certificates) as running:
        assert await listed(running.place) == 0
        copied(others, tmp_path / "served")
        new = Place(
            running.place.address,
            *map(str, (others.ca, others.client_cert, others.client_key)),
        )
        assert await listed(new) == 0
        with pytest.raises(AggregatorUnavailable):
            await listed(running.place)


@pytest.mark.asyncio
async def test_files_that_do_not_fit_leave_the_old_ones_in_force(
    certificates: Certificates, others: Certificates, tmp_path: Path
) -> None:
    served = copied(certificates, tmp_path / "served")
    async with aggregator(settings(served), certificates) as running:
        shutil.copy(others.server_key, served.server_key)
        assert await listed(running.place) == 0
        await running.process.beat()
        assert running.process.reporter.note


@pytest.mark.asyncio
async def test_a_server_without_its_files_does_not_start(
    certificates: Certificates, tmp_path: Path
) -> None:
    missing = Settings(0, str(tmp_path / "none.pem"), "", "", health=False)
    with pytest.raises(MuslinError, match="TLS of the server"):
        await Process(missing).start()
