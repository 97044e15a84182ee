"""ETCD-2: whatever stands in the store, whoever follows it gets an entry or a reason."""

from __future__ import annotations

import asyncio
from ipaddress import ip_network

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcalico.datastore.etcd.entries import entry_of
from libcalico.datastore.interface import Selection
from libcalico.datastore.syncer import Syncer
from libcalico.model.keys import AffinityKey, BlockKey, HandleKey, IPAMConfigKey, Key, ResourceKey
from libcalico.model.kinds import KINDS
from tests.support.etcd import Etcd
from tests.support.patience import HANG

BLOCK = ip_network("10.0.0.0/26")
KEYS: list[Key] = [
    *(ResourceKey(kind.name, "n", "ns" if kind.namespaced else "") for kind in KINDS.values()),
    BlockKey(BLOCK),
    AffinityKey("n1", BLOCK),
    HandleKey("h"),
    IPAMConfigKey(),
]
TORN = '{"block":7'
"""Of another type before it breaks off: the decoder meets the type first."""

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
names = st.sampled_from(["spec", "metadata", "name", "labels", "cidr", "block", "state", "order"])
trees = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(names | st.text(), inner)
)


@given(key=st.sampled_from(KEYS), tree=trees, cut=st.integers(0, 40))
def test_any_json_torn_anywhere(key: Key, tree: object, cut: int) -> None:
    raw = msgspec.json.encode(tree)
    for value in (raw, raw[: len(raw) - cut], raw + raw):
        entry, reason = entry_of(key, value, 1)
        assert entry is not None or reason


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize(
    "raw",
    [TORN.encode(), b"[" * 5000, b'{"spec":' * 2000, b"\xff\xfe", b'{"spec":7', b""],
    ids=["torn", "deep list", "deep object", "not text", "torn spec", "empty"],
)
def test_hostile_bytes(key: Key, raw: bytes) -> None:
    entry, reason = entry_of(key, raw, 1)
    assert entry is not None or reason


@pytest.mark.asyncio
async def test_a_torn_value_does_not_end_who_follows(etcd: Etcd) -> None:
    """Before the snapshot and after it; the object beside it arrives all the same."""
    etcd.put("/calico/ipam/v2/handle/torn", TORN)
    async with etcd.connect() as store:
        batches = Syncer(store, [Selection("Handle")]).batches()
        async with asyncio.timeout(HANG):
            assert (await anext(batches)).in_sync
            etcd.put("/calico/ipam/v2/handle/torn2", TORN)
            etcd.put("/calico/ipam/v2/handle/good", '{"block":{"10.0.0.0/26":1}}')
            batch = await anext(batches)
            assert [update.key for update in batch.updates] == [HandleKey("good")]
        await batches.aclose()  # type: ignore[attr-defined]
