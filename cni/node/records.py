"""What this node knows of its own attachments, kept beside the datastore.

Endpoint and addresses of a pod stand in the datastore, where an operator may delete them while the
pod runs: with its Node, its block, or by name. The pod knows nothing of it, and its address would
be free for another one. So each attachment is remembered here, from its ADD to its DEL, in memory
and in a file below `/var/lib/calico/cni/attachments`; `cni.server.restore` puts back what is
missing.

Of an address that another main plugin took (`calico-ipam` under bridge, say) no link of ours tells:
it stands while the container's namespace stands, by path and inode.

A file is written when calls have ended for a moment, and without fsync: a machine that loses its
power loses its pods too, and what a killed daemon did not write is read from the datastore.

Invariants (tests/cni/test_restore.py):
  CNI-100  An address that a living attachment of this node has is never given to another one here,
           also where the datastore says that it is free.
  CNI-101  A record is of the attachment's newest container, and goes with the attachment's DEL.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from cni.request.attachment import Attachment
from cni.request.errors import CNIError, Code
from ipam.records.blocks import IPAddress, parse_address
from libcalico.errors import MuslinError
from libcalico.model import WorkloadEndpoint
from libcalico.model.codec import decode_value, encode_value
from libcalico.model.keys import ResourceKey

log = logging.getLogger(__name__)

PAUSE = 0.5
"""Seconds between a call and the writing of what it left."""


class _File(msgspec.Struct, frozen=True):
    node: str
    network: str
    container: str
    ifname: str
    namespace: str
    pod: str
    link: str
    addresses: list[str]
    endpoint: msgspec.Raw
    netns: str = ""
    inode: str = ""


class Record(msgspec.Struct, frozen=True):
    """One attachment: its link on the host, the addresses of our pools, and its endpoint.

    Of another main plugin's only the addresses, and its namespace: the path, and what stood there.
    """

    attachment: Attachment
    link: str
    addresses: tuple[IPAddress, ...]
    endpoint: WorkloadEndpoint | None
    netns: str = ""
    inode: str = ""

    @property
    def key(self) -> ResourceKey:
        """The endpoint's key."""
        return self.attachment.endpoint_key

    def is_of(self, attachment: Attachment) -> bool:
        """Whether it is of this interface of this container."""
        own = self.attachment
        return (own.container_id, own.ifname) == (attachment.container_id, attachment.ifname)

    def stands(self, marks: Mapping[str, str]) -> bool:
        """Whether its link is on this host, with its mark (CNI-102). `marks`: by link."""
        if self.netns:
            return inode_of(self.netns) == self.inode
        return marks.get(self.link) == self.attachment.mark


class Records:
    """All records of this node. `comparison_due`: the datastore may lack one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._kept: dict[ResourceKey, Record] = {}
        self._holders: dict[IPAddress, list[Record]] = {}
        """The newest last: it alone may have its address again, and the others count after it."""
        self._trouble = ""
        self._unwritten: dict[ResourceKey, Record] = {}
        self._dirty = asyncio.Event()
        self.comparison_due = asyncio.Event()

    def all(self) -> list[Record]:
        """Every record."""
        return list(self._kept.values())

    def knows(self, attachment: Attachment) -> bool:
        """Whether an ADD of this container's interface succeeded, and no DEL came since."""
        return self.knows_endpoint(attachment.endpoint_key, attachment.container_id)

    def knows_endpoint(self, key: ResourceKey, container: str) -> bool:
        """As `knows`, by the endpoint."""
        record = self._kept.get(key)
        return record is not None and record.attachment.container_id == container

    def remember(self, record: Record) -> None:
        """Keep a record in the place of an older container's; it is on the disk soon."""
        before = self._kept.pop(record.key, None)
        self._kept[record.key] = record
        if before and before.is_of(record.attachment) and before.addresses == record.addresses:
            for address in record.addresses:
                holders = self._holders[address]
                self._holders[address] = [record if one is before else one for one in holders]
        else:
            if before is not None:
                self._forget(before)
            for address in record.addresses:
                self._holders.setdefault(address, []).append(record)
        self._unwritten[record.key] = record
        self._dirty.set()

    async def run(self, pause: float = PAUSE) -> None:
        """Write what was remembered, until cancelled."""
        while True:
            await self._dirty.wait()
            await asyncio.sleep(pause)
            self._dirty.clear()
            self.flush()

    def flush(self) -> None:
        """Write now what was not written yet."""
        unwritten, self._unwritten = self._unwritten, {}
        for record in unwritten.values():
            self._write(record)

    def _write(self, record: Record) -> None:
        one = record.attachment
        content = _File(
            one.node, one.network, one.container_id, one.ifname, one.namespace, one.pod,
            record.link, [str(address) for address in record.addresses],
            msgspec.Raw(
                encode_value(record.key, record.endpoint, None) if record.endpoint else b"null"
            ),
            record.netns, record.inode,
        )  # fmt: skip
        target = self._path(record.key)
        fresh = target.with_suffix(".new")
        try:
            try:
                _write(fresh, msgspec.json.encode(content))
            except FileNotFoundError:
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                _write(fresh, msgspec.json.encode(content))
            fresh.replace(target)
            self._trouble = ""
        except OSError as error:
            if str(error) != self._trouble:
                log.warning("attachments are remembered in memory alone: %s", error)
            self._trouble = str(error)

    def drop(self, attachment: Attachment) -> None:
        """Forget an attachment that is gone; a newer container's record stays (CNI-101)."""
        try:
            key = attachment.endpoint_key
        except MuslinError:
            return
        record = self._kept.get(key)
        if record is None or record.attachment.container_id != attachment.container_id:
            return
        del self._kept[key]
        self._forget(record)
        self._unwritten.pop(key, None)
        _unlink(self._path(key))

    def drop_this(self, record: Record) -> None:
        """Forget this record, unless its attachment was remembered anew."""
        if self._kept.get(record.key) is record:
            self.drop(record.attachment)

    def drop_interface(self, container: str, ifname: str) -> None:
        """Forget a container's interface; without an interface all of the container's."""
        for record in self.all():
            one = record.attachment
            if one.container_id == container and ifname in ("", one.ifname):
                self.drop(one)

    def load(self) -> None:
        """Read what earlier processes wrote. Blocks."""
        try:
            files = sorted(self._directory.glob("*.json"))
        except OSError:
            return
        for file in files:
            try:
                self.remember(_read(file))
            except (OSError, ValueError, MuslinError) as error:
                log.warning("the record %s of an attachment cannot be read: %s", file.name, error)
                _unlink(file)
        self._unwritten.clear()

    def refuse_taken(self, addresses: Iterable[IPAddress], attachment: Attachment) -> None:
        """Raise CNIError 11 when a living attachment has one of the addresses (CNI-100)."""
        for address in addresses:
            holders = self._holders.get(address)
            if not holders or (holder := holders[-1]).is_of(attachment):
                continue
            self.comparison_due.set()
            raise CNIError(
                Code.TRY_AGAIN_LATER,
                f"address {address} is in use on this node by {holder.attachment}, and the"
                " datastore gave it out again",
                "its allocation was deleted while it runs; it is being put back",
            )

    def without_others(
        self, addresses: Iterable[IPAddress], attachment: Attachment
    ) -> list[IPAddress]:
        """Those of the addresses that no other living attachment has."""
        return [
            address
            for address in addresses
            if all(one.is_of(attachment) for one in self._holders.get(address, ()))
        ]

    def _forget(self, record: Record) -> None:
        for address in record.addresses:
            holders = [one for one in self._holders.pop(address, ()) if one is not record]
            if holders:
                self._holders[address] = holders

    def _path(self, key: ResourceKey) -> Path:
        text = f"{key.namespace}/{key.name}".encode()
        return self._directory / f"{hashlib.sha256(text).hexdigest()[:32]}.json"


def _write(file: Path, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(file, flags, 0o600), "wb") as opened:
        opened.write(content)


def _unlink(file: Path) -> None:
    try:
        os.unlink(file)
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warning("the record %s of an attachment stays: %s", file.name, error)


def _read(file: Path) -> Record:
    saved = msgspec.json.decode(file.read_bytes(), type=_File)
    attachment = Attachment(
        saved.node, saved.network, saved.container, saved.ifname, saved.namespace, saved.pod
    )
    addresses = tuple(parse_address(text) for text in saved.addresses)
    raw = bytes(saved.endpoint)
    endpoint = decode_value(attachment.endpoint_key, raw) if raw != b"null" else None
    return Record(attachment, saved.link, addresses, endpoint, saved.netns, saved.inode)


def inode_of(path: str) -> str:
    """Device and inode of the file at a path, empty where there is none."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return ""
    return f"{status.st_dev}:{status.st_ino}"
