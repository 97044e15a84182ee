"""The node condition NetworkUnavailable: cleared when the agents are ready, set at shutdown.

A cloud creates a node with this condition, and no pod is placed on it before it is False. This
process clears it once the status files of felix and bgp say that they are ready. A file counts if a
process that runs now wrote it, or, of an agent in another container, if it is newer than this
process. `calico-node shutdown`, which a pod's preStop hook runs, sets it. A peer that is down does
not make a node unready. Without credentials, or with the backend `none`, the condition is left to
other programs.
Source: docs/reference/data-model.md#start-of-a-node. Tested in tests/node/test_readiness.py and,
with a real API server, in tests/apiserver/test_node_startup.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from libcalico import apiconfig
from libcalico.errors import MuslinError
from libcalico.process import paths, status_file
from libcalico.process.backoff import Backoff
from node import events
from node.identity import kubernetes
from node.settings.environment import Settings
from node.start.startup import replace_file

log = logging.getLogger(__name__)

POLL = 0.5
CONDITION = "NetworkUnavailable"
UP = ("False", "CalicoIsUp", "Calico is running on this node")
DOWN = ("True", "CalicoIsDown", "Calico is shutting down on this node")
SHUTDOWN_LIMIT = 10.0

ConditionText = tuple[str, str, str]
Mark = tuple[int, int, int]
Pids = Callable[[], Mapping[str, int]]


def ready(
    pids: Mapping[str, int],
    directory: Path | None = None,
    elsewhere: Collection[str] = (),
    before: Mapping[str, Mark] = MappingProxyType({}),
) -> bool:
    """Whether every agent that runs now has reported that it is ready.

    `pids` are processes of ours. Process ids repeat from container to container, so the file of
    another container does not count for them. `elsewhere` are agents in other containers, which
    count once they have written another file than `before`: bgp writes one every 10 s. The time of
    day does not matter: the clock may be set back while a machine boots.
    """
    for agent, fields in (("felix", ("in_sync", "ready")), ("bgp", ("start_complete",))):
        pid = pids.get(f"calico-{agent}")
        if pid is None and agent not in elsewhere:
            continue
        said = status_file.read(agent, directory)
        if said is None or not all(said.get(one) for one in fields):
            return False
        if pid is None:
            if mark(agent, directory) == before.get(agent):
                return False
        elif (said.get("pid"), said.get("pid_namespace")) != (pid, status_file.own_namespace()):
            return False
    return bool(pids)


def mark(agent: str, directory: Path | None) -> Mark | None:
    """The identity of an agent's status file, another one after each write; None without a file."""
    try:
        status = ((directory or paths.STATUS) / f"{agent}.json").stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


async def clear_when_ready(
    environ: Mapping[str, str],
    name: str,
    chosen: Settings,
    pids: Pids,
    account: Path = paths.SERVICE_ACCOUNT,
    directory: Path | None = None,
    elsewhere: Collection[str] = (),
) -> bool:
    """Clear the condition once, as soon as the agents are ready; then return True.

    `elsewhere` are agents of this node that other containers run. False where the condition is
    left to other programs.
    """
    marks = {agent: mark(agent, directory) for agent in elsewhere}
    before = {agent: one for agent, one in marks.items() if one is not None}
    config = apiconfig.of_node(environ)
    if chosen.backend == "none" or not kubernetes.configured(environ, config):
        return False
    while True:  # the agents replace their files after every change
        if ready(pids(), directory, elsewhere, before):
            break
        await asyncio.sleep(POLL)
    backoff, logged = Backoff(1.0, 60.0), ""
    while True:
        try:
            await write_condition(environ, chosen.kubernetes_name(name), UP, account)
        except MuslinError as error:
            if str(error) != logged:
                log.warning("%s cannot be told to Kubernetes: %s", CONDITION, error)
                logged = str(error)
            await backoff.wait()
            continue
        log.info("told Kubernetes that the network of this node is available")
        return True


async def write_condition(
    environ: Mapping[str, str],
    name: str,
    said: ConditionText,
    account: Path = paths.SERVICE_ACCOUNT,
) -> None:
    """Write the condition of a node of Kubernetes. Raises MuslinError."""
    from libcalico.kubernetes.access import find
    from libcalico.kubernetes.client import STRATEGIC_PATCH, Client
    from libcalico.kubernetes.objects import NODES

    client = Client(find(apiconfig.of_node(environ), environ, account), timeout=5.0)
    try:
        await client.patch(
            NODES, name, condition(said, now()), part="status", content=STRATEGIC_PATCH
        )
    finally:
        await client.close()


def condition(said: ConditionText, moment: str) -> dict[str, object]:
    """The strategic merge patch, which leaves the node's other conditions alone. Pure."""
    status, reason, message = said
    entry = {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": moment,
        "lastHeartbeatTime": moment,
    }
    return {"status": {"conditions": [entry]}}


def now() -> str:
    """This moment in RFC 3339, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def shut_down(
    environ: Mapping[str, str],
    name: str,
    chosen: Settings,
    account: Path = paths.SERVICE_ACCOUNT,
) -> None:
    """Write the time of the shutdown, and set the condition in Kubernetes.

    Nothing on the machine changes: traffic flows on. Raises OSError when the time cannot be
    written. An API that does not answer is logged, and holds up no shutdown.
    """
    replace_file(chosen.shutdown_file, now())
    config = apiconfig.of_node(environ)
    if chosen.backend == "none" or not kubernetes.configured(environ, config):
        return
    try:
        async with asyncio.timeout(SHUTDOWN_LIMIT):
            await write_condition(environ, chosen.kubernetes_name(name), DOWN, account)
            await events.last_word(
                environ, chosen.kubernetes_name(name), *DOWN[1:], account, "Normal"
            )
    except (MuslinError, TimeoutError) as error:
        log.warning("%s cannot be told to Kubernetes: %s", CONDITION, error)
