"""What pods may ask of the node service: round trips, fixed addresses, several at once."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from ipaddress import ip_address

import pytest

from ipam.admin.check import check
from ipam.allocator.requests import Granted
from ipam.allocator.service import NodeAllocator, read_facts
from ipam.records import snapshot
from ipam.records.errors import AddressInUse, IPAMError, NotInPool
from libcalico.datastore.interface import Datastore, Put, Selection
from libcalico.model import IPReservation, IPReservationSpec, Metadata, Profile, ProfileSpec
from libcalico.model.keys import ResourceKey
from tests.ipam.world import allocate, put_node, put_pool, release, serving
from tests.support.etcd import Etcd
from tests.support.patience import HANG


def calls(etcd: Etcd) -> int:
    """How many calls the server has answered, as it counts itself."""
    with urllib.request.urlopen(f"{etcd.endpoint}/metrics", timeout=HANG) as answer:
        text = answer.read().decode()
    pattern = r'^grpc_server_handled_total\{grpc_code="OK".*grpc_service="etcdserverpb.KV".* (\d+)$'
    return sum(int(number) for number in re.findall(pattern, text, re.MULTILINE))


@pytest.mark.asyncio
async def test_with_a_warm_block_an_add_is_one_round_trip(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        await put_pool(store, "p", "10.0.0.0/24", 26)
        await put_node(store, "n1")
        facts = await read_facts(store, "n1")
        allocator = NodeAllocator(store, "n1", lambda: facts)
        worker = asyncio.create_task(allocator.run())
        await allocator.perform(allocate("warm"))
        before = calls(etcd)
        for number in range(10):
            await allocator.perform(allocate(f"web{number}"))
        assert calls(etcd) - before == 10
        before = calls(etcd)
        await asyncio.gather(*(allocator.perform(allocate(f"more{n}")) for n in range(40)))
        assert calls(etcd) - before == 1, "one transaction for the requests of one instant"
        worker.cancel()


@pytest.mark.asyncio
async def test_fixed_addresses(etcd: Etcd) -> None:
    """In a block of nobody, in one's own, in another's; all or none; a repeated ADD keeps them."""
    async with etcd.connect() as store:
        await put_pool(store, "p", "10.0.0.0/26", 28)
        await put_pool(store, "six", "fd00::/120", 124)
        for name in ("n1", "n2"):
            await put_node(store, name)
        async with serving(store, "n1") as one, serving(store, "n2") as two:
            both = (ip_address("10.0.0.17"), ip_address("fd00::5"))
            granted = await one.perform(allocate("web", fixed=both))
            assert (granted.addresses, granted.fresh) == (both, True)
            again = await one.perform(allocate("web", fixed=both))
            assert (again.addresses, again.fresh) == (both, False)
            with pytest.raises(
                AddressInUse, match=r"10\.0\.0\.17 is already in use by handle net\.web"
            ):
                await two.perform(allocate("other", fixed=(ip_address("10.0.0.18"), both[0])))
            borrowed = await two.perform(allocate("other", fixed=(ip_address("10.0.0.18"),)))
            assert borrowed.addresses == (ip_address("10.0.0.18"),)
            with pytest.raises(NotInPool, match=r"10\.9\.0\.1 is not in a configured pool"):
                await one.perform(allocate("lost", fixed=(ip_address("10.9.0.1"),)))
            await asyncio.gather(one.perform(release("web")), two.perform(release("other")))
            claims = {str(e.key) for e in (await store.list(Selection("BlockAffinity"))).entries}
            assert claims == {"BlockAffinity(n1, 10.0.0.16/28)", "BlockAffinity(n1, fd00::/124)"}
        assert check(await snapshot.read(store)).problems == ()


@pytest.mark.asyncio
async def test_two_services_want_one_fixed_address(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        await put_pool(store, "p", "10.0.0.0/26", 28)
        async with serving(store, "n1") as one, serving(store, "n2") as two:
            wanted = (ip_address("10.0.0.1"),)
            outcomes = await asyncio.gather(
                *(s.perform(allocate(n, fixed=wanted)) for s, n in ((one, "a"), (two, "b"))),
                return_exceptions=True,
            )
            assert {type(outcome) for outcome in outcomes} == {Granted, AddressInUse}


@pytest.mark.asyncio
async def test_several_addresses_all_or_none_or_as_many_as_there_are(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        await put_pool(store, "p", "10.0.0.0/29", 31)
        async with serving(store, "n1") as allocator:
            five = await allocator.perform(allocate("web", counts={4: 5}))
            assert len(set(five.addresses)) == 5
            with pytest.raises(IPAMError, match="3 are free, and 4 are wanted"):
                await allocator.perform(allocate("more", counts={4: 4}))
            async with serving(store, "n2") as other:
                with pytest.raises(IPAMError, match="3 are free, and 4 are wanted"):
                    await other.perform(allocate("more", counts={4: 4}))
                lent = await other.perform(allocate("lent", counts={4: 3}))
                assert len(set(lent.addresses)) == 3
                await other.perform(release("lent"))
            rest = await allocator.perform(allocate("some", counts={4: 4}, partial=True))
            assert len(rest.addresses) == 3
            assert len((await allocator.perform(release("web"))).addresses) == 5


@pytest.mark.asyncio
@pytest.mark.promise("F-24")
@pytest.mark.promise("F-26")
async def test_namespaces_and_reservations_are_heard(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        await put_pool(store, "red", "10.3.0.0/29", 29, namespaceSelector='color == "red"')
        await put_pool(store, "rest", "10.4.0.0/29", 29, namespaceSelector='color != "red"')
        await name_namespace(store, "reds", "red")
        await name_namespace(store, "blues", "blue")
        reservation = IPReservation(
            metadata=Metadata(name="r"), spec=IPReservationSpec(reservedCIDRs=["10.3.0.0/30"])
        )
        await store.commit([Put(ResourceKey("IPReservation", "r"), reservation)])
        async with serving(store, "n1") as allocator:
            asked = [
                allocate(f"{ns}{i}", namespace=ns) for i in range(4) for ns in ("reds", "blues")
            ]
            granted = await asyncio.gather(*map(allocator.perform, asked))
            found = {str(g.addresses[0]) for g in granted}
            assert found == {f"10.3.0.{i}" for i in range(4, 8)} | {f"10.4.0.{i}" for i in range(4)}
            given = allocate("direct", namespace_labels={"color": "blue"})
            assert str((await allocator.perform(given)).addresses[0]) == "10.4.0.4"


async def name_namespace(store: Datastore, name: str, color: str) -> None:
    """A namespace's profile, as the controllers write it."""
    profile = Profile(
        metadata=Metadata(name=f"kns.{name}"),
        spec=ProfileSpec(labelsToApply={"pcns.color": color}),
    )
    await store.commit([Put(ResourceKey("Profile", f"kns.{name}"), profile)])


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("cidr", "size"),
    [("10.0.0.0/19", 20), ("10.0.0.0/26", 32), ("fd00::/112", 116), ("fd00::/122", 128)],
)
async def test_every_size_of_block_serves(etcd: Etcd, cidr: str, size: int) -> None:
    async with etcd.connect() as store:
        await put_pool(store, "p", cidr, size)
        families = (6,) if ":" in cidr else (4,)
        async with serving(store, "n1") as allocator:
            names = [f"web{number}" for number in range(18)]
            granted = await asyncio.gather(
                *(allocator.perform(allocate(name, families=families)) for name in names)
            )
            assert len({g.addresses for g in granted}) == 18
            await asyncio.gather(*(allocator.perform(release(name)) for name in names))
        report = check(await snapshot.read(store))
        assert report.problems == ()
        assert report.records == ()
