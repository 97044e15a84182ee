"""One question at all nodes that it concerns: watches begin, the attempt is sent, watches end.

Tested in tests/trace/test_trace_pods.py, with real nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from pathlib import Path

from calicoctl.explaining.asking import FlowQuery
from calicoctl.explaining.asking import ask as explain
from calicoctl.tracing import nodes, story
from calicoctl.tracing.cause import Cause
from calicoctl.tracing.evidence import Evidence, Traced, evidence_of, told_once
from calicoctl.tracing.judging import cause_of
from calicoctl.tracing.naming import Names
from calicoctl.tracing.nodes import READY_WITHIN, Bounds, NodeWatch
from calicoctl.tracing.story import Story
from felix.explain.ends import End, What, find, of_address
from felix.explain.flow import ICMP, ICMPV6, TCP, UDP, protocol_name, read_protocol
from felix.explain.world import World
from libcalico.errors import InvalidValue, MuslinError
from libcalico.local import packet_trace
from libcalico.local.packet_trace import SOURCE, Packet, Probe, Question, Ready
from libcalico.process import tasks

LINGER = 0.3
"""Seconds between the attempt's end and the watches'."""


@dataclass(frozen=True, slots=True)
class TraceQuery:
    """What the operator asks, as typed. `wait`: seconds for an attempt of the pod's own; None: none
    is sent. Nodes of `via` that are no end's are watched as well: the packet may pass them."""

    source: str
    destination: str
    namespace: str
    protocol: str | None = None
    port: int | None = None
    version: int | None = None
    wait: float | None = 1.0
    via: tuple[str, ...] = ()
    bounds: Bounds = field(default_factory=Bounds)


@dataclass(frozen=True, slots=True)
class Result:
    """A traced connection: the story, its cause, and how the ends are called."""

    story: Story
    cause: Cause
    titles: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Plan:
    """The ends, and the question to each node."""

    source: End
    destination: End
    version: int
    questions: Mapping[str, Question]


def plan(world: World, query: TraceQuery) -> Plan:
    """Who is asked what. Raises MuslinError, InvalidValue."""
    source = find(world, query.source, query.namespace)
    destination = find(world, query.destination, query.namespace)
    able = [v for v in (4, 6) if source.address(v) and destination.address(v)]
    version = query.version or next(iter(able), 0)
    if version not in able:
        raise MuslinError(f"{source.title} and {destination.title} have no family in common")
    protocol = TCP if query.protocol is None else read_protocol(query.protocol)
    if protocol in (ICMP, ICMPV6):
        protocol = ICMP if version == 4 else ICMPV6
    if protocol in (TCP, UDP) and not query.port:
        raise InvalidValue("--port", query.port, f"{protocol_name(protocol)} needs a port")
    if protocol not in (TCP, UDP) and query.port:
        raise InvalidValue("--port", query.port, f"{protocol_name(protocol)} has no ports")
    if not (source.node or destination.node):
        raise MuslinError("neither end lies on a node of this cluster: nothing can be traced")
    between = nodes.ways(query.via)
    for node in between:
        if node not in world.nodes:
            raise InvalidValue("--via", node, f"a node: {', '.join(sorted(world.nodes))}")
    # The source's node first, the destination's last.
    inner = [node for node in between if node not in (source.node, destination.node)]
    asked = [n for n in dict.fromkeys((source.node, *inner, destination.node)) if n]
    questions = {
        node: Question(
            str(source.require_address(version)),
            str(destination.require_address(version)),
            protocol,
            query.port or 0,
            _interface(world, source) if source.node == node else "",
            _interface(world, destination) if destination.node == node else "",
        )
        for node in asked
    }
    return Plan(source, destination, version, questions)


def _interface(world: World, end: End) -> str:
    if end.what is not What.POD or end.endpoint is None:
        return ""
    name: str = world.objects[end.endpoint].spec.interfaceName
    return name


async def trace(world: World, query: TraceQuery, files: Sequence[Path] = ()) -> Result:
    """Trace on the nodes, or read what `files` hold of an earlier trace. Raises MuslinError."""
    planned = plan(world, query)
    if files:
        return judged(world, query, planned, [read_file(path) for path in files], ())
    evidence, missing = await _watched(planned, query)
    return judged(world, query, planned, evidence, missing)


def read_file(path: Path) -> Evidence:
    """The lines of one node in a file. Raises MuslinError."""
    try:
        with path.open("rb") as lines:
            return evidence_of(packet_trace.decode_all(lines, str(path)), str(path))
    except OSError as error:
        raise MuslinError(f"{path}: {error.strerror}") from None


def judged(
    world: World,
    query: TraceQuery,
    planned: Plan,
    evidence: Sequence[Evidence],
    missing: Sequence[str],
) -> Result:
    """The story of what the nodes told, and its cause. Pure."""
    order = list(planned.questions)
    for each in evidence:
        if each.node not in order:
            raise MuslinError(f"the trace is of node {each.node}, and this is about {order}")
    first = planned.questions[order[0]]
    for each in evidence:
        asked = each.ready.question
        if (asked.source, asked.destination) != (first.source, first.destination):
            raise MuslinError(f"the trace of {each.node} is of another connection")
    ordered = sorted(evidence, key=lambda each: order.index(each.node))
    traced = Traced(first, told_once(ordered), planned.source.node, planned.destination.node)
    whole = story.tell(traced, Names(world, planned.version), tuple(missing))
    whole = story.noted(whole, _staged(world, query, planned))
    cause = cause_of(whole, lambda address: _owner(world, address))
    return Result(whole, cause, (planned.source.title, planned.destination.title))


def _owner(world: World, address: str) -> str:
    """The pod or node that has an address; itself outside of pools, empty for one that none has."""
    end = of_address(world, ip_address(address))
    if end.what is not What.OUTSIDE:
        return end.title
    pools = (ip_network(pool.spec.cidr, strict=False) for _, pool in world.of("IPPool"))
    return "" if any(ip_address(address) in pool for pool in pools) else address


def _staged(world: World, query: TraceQuery, planned: Plan) -> tuple[str, ...]:
    """What staged policies would do to the same packet."""
    first = next(iter(planned.questions.values()))
    asked = FlowQuery(
        query.source,
        query.destination,
        query.namespace,
        protocol_name(first.protocol),
        first.port or None,
        version=planned.version,
    )
    with contextlib.suppress(MuslinError, InvalidValue):
        return tuple(_would(explain(world, asked).answers))
    return ()


def _would(answers: Sequence[object]) -> list[str]:
    from felix.explain.report import Answer, named

    notes = []
    for each in answers:
        assert isinstance(each, Answer)
        if each.would is None:
            continue
        verdict = "allowed" if each.would.allowed else "denied"
        decider = each.would.decider
        by = ""
        if decider is not None and decider.ruling.policy is not None:
            by = f" by {named(decider.ruling.policy)}, {decider.direction}"
        elif decider is not None:
            by = f" at the end of tier {decider.ruling.tier}, {decider.direction}"
        notes.append(f"if the staged policies were in force it would be {verdict}{by}")
    return notes


# -- at the nodes ---------------------------------------------------------------------------------


async def _watched(planned: Plan, query: TraceQuery) -> tuple[list[Evidence], list[str]]:
    here, via = nodes.own_node(), nodes.ways(query.via)
    changed = asyncio.Event()
    watches: list[NodeWatch] = []
    missing: list[str] = []
    try:
        for node, question in planned.questions.items():
            command = nodes.command_for(node, via, here)
            if command is None:
                missing.append(
                    f"node {node} was not asked: this machine is"
                    f" {here or 'no node'}; name a way with --via {node}='ssh root@{node}'"
                )
                continue
            words = [*command, *nodes.arguments(question, query.bounds)]
            try:
                watches.append(await nodes.start(node, words, changed, tasks.start))
            except MuslinError as error:
                missing.append(str(error))
        if not watches:
            raise MuslinError("; ".join(missing))
        await _attempt(watches, planned, query, changed)
    finally:
        for watch in watches:
            if not watch.ended:
                watch.process.terminate()
        await asyncio.gather(*(w.reading for w in watches if w.reading is not None))
    missing += [watch.failure for watch in watches if watch.failure]
    evidence = [
        evidence_of(watch.lines, f"node {watch.node}") for watch in watches if watch.has(Ready)
    ]
    if not evidence:
        raise MuslinError("; ".join(missing))
    return evidence, missing


async def _attempt(
    watches: Sequence[NodeWatch], planned: Plan, query: TraceQuery, changed: asyncio.Event
) -> None:
    """Wait until all watch, have the attempt made, and end the watches."""
    try:
        async with asyncio.timeout(READY_WITHIN):
            await _until(lambda: all(w.has(Ready) or w.ended for w in watches), changed)
    except TimeoutError:
        late = ", ".join(w.node for w in watches if not w.has(Ready))
        raise MuslinError(f"{late} did not begin to watch within {READY_WITHIN:g} s") from None
    sender = next((w for w in watches if w.node == planned.source.node and w.has(Ready)), None)
    own = await _own_attempt(watches, query, changed)
    if query.wait is not None and not own and sender is not None:
        sender.command("send")
        patience = query.bounds.timeout + READY_WITHIN
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await _until(lambda: sender.has(Probe) or sender.ended, changed)
    await asyncio.sleep(LINGER)
    for watch in watches:
        watch.command("stop")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(nodes.END_WITHIN):
            await _until(lambda: all(w.ended for w in watches), changed)


async def _own_attempt(
    watches: Sequence[NodeWatch], query: TraceQuery, changed: asyncio.Event
) -> bool:
    """Whether an attempt that is not ours came in time; then also what followed it was awaited."""

    # What one node saw while another did not watch yet has no whole way.
    earlier = [len(watch.lines) for watch in watches]

    def seen() -> bool:
        return any(
            isinstance(line, Packet) and line.place in (SOURCE, packet_trace.NODE)
            for watch, known in zip(watches, earlier, strict=True)
            for line in watch.lines[known:]
        )

    limit = query.bounds.seconds if query.wait is None else query.wait
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit):
            await _until(lambda: seen() or all(w.ended for w in watches), changed)
    if seen():
        await asyncio.sleep(min(query.bounds.timeout, 1.0))
        return True
    return False


async def _until(holds: Callable[[], bool], changed: asyncio.Event) -> None:
    while not holds():
        await changed.wait()
        changed.clear()
