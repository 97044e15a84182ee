"""Kubernetes Events for the conditions in the status files of this node's agents.

Felix, bgp and cni list what is not as an operator would want it (`calicoctl node status`). This
process writes an Event for each condition that it reads twice in a row: on the Pod of an endpoint,
else on the Node. It writes the Event of a lasting condition again every `AGAIN` seconds, because
the API forgets Events after an hour, and sooner if the last write failed. A condition that comes
back is a new one. Without a Kubernetes API there are no Events. cni itself writes those of refused
calls of the runtime. Tested in tests/node/test_events.py and, with a real API server, in
tests/apiserver/test_events.py.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from libcalico import apiconfig, names
from libcalico.errors import InvalidValue, MuslinError
from libcalico.process import paths, status_file
from node.identity import kubernetes

if TYPE_CHECKING:
    from libcalico.kubernetes.event_objects import About
    from libcalico.kubernetes.events import Recorder

log = logging.getLogger(__name__)

LOOK = 5.0
STALE = 60.0
"""Seconds after which a status file is too old: its agent is gone, and so are its conditions."""
AGAIN, LOST = 1800.0, 120.0
"""Seconds until a lasting condition is written again: after a write, after a failed write."""
MOST = 100
"""Conditions of one agent at a time, at most."""
FLUSH = 5.0
REASONS = {"felix": "CalicoDataplane", "bgp": "CalicoBGP", "cni": "CalicoCNI"}
STARTUP, SERVICE = "CalicoStartup", "CalicoNode"
"""Reasons of Events about this process itself."""
_ENDPOINT = re.compile(r"WorkloadEndpoint\(([^/()]+)/([^/()]+)\)")
_DIGITS = re.compile(r"\d+")


class Condition(NamedTuple):
    """One condition; `object` is its subject, named as the agents name it."""

    agent: str
    object: str
    text: str

    @property
    def shape(self) -> tuple[str, str, str]:
        """The part that stays the same while counts and ages in the text change."""
        return self.agent, self.object, _DIGITS.sub("0", self.text)


def recorder(
    environ: Mapping[str, str], host: str, account: Path = paths.SERVICE_ACCOUNT
) -> Recorder | None:
    """The writer of Events; None where no API is configured. Raises MuslinError."""
    config = apiconfig.of_node(environ)
    if not kubernetes.configured(environ, config):
        return None
    # Late: most of the standard library's network code comes with it.
    from libcalico.kubernetes.access import find
    from libcalico.kubernetes.client import Client
    from libcalico.kubernetes.events import Recorder

    client = Client(find(config, environ, account), timeout=10.0)
    return Recorder(client, "calico-node", host)


def conditions(agent: str, said: Mapping[str, object]) -> Iterator[Condition]:
    """The conditions in a status file. Pure."""
    for one in _list(said.get("conditions")):
        yield Condition(agent, str(one.get("object", "")), str(one.get("reason", "")))
    for one in _list(said.get("refused")):
        yield Condition(agent, str(one.get("peer", "")), str(one.get("reason", "")))
    for prefix, why in _map(said.get("felix_refused")).items():
        yield Condition(agent, f"route {prefix}", f"refused by felix: {why}")
    if said.get("datastore_connected") is False:
        yield Condition(agent, "datastore", str(said.get("datastore_error") or "no answer"))
    if said.get("datastore") is False:
        yield Condition(agent, "datastore", "does not answer")
    for name, api in _map(said.get("kubernetes")).items():
        if error := _map(api).get("error"):
            yield Condition(agent, f"Kubernetes API ({name})", str(error))


def read(directory: Path | None, now: float) -> dict[tuple[str, str, str], Condition]:
    """The conditions of this node's agents, by shape; `now`: seconds since 1970."""
    conditions_by_shape = {}
    for agent in REASONS:
        file = (directory or paths.STATUS) / f"{agent}.json"
        try:
            age = now - file.stat().st_mtime
        except OSError:
            continue
        said = status_file.read(agent, directory) if age < STALE else None
        for one in islice(conditions(agent, said or {}), MOST):
            conditions_by_shape[one.shape] = one
    return conditions_by_shape


def whom(condition: Condition, node: About) -> About:
    """The pod of an endpoint, else the node. Pure."""
    from libcalico.kubernetes.event_objects import pod

    match = _ENDPOINT.fullmatch(condition.object)
    if match is None:
        return node
    try:
        parts = names.parse(match.group(2))
    except InvalidValue:
        return node
    return pod(match.group(1), parts.workload) if parts.orchestrator == names.KUBERNETES else node


class Standing:
    """Writes Events of conditions that were read twice, and again while they last.

    `clock` is monotonic, in seconds.
    """

    def __init__(
        self, recorder: Recorder, node: About, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._recorder, self._node, self._clock = recorder, node, clock
        self._seen: set[tuple[str, str, str]] = set()
        self._reported: dict[tuple[str, str, str], float] = {}

    def look(self, current: Mapping[tuple[str, str, str], Condition]) -> None:
        """Follow the conditions of now."""
        now = self._clock()
        for shape, one in current.items():
            if shape not in self._seen:
                continue
            about, reason = whom(one, self._node), REASONS[one.agent]
            subject = "\0".join(shape)
            reported_at = self._reported.get(shape)
            if reported_at is not None:
                lost = not self._recorder.holds(about, reason, subject)
                if now - reported_at < (LOST if lost else AGAIN):
                    continue
            self._reported[shape] = now
            self._recorder.tell(about, reason, f"{one.object}: {one.text}", subject)
        self._seen = set(current)
        self._reported = {
            shape: reported_at for shape, reported_at in self._reported.items() if shape in current
        }


async def keep(recorder: Recorder, kubernetes_name: str, directory: Path | None = None) -> None:
    """Tell the conditions of this node until cancelled."""
    from libcalico.kubernetes.event_objects import node

    standing = Standing(recorder, node(kubernetes_name))
    while True:
        standing.look(read(directory, time.time()))
        await asyncio.sleep(LOOK)


class EventReporter:
    """Events of a running process about its node: the agents' conditions, and its own failures."""

    def __init__(
        self,
        environ: Mapping[str, str],
        kubernetes_name: str,
        account: Path = paths.SERVICE_ACCOUNT,
    ) -> None:
        self._environ, self._name, self._account = environ, kubernetes_name, account
        self._recorder: Recorder | None = None

    async def run(self) -> None:
        """Write Events until cancelled; return where there is no API. Raises MuslinError."""
        made = recorder(self._environ, self._name, self._account)
        if made is None:
            return
        self._recorder = made
        async with asyncio.TaskGroup() as group:
            group.create_task(made.run())
            group.create_task(keep(made, self._name))

    def normal(self, reason: str, text: str) -> None:
        """Write an Event of type Normal."""
        self._write(reason, text, "", "Normal")

    def warn(self, what: str, why: str) -> None:
        """Write an Event: a service of this process for the node failed."""
        self._write(SERVICE, f"{what}: {why}", what, "Warning")

    def _write(self, reason: str, text: str, subject: str, type: str) -> None:
        if self._recorder is None:
            return
        from libcalico.kubernetes.event_objects import node

        self._recorder.tell(node(self._name), reason, text, subject, type)


async def last_word(
    environ: Mapping[str, str],
    name: str,
    reason: str,
    text: str,
    account: Path = paths.SERVICE_ACCOUNT,
    type: str = "Warning",
) -> None:
    """Write one Event of a node, by a process that is about to end. Never raises."""
    try:
        teller = recorder(environ, name, account)
    except MuslinError as error:
        log.info("no Event is written: %s", error)
        return
    if teller is None:
        return
    from libcalico.kubernetes.event_objects import node

    teller.tell(node(name), reason, text, type=type)
    try:
        async with asyncio.timeout(FLUSH):
            await teller.flush()
    except TimeoutError:
        log.info("no Event is written: no answer within %g s", FLUSH)
    finally:
        await teller.close()


def _list(value: object) -> Iterable[Mapping[str, object]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _map(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
