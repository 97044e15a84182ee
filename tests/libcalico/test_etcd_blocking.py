"""The datastore of a short command: the short way to etcd, and the change to the long one."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import blocking, built_in
from libcalico.datastore.blocking import BlockingDatastore
from libcalico.datastore.etcd import blocking_call, brief, frames
from libcalico.datastore.etcd.blocking_call import BlockingCalls
from libcalico.datastore.etcd.brief import BriefEtcd
from libcalico.datastore.etcd.unary import Unanswered
from libcalico.datastore.interface import (
    ABSENT,
    Change,
    CommitConflict,
    Datastore,
    Delete,
    Entry,
    Listing,
    Put,
    Selection,
)
from libcalico.errors import DatastoreUnavailable, InvalidValue
from libcalico.model import GlobalNetworkSet, Metadata, NetworkSetSpec, ResourceKey
from libcalico.process import unlooped
from tests.support.certificates import Authority
from tests.support.etcd import CALL, Etcd
from tests.support.patience import HANG

KEY = ResourceKey("GlobalNetworkSet", "one")
STATUS = frames.field(b"grpc-status", b"7")


def network_set(name: str = "one", net: str = "10.0.0.0/24") -> GlobalNetworkSet:
    return GlobalNetworkSet(metadata=Metadata(name=name), spec=NetworkSetSpec(nets=[net]))


@contextmanager
def opened(config: DatastoreConfig, *, short: bool = True) -> Iterator[BlockingDatastore]:
    store = BlockingDatastore(config)
    assert (store._brief is not None) is short
    try:
        yield store
        assert (store._full is None) is short
    finally:
        unlooped.run(store.close())


def fully(etcd: Etcd, selection: Selection) -> Listing:
    async def ask() -> Listing:
        async with etcd.connect() as store:
            return await store.list(selection)

    return asyncio.run(ask())


def committed(store: Datastore, *changes: Change) -> int:
    return unlooped.run(store.commit(changes))


def entry(store: Datastore, key: ResourceKey = KEY) -> Entry:
    found = unlooped.run(store.get(key))
    assert found is not None
    return found


def test_what_the_long_way_reads_and_writes(etcd: Etcd) -> None:
    with opened(etcd.config()) as store:
        assert unlooped.run(store.get(KEY)) is None
        revision = committed(store, Put(KEY, network_set(), ABSENT))
        assert entry(store).revision == revision
        selection = Selection("GlobalNetworkSet")
        listing = unlooped.run(store.list(selection))
        assert listing == fully(etcd, selection)
        assert [one.key for one in listing.entries] == [KEY]
        changed = committed(store, Put(KEY, network_set(net="10.1.0.0/24"), revision, entry(store)))
        with pytest.raises(CommitConflict) as told:
            committed(store, Put(KEY, network_set(), ABSENT))
        assert told.value.current == {KEY: entry(store)}
        committed(store, Delete(KEY, changed))
        assert unlooped.run(store.get(KEY)) is None


def test_pages_and_what_is_built_in(etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brief, "PAGE", 2)
    with opened(etcd.config()) as store:
        for index in range(7):
            key = ResourceKey("GlobalNetworkSet", f"s{index}")
            committed(store, Put(key, network_set(key.name), ABSENT))
        for selection in (Selection("GlobalNetworkSet"), Selection("Profile")):
            assert unlooped.run(store.list(selection)) == fully(etcd, selection)
        found = unlooped.run(store.get_many([built_in.KEY, KEY]))
        assert found == {built_in.KEY: built_in.entry(), KEY: None}


def test_bytes_that_are_no_object(etcd: Etcd) -> None:
    etcd.put("/calico/resources/v3/projectcalico.org/globalnetworksets/one", b"{")
    with opened(etcd.config()) as store:
        with pytest.raises(InvalidValue):
            unlooped.run(store.get(KEY))
        selection = Selection("GlobalNetworkSet")
        assert unlooped.run(store.list(selection)).broken == fully(etcd, selection).broken
        raw = unlooped.run(store.list(replace(selection, raw=True))).entries
        assert [one.raw for one in raw] == [b"{"]


@pytest.mark.parametrize(
    "change",
    [
        Put(KEY, network_set()),
        Put(KEY, network_set(), ABSENT, ttl=60),
        Put(KEY, network_set(net="x" * 20_000), ABSENT),
    ],
    ids=["without a guard", "with a lease", "long"],
)
def test_what_is_not_usual_goes_the_long_way(etcd: Etcd, change: Put) -> None:
    store = BlockingDatastore(etcd.config())
    try:
        committed(store, change)
        assert store._brief is None
        assert entry(store).value.spec == change.value.spec
    finally:
        unlooped.run(store.close())


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_write_without_an_answer_is_doubted_where_it_may_have_happened(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch, carried_out: bool
) -> None:
    """ETCD-1."""

    def lost(calls: BlockingCalls, path: bytes, request: bytes) -> bytes:
        if carried_out:
            genuine(calls, path, request)
        raise Unanswered("the connection ended", sent=True)

    genuine = BlockingCalls.call
    store = BlockingDatastore(etcd.config())
    monkeypatch.setattr(BlockingCalls, "call", lost)
    try:
        if carried_out:
            with pytest.raises(DatastoreUnavailable, match="may or may not have happened"):
                committed(store, Put(KEY, network_set(), ABSENT))
        else:
            committed(store, Put(KEY, network_set(), ABSENT))
        assert entry(store).value.spec.nets == ["10.0.0.0/24"]
        with pytest.raises(CommitConflict):  # a later one without doubt
            committed(store, Put(KEY, network_set(), ABSENT))
    finally:
        unlooped.run(store.close())


def test_a_password_and_other_stores_go_the_long_way(etcd: Etcd) -> None:
    config = DatastoreConfig(
        datastore_type="etcdv3",
        etcd_endpoints=etcd.endpoint,
        username="root",
        password="secret",
        timeout=CALL,
    )
    with opened(config, short=False) as store:
        assert unlooped.run(store.get(KEY)) is None
    with pytest.raises(NotImplementedError):
        blocking.BlockingDatastore(etcd.config()).watch([], 0)


def test_a_certificate_of_the_client(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    server, client = authority.issue("server"), authority.issue("client", names=())
    flags = [
        f"--cert-file={server.cert}",
        f"--key-file={server.key}",
        f"--trusted-ca-file={authority.cert}",
        "--client-cert-auth=true",
    ]
    etcd = Etcd(tmp_path / "etcd", flags, "https")
    etcd.ctl_flags = [
        f"--cacert={authority.cert}",
        f"--cert={client.cert}",
        f"--key={client.key}",
    ]
    etcd.start()
    try:
        config = DatastoreConfig(
            datastore_type="etcdv3",
            etcd_endpoints=etcd.endpoint,
            ca_file=str(authority.cert),
            cert_file=str(client.cert),
            key_file=str(client.key),
            timeout=CALL,
        )
        with opened(config) as store:
            committed(store, Put(KEY, network_set(), ABSENT))
            assert entry(store).value.spec.nets == ["10.0.0.0/24"]
    finally:
        etcd.stop()


@contextmanager
def member(*answers: bytes) -> Iterator[BlockingCalls]:
    """A connection to a server that greets, and says these bytes to the first call."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:

        def serve() -> None:
            line, _ = listening.accept()
            with closing(line):
                line.sendall(frames.frame(frames.SETTINGS, 0, 0, b""))
                while b"/etcdserverpb" not in line.recv(1 << 16):
                    pass
                line.sendall(b"".join(answers))
                while line.recv(1 << 16):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        calls = BlockingCalls("127.0.0.1", listening.getsockname()[1])
        try:
            yield calls
        finally:
            calls.close()
            thread.join()


DATA = frames.frame(frames.DATA, 0, 1, frames.message(b"answer"))
END = frames.frame(frames.HEADERS, frames.END_STREAM | frames.END_HEADERS, 1, b"\x88")


def test_an_answer_between_frames_of_the_connection() -> None:
    ping = frames.frame(frames.PING, 0, 0, b"12345678")
    widen = frames.grant(0, 100)
    with member(ping, DATA[:12], DATA[12:], widen, END) as calls:
        assert calls.call(b"/etcdserverpb.KV/Range", b"x") == b"answer"


@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        (frames.frame(frames.GOAWAY, 0, 0, bytes(8)), True),
        (frames.frame(frames.RESET, 0, 1, b"\0\0\0\x07"), False),
        (frames.frame(frames.RESET, 0, 1, b"\0\0\0\x08"), True),
        (frames.frame(frames.HEADERS, 5, 1, b"\x88" + STATUS), False),
        (END, True),
        (DATA + DATA + END, True),
        (frames.frame(frames.DATA, frames.PADDED, 1, b"\0"), True),
        (b"\xff" * 9, True),
        (b"", True),
    ],
)
def test_what_is_no_answer(answer: bytes, sent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """ETX-1."""
    monkeypatch.setattr(blocking_call, "ANSWER_SECONDS", HANG if answer else 0.5)
    with member(answer) as calls, pytest.raises(Unanswered) as told:
        calls.call(b"/etcdserverpb.KV/Range", b"x")
    assert told.value.sent is sent


def test_a_server_with_a_small_window_is_not_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    small = frames.frame(frames.SETTINGS, 0, 0, frames.SETTING.pack(frames.INITIAL_WINDOW, 10))
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        port = listening.getsockname()[1]

        def serve() -> None:
            line, _ = listening.accept()
            with closing(line):
                line.sendall(small)
                line.recv(1 << 16)

        thread = threading.Thread(target=serve)
        thread.start()
        config = DatastoreConfig(datastore_type="etcdv3", etcd_endpoints=f"http://127.0.0.1:{port}")
        with pytest.raises(Unanswered, match="small window"):
            BriefEtcd(config)
        thread.join()
