"""Writing this machine's Node: guarded, and checked against the addresses of all others.

Tested in tests/node/test_startup.py, test_same_address.py and test_redetect.py.
"""

from __future__ import annotations

import logging

from libcalico.datastore.capabilities import pages_of
from libcalico.datastore.interface import (
    ABSENT,
    CommitConflict,
    Datastore,
    Delete,
    Entry,
    Put,
    Selection,
)
from libcalico.errors import DatastoreError, MuslinError
from libcalico.model.keys import ResourceKey
from libcalico.model.resources.node import Node
from libcalico.model.validation.validate import validate
from node.identity import autodetect, registration
from node.settings.environment import AddressSetting, IPInterface, Settings
from node.start import addresses
from node.start.addresses import Machine

log = logging.getLogger(__name__)

WRITE_TRIES = 20


async def register(
    store: Datastore, name: str, chosen: Settings, machine: Machine, known: Node | None = None
) -> None:
    """Write the Node of this machine, if it differs from the stored one.

    `known` is an earlier Node, for use where none is stored. Raises MuslinError when the Node has
    no address, or one that another node has.
    """
    key = ResourceKey("Node", name)
    for _ in range(WRITE_TRIES):
        entry = await store.get(key)
        stored = entry.value if entry else known
        ipv4 = await _address(chosen.ipv4, 4, stored, chosen.backend, machine)
        ipv6 = await _address(chosen.ipv6, 6, stored, chosen.backend, machine)
        shown = autodetect.shown(machine.interfaces)
        node = registration.desired(stored, name, chosen, ipv4, ipv6, shown)
        if chosen.backend != "none" and not registration.has_address(node):
            raise MuslinError(
                f"Node({name}): no address: set IP or IP6 (allowed: autodetect, an address),"
                " or CALICO_NETWORKING_BACKEND=none"
            )
        if entry is not None and node == stored:
            return
        if await write(store, entry, node, chosen):
            return
    raise DatastoreError(f"{key}: others changed it {WRITE_TRIES} times meanwhile")


async def write(store: Datastore, entry: Entry | None, node: Node, chosen: Settings) -> bool:
    """Write a Node over `entry`, checked against all others; False when it changed meanwhile.

    Raises MuslinError when another node has one of its addresses. Two nodes that start at once do
    not see each other before they write: so both read again, and the one that wrote later takes
    its write back (NODE-2).
    """
    key = ResourceKey("Node", node.metadata.name)
    check = chosen.check_duplicates and _moved(entry.value if entry else None, node)
    if check:
        nodes = (await store.list(Selection("Node"))).entries
        registration.refuse_duplicates(key.name, node, [one.value for one in nodes])
    validate(node)
    try:
        revision = await store.commit([Put(key, node, entry.revision if entry else ABSENT, entry)])
    except CommitConflict:
        return False
    if check:
        # Read the revision of our write: the earlier node may have written again since, such as its
        # tunnel's address, and must not look like the later one.
        pages = pages_of(store, Selection("Node"), revision)
        nodes = [one async for page in pages for one in page.entries]
        earlier = [one.value for one in nodes if one.revision < revision]
        try:
            registration.refuse_duplicates(key.name, node, earlier)
        except MuslinError:
            await _take_back(store, key, entry, revision)
            raise
    wrote = [registration.stored_address(node, version) for version in (4, 6)]
    log.info("wrote the Node", extra={"node": key.name, "ipv4": wrote[0], "ipv6": wrote[1]})
    return True


async def _take_back(
    store: Datastore, key: ResourceKey, entry: Entry | None, revision: int
) -> None:
    """Restore what was there before the write of `revision`, unless it changed since."""
    change = Delete(key, revision) if entry is None else Put(key, entry.value, revision, entry)
    try:
        await store.commit([change])
    except CommitConflict:
        log.warning("a Node with an address of another one was changed meanwhile: it stays")


def _moved(stored: Node | None, node: Node) -> bool:
    return any(
        registration.stored_address(stored, version) != registration.stored_address(node, version)
        for version in (4, 6)
    )


async def _address(
    setting: AddressSetting, version: int, stored: Node | None, backend: str, machine: Machine
) -> IPInterface | None:
    """The address to write for a family, None to keep the stored one."""
    known = registration.stored_address(stored, version)
    if addresses.keeps(setting, backend, known):
        return None
    return await addresses.first(setting, version, machine, known)
