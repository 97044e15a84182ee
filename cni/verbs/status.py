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
from ipam.allocator import stored_claims
from ipam.allocator.claims import block_limit, free_addresses
from ipam.allocator.facts import Facts
from ipam.records import pool_choice, pools
from ipam.records.errors import NoPool
from ipam.records.pools import Pool
from libcalico.datastore.capabilities import why_full
from libcalico.datastore.interface import Entry, Selection
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


async def status(context: DaemonContext, request: Request, line: Line, room: Room) -> None:
    """Serve one STATUS; raises CNIError 50 or 51, whose text an operator can act on."""
    try:
        await context.cluster.require_ready(WAIT_SECONDS)
        check_node_name(request.config.document, context.settings, context.node)
        _require_store(context)
        await context.cluster.require_settled(0)
        check_node_known(request.config.document, context.cluster, context.node)
        _require_mtu(context, request)
    except CNIError as error:
        raise _unavailable(error.msg, error.details) from error
    if is_delegated(request):
        await _delegate(Delegate(line, request))
    else:
        await _pools(context, request, room)
    if request.plugin == "calico":
        _agents(context, request, room)


def _unavailable(msg: str, details: str = "") -> CNIError:
    return CNIError(Code.PLUGIN_NOT_AVAILABLE, msg, details)


def _require_store(context: DaemonContext) -> None:
    if context.cluster.cut > QUIET_SECONDS:
        raise _unavailable("the datastore does not answer: no pod starts here")
    if full := why_full(context.store):
        raise _unavailable(f"no pod starts here: {full}")


def _require_mtu(context: DaemonContext, request: Request) -> None:
    file = context.settings.mtu_file
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


async def _pools(context: DaemonContext, request: Request, room: Room) -> None:
    facts = context.cluster.facts(context.node)
    if facts is None or all(pool.disabled for pool in facts.pools):
        raise _unavailable("there is no enabled IP pool")
    try:
        addressing = address_request(request, PodFacts())
    except CNIError as error:
        raise _unavailable(error.msg, error.details) from error
    for family in addressing.families:
        try:
            chosen = pool_choice.select(
                facts.pools,
                family,
                node_labels=facts.node_labels,
                requested=addressing.pools.get(family, ()),
                namespace_labels=None,
            )
        except NoPool as error:
            if any(
                pool_choice.selects_by_namespace(pool) for pool in facts.pools if not pool.disabled
            ):
                continue  # pods of some namespaces are served: no fault of the node
            raise _unavailable(str(error)) from error
        if reason := await _full(context, facts, chosen, room):
            raise _unavailable(reason)


async def _full(context: DaemonContext, facts: Facts, chosen: Sequence[Pool], room: Room) -> str:
    key = tuple(pool.name for pool in chosen)
    now = time.monotonic()
    if now - room.looked.get(key, -LOOK_SECONDS) >= LOOK_SECONDS:
        room.looked[key] = now
        look = context.keep(_look(context, facts, chosen, room, key))
        await asyncio.wait({look}, timeout=WAIT_SECONDS)
    return room.full.get(key, "")


async def _look(
    context: DaemonContext, facts: Facts, chosen: Sequence[Pool], room: Room, key: tuple[str, ...]
) -> None:
    try:
        async with asyncio.timeout(context.settings.datastore_seconds):
            room.full[key] = await exhausted(context, facts, chosen)
    except (MuslinError, TimeoutError) as error:
        room.looked.pop(key, None)
        log.info("the pools could not be looked at: %s", str(error) or "timeout")


async def exhausted(context: DaemonContext, facts: Facts, chosen: Sequence[Pool]) -> str:
    """Why no address is free for this node in these pools, or ""; allocates nothing (STA-10).

    The node's own blocks first: only where those are full, all blocks are read.
    """
    claims = await stored_claims.claims_of(context.store, context.node)
    keys = [BlockKey(stored_claims.claimed_network(entry)) for entry in claims]
    own = await context.store.get_many(list(keys)) if keys else {}
    if _free(own.values(), facts, chosen):
        return ""
    config = facts.config or DEFAULT_IPAM_CONFIG
    blocks = sum(1 for entry in own.values() if entry is not None and _within(entry, chosen))
    if blocks >= (limit := block_limit(config)):
        return (
            f"all {blocks} blocks of this node in pools {pools.names(chosen)} are full, "
            f"and it may hold {limit} (maxBlocksPerHost)"
        )
    entries = (await context.store.list(Selection("Block"))).entries
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


def _agents(context: DaemonContext, request: Request, room: Room) -> None:
    """What carries the traffic of pods that run already (STA-03)."""
    if sysctl.try_get("net/ipv4/ip_forward") == "0":
        raise CNIError(
            Code.LIMITED_CONNECTIVITY, "net.ipv4.ip_forward is 0: this node forwards nothing"
        )
    if request.config.policy_setup_timeout and _felix_away(context, room):
        raise CNIError(
            Code.LIMITED_CONNECTIVITY,
            "calico-felix cannot be reached: routes and policy of pods are not kept",
            "look at its log and http://localhost:9099/readiness",
        )
    for device in context.cluster.tunnel_devices:
        if sysctl.try_get(f"net/ipv4/conf/{device}/forwarding") is None:
            raise CNIError(
                Code.LIMITED_CONNECTIVITY,
                f"tunnel device {device} is missing, and an IP pool needs it",
            )
    if reason := _sessions(context):
        raise CNIError(Code.LIMITED_CONNECTIVITY, reason)


def _felix_away(context: DaemonContext, room: Room) -> bool:
    """Whether felix has been away for a while: a restart of it is no fault of the node."""
    if context.felix.connected:
        room.away = None
        return False
    if context.felix.calico_felix_here:
        return False
    now = time.monotonic()
    room.away = now if room.away is None else room.away
    return now - room.away >= QUIET_SECONDS


def _sessions(context: DaemonContext) -> str:
    """Why no BGP session stands where some are wanted, or ""."""
    bgp_status = status_file.read("bgp", context.settings.status) or {}
    try:
        age = datetime.now(UTC) - datetime.fromisoformat(str(bgp_status.get("time")))
    except (TypeError, ValueError):
        return ""
    if abs(age.total_seconds()) > STALE_SECONDS:
        return ""  # its writer is gone, and so are its sessions: not ours to judge
    peers = bgp_status.get("peers")
    if not isinstance(peers, list) or not peers:
        return ""
    if any(isinstance(peer, dict) and peer.get("state") == "up" for peer in peers):
        return ""
    return f"none of {len(peers)} BGP sessions is established: pods of other nodes are out of reach"
