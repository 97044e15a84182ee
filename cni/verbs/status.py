"""CNI STATUS: can this node serve an ADD now?

50 says no; 51 says no, and the pods that run may suffer as well. Cheap: nothing is written,
and what needs the datastore is looked at in the background, at most every `LOOK_SECONDS`.

Invariants (tests/cni_conformance/test_delegates.py, tests/cni_conformance/test_verbs.py):
  CNI-87  A delegate's 50 and 51 are kept; any other error of it is 50 with its text.
  CNI-88  Pools count as exhausted only when a look said so; a datastore that is slow to
          answer changes nothing. One whose watch is cut for `QUIET_SECONDS` is away.

Source: docs/reference/cni.md#status.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cni.node.daemon_context import DaemonContext, check_node_known, check_node_name
from cni.pods.pod_requests import address_request
from cni.pods.pod_source import PodFacts
from cni.request.errors import CNIError, Code
from cni.request.request import Request
from cni.verbs.delegation import Delegate, Line, is_delegated
from ipam.allocator import affinities
from ipam.allocator.claims import block_limit, free_addresses
from ipam.allocator.facts import Facts
from ipam.records import pools
from ipam.records.errors import NoPool
from ipam.records.pools import Pool
from libcalico.datastore.interface import Entry, Selection, why_full
from libcalico.errors import MuslinError
from libcalico.model.keys import BlockKey
from libcalico.model.resources.ipam import DEFAULT_IPAM_CONFIG
from libcalico.process import status_file
from linux import sysctl

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
WAIT_SECONDS = 0.05
QUIET_SECONDS = 5.0
STALE_SECONDS = 60.0


@dataclass(slots=True)
class Room:
    """What was seen: of each set of pools why they are full, or ""; since when felix is away."""

    full: dict[tuple[str, ...], str] = field(default_factory=dict)
    looked: dict[tuple[str, ...], float] = field(default_factory=dict)
    away: float | None = None


async def status(services: DaemonContext, request: Request, line: Line, room: Room) -> None:
    """Serve one STATUS; raises CNIError 50 or 51, whose text an operator can act on."""
    try:
        await services.cluster.require_ready(WAIT_SECONDS)
        check_node_name(request.config.document, services.settings, services.node)
        _require_store(services)
        await services.cluster.require_settled(0)
        check_node_known(request.config.document, services.cluster, services.node)
        _require_mtu(services, request)
    except CNIError as error:
        raise _unavailable(error.msg, error.details) from error
    if is_delegated(request):
        await _delegate(Delegate(line, request))
    else:
        await _pools(services, request, room)
    if request.plugin == "calico":
        _agents(services, request, room)


def _unavailable(msg: str, details: str = "") -> CNIError:
    return CNIError(Code.PLUGIN_NOT_AVAILABLE, msg, details)


def _require_store(services: DaemonContext) -> None:
    if services.cluster.cut > QUIET_SECONDS:
        raise _unavailable("the datastore does not answer: no pod starts here")
    if full := why_full(services.store):
        raise _unavailable(f"no pod starts here: {full}")


def _require_mtu(services: DaemonContext, request: Request) -> None:
    file = services.settings.mtu_file
    if request.config.document.get("require_mtu_file") is True and not file.exists():
        raise _unavailable(f"{file} is missing, and require_mtu_file is true")


async def _delegate(delegate: Delegate) -> None:
    plugin = delegate.request.config.ipam.type
    try:
        await delegate.status()
    except CNIError as error:
        if error.code in (Code.PLUGIN_NOT_AVAILABLE, Code.LIMITED_CONNECTIVITY):
            raise
        raise _unavailable(f'IPAM plugin "{plugin}": {error.msg}', error.details) from error


async def _pools(services: DaemonContext, request: Request, room: Room) -> None:
    facts = services.cluster.facts(services.node)
    if facts is None or all(pool.disabled for pool in facts.pools):
        raise _unavailable("there is no enabled IP pool")
    try:
        wanted = address_request(request, PodFacts())
    except CNIError as error:
        raise _unavailable(error.msg, error.details) from error
    for family in wanted.families:
        try:
            chosen = pools.select(
                facts.pools,
                family,
                node_labels=facts.node_labels,
                requested=wanted.pools.get(family, ()),
                namespace_labels=None,
            )
        except NoPool as error:
            if any(pools.selects_by_namespace(pool) for pool in facts.pools if not pool.disabled):
                continue  # pods of some namespaces are served: no fault of the node
            raise _unavailable(str(error)) from error
        if reason := await _full(services, facts, chosen, room):
            raise _unavailable(reason)


async def _full(services: DaemonContext, facts: Facts, chosen: Sequence[Pool], room: Room) -> str:
    key = tuple(pool.name for pool in chosen)
    now = time.monotonic()
    if now - room.looked.get(key, -LOOK_SECONDS) >= LOOK_SECONDS:
        room.looked[key] = now
        look = services.keep(_look(services, facts, chosen, room, key))
        await asyncio.wait({look}, timeout=WAIT_SECONDS)
    return room.full.get(key, "")


async def _look(
    services: DaemonContext, facts: Facts, chosen: Sequence[Pool], room: Room, key: tuple[str, ...]
) -> None:
    try:
        async with asyncio.timeout(services.settings.datastore_seconds):
            room.full[key] = await exhausted(services, facts, chosen)
    except (MuslinError, TimeoutError) as error:
        room.looked.pop(key, None)
        log.info("the pools could not be looked at: %s", str(error) or "timeout")


async def exhausted(services: DaemonContext, facts: Facts, chosen: Sequence[Pool]) -> str:
    """Why no address is free for this node in these pools, or ""; allocates nothing (STA-10).

    The node's own blocks first: only where those are full, all blocks are read.
    """
    claims = await affinities.claims_of(services.store, services.node)
    keys = [BlockKey(affinities.claimed_network(entry)) for entry in claims]
    own = await services.store.get_many(list(keys)) if keys else {}
    if _free(own.values(), facts, chosen):
        return ""
    config = facts.config or DEFAULT_IPAM_CONFIG
    held = sum(1 for entry in own.values() if entry is not None and _within(entry, chosen))
    if held >= (limit := block_limit(config)):
        return (
            f"all {held} blocks of this node in pools {pools.names(chosen)} are full, "
            f"and it may hold {limit} (maxBlocksPerHost)"
        )
    entries = (await services.store.list(Selection("Block"))).entries
    total = sum(pools.block_count(pool) for pool in chosen)
    used = sum(1 for entry in entries if _within(entry, chosen))
    if used < total and config.auto_allocate_blocks:
        return ""
    if not config.strict_affinity and _free(entries, facts, chosen):
        return ""
    names = pools.names(chosen)
    return f"no address is free for this node in pools {names}: enlarge one or add a pool"


def _within(entry: Entry, chosen: Sequence[Pool]) -> bool:
    assert isinstance(entry.key, BlockKey)
    return pools.containing(chosen, entry.key.cidr) is not None


def _free(entries: Iterable[Entry | None], facts: Facts, chosen: Sequence[Pool]) -> bool:
    cooldown = (facts.config or DEFAULT_IPAM_CONFIG).ipCooldownSeconds
    for entry in entries:
        if entry is None or not _within(entry, chosen):
            continue
        assert isinstance(entry.key, BlockKey)
        cidr = entry.key.cidr
        if free_addresses(entry.value, cidr, facts.reserved, time.time_ns(), cooldown):
            return True
    return False


def _agents(services: DaemonContext, request: Request, room: Room) -> None:
    """What carries the traffic of pods that run already (STA-03)."""
    if sysctl.try_get("net/ipv4/ip_forward") == "0":
        raise CNIError(
            Code.LIMITED_CONNECTIVITY, "net.ipv4.ip_forward is 0: this node forwards nothing"
        )
    if request.config.policy_setup_timeout and _felix_away(services, room):
        raise CNIError(
            Code.LIMITED_CONNECTIVITY,
            "calico-felix cannot be reached: routes and policy of pods are not kept",
            "look at its log and http://localhost:9099/readiness",
        )
    for device in services.cluster.tunnel_devices:
        if sysctl.try_get(f"net/ipv4/conf/{device}/forwarding") is None:
            raise CNIError(
                Code.LIMITED_CONNECTIVITY,
                f"tunnel device {device} is missing, and an IP pool needs it",
            )
    if reason := _sessions(services):
        raise CNIError(Code.LIMITED_CONNECTIVITY, reason)


def _felix_away(services: DaemonContext, room: Room) -> bool:
    """Whether felix has been away for a while: a restart of it is no fault of the node."""
    settings = services.settings
    if services.felix.connected:
        room.away = None
        return False
    if not settings.felix_socket.exists() and settings.endpoint_status.exists():
        return False  # Calico's felix: it has no socket, and speaks by files
    now = time.monotonic()
    room.away = now if room.away is None else room.away
    return now - room.away >= QUIET_SECONDS


def _sessions(services: DaemonContext) -> str:
    """Why no BGP session stands where some are wanted, or ""."""
    told = status_file.read("bgp", services.settings.status) or {}
    try:
        age = datetime.now(UTC) - datetime.fromisoformat(str(told.get("time")))
    except (TypeError, ValueError):
        return ""
    if abs(age.total_seconds()) > STALE_SECONDS:
        return ""  # whoever wrote it is gone, and so are its sessions: not ours to judge
    peers = told.get("peers")
    if not isinstance(peers, list) or not peers:
        return ""
    if any(isinstance(peer, dict) and peer.get("state") == "up" for peer in peers):
        return ""
    return f"none of {len(peers)} BGP sessions is established: pods of other nodes are out of reach"
