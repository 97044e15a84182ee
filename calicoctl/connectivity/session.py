"""One connectivity test from start to end: places, phases, and that nothing of it stays.

Interrupted or terminated, it cleans up before it ends. Killed, its servers end by themselves, and
the next test removes its objects. Tested in `tests/calicoctl/test_connectivity_lab.py` and
`tests/k8s/test_connectivity.py`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from calicoctl.connectivity import kubernetes, matrix, via
from calicoctl.connectivity.model import ALLOWED, DENIED, OPEN, Place, Result, Target
from calicoctl.connectivity.running import Runner, Stage
from calicoctl.session import Options, configuration, datastore
from calicoctl.status.judge import addresses
from libcalico.datastore.capabilities import entries_of
from libcalico.datastore.interface import Datastore, Selection
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model import WorkloadEndpoint
from libcalico.process import tasks

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The flags of the command. `nodes`: how many of them, 0 for all; `seconds`: of one probe;
    `settle`: for which what is wrong is asked again; `speed`: of one measurement, 0 for none."""

    options: Options
    nodes: int = 0
    only: tuple[str, ...] = ()
    outside: tuple[Target, ...] = ()
    services: tuple[Target, ...] = ()
    policies: bool = True
    port: int = 8790
    seconds: float = 3.0
    settle: float = 30.0
    speed: float = 1.0
    image: str = ""
    via: str = ""
    via_node: str = ""
    namespaces: tuple[str, ...] = ()
    selector: str = ""
    pods: int = 2


class Ground(Protocol):
    """What both kinds of tests give: how places are entered, and how policies come and go."""

    async def enter(self, phase: str) -> None:
        """Bring the policies of a phase into force; `OPEN`: take them away."""


@dataclass(frozen=True)
class World:
    """Everything that a test asks: places, targets, and the ground that it stands on."""

    stage: Stage
    ground: Ground
    sources: tuple[Place, ...]
    servers: tuple[Place, ...]
    others: tuple[Target, ...]


async def perform(settings: Settings, say: Say) -> list[Result]:
    """Every result. Raises MuslinError where the test cannot be made at all."""
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    try:
        opened = _via_world if settings.via else _kubernetes_world
        async with opened(settings, say) as world:
            return await _phases(settings, world, say)
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)


async def _phases(settings: Settings, world: World, say: Say) -> list[Result]:
    runner = Runner(world.stage, settings.seconds, settings.speed)
    pods = matrix.pod_targets(world.servers, settings.port)
    opened = matrix.probes(OPEN, world.sources, [*pods, *world.others])
    say(f"{len(opened)} probes from {len(world.sources)} places")
    results = await runner.settled(opened, settings.settle)
    if settings.speed:
        rows = matrix.ring(world.sources, pods)
        say(f"throughput between {len(rows)} pairs of nodes")
        results += await runner.ask(rows)
    if not settings.policies:
        return results
    # What does not answer without policies says nothing about them.
    working = {(one.probe.source, one.probe.target) for one in results if one.right}
    try:
        for phase in (DENIED, ALLOWED):
            say(f"policies: {phase}")
            await world.ground.enter(phase)
            asked = [
                one
                for one in matrix.probes(phase, world.sources, pods)
                if (one.source, one.target) in working
            ]
            results += await runner.settled(asked, settings.settle)
    finally:
        await world.ground.enter(OPEN)
    return results


def _cluster(settings: Settings) -> kubernetes.Cluster:
    """kubectl as the operator's configuration says. Several files it takes from KUBECONFIG."""
    config = configuration(settings.options)
    path = config.kubeconfig if os.pathsep not in config.kubeconfig else ""
    return kubernetes.Cluster(path, config.k8s_context or settings.options.context)


@asynccontextmanager
async def _kubernetes_world(settings: Settings, say: Say) -> AsyncIterator[World]:
    cluster = _cluster(settings)
    for name in await cluster.forget(expired_only=True):
        say(f"removed what a test that was killed left behind: namespace {name}")
    known = await cluster.nodes()
    names = chosen(known, settings)
    image = settings.image or await cluster.image()
    stage = kubernetes.PodStage(cluster, settings.port)
    say(f"pods in namespace {stage.space} on {len(names)} nodes, of image {image}")
    async with _ended(stage.stop):
        services = await stage.start(names, image)
        for node, error in stage.errors.items():
            say(f"{node}: {error}")
        others = (
            *matrix.node_targets({name: known[name] for name in names}),
            *services,
            *settings.services,
            *settings.outside,
        )
        yield World(stage, stage, tuple(stage.sources), tuple(stage.servers), others)


@asynccontextmanager
async def _via_world(settings: Settings, say: Say) -> AsyncIterator[World]:
    async with datastore(settings.options) as store:
        for name in await via.forget(store, expired_only=True):
            say(f"removed what a test that was killed left behind: {name}")
        endpoints = [one async for one in _endpoints(store)]
        nodes = {
            entry.value.metadata.name: next(iter(addresses(entry.value)), "")
            async for entry in entries_of(store, Selection("Node"))
        }
        places = via.places_of(endpoints, settings.namespaces, settings.selector, settings.pods)
        names = chosen({place.node: "" for place in places} | nodes, settings)
        places = [place for place in places if place.node in names]
        if not places:
            raise MuslinError(
                "no pod is there to test with: make some on each node, or choose others with"
                " --namespace and --selector"
            )
        for place in places:
            via.words_of("--via", settings.via, place)
        stage = via.ViaStage(settings.via, settings.via_node)
        hosts = [Place(name, address=nodes.get(name, "")) for name in names]
        if not settings.via_node:
            hosts = []
        for place in hosts:
            via.words_of("--via-node", settings.via_node, place)
        own = policy_selector(settings, places)
        policies = via.Policies(store, own, settings.port)
        async with _ended(stage.stop):
            say(f"servers in {len(places)} pods on {len({place.node for place in places})} nodes")
            for place, error in (await stage.serve(places, settings.port)).items():
                say(f"{place.title} on {place.node}: {error}")
            there = {name: nodes.get(name, "") for name in names}
            others = (*matrix.node_targets(there), *settings.services, *settings.outside)
            yield World(stage, policies, (*places, *hosts), tuple(places), others)


async def _endpoints(store: Datastore) -> AsyncIterator[WorkloadEndpoint]:
    async for entry in entries_of(store, Selection("WorkloadEndpoint", live=True)):
        yield entry.value


def policy_selector(settings: Settings, places: Sequence[Place]) -> str:
    """The endpoints that policies of a test by `--via` are over; only our two ports are denied."""
    if settings.selector:
        return settings.selector
    spaces = sorted({place.namespace for place in places})
    return "projectcalico.org/namespace in { " + ", ".join(f"'{one}'" for one in spaces) + " }"


def chosen(known: dict[str, str], settings: Settings) -> list[str]:
    """The nodes that take part. Raises InvalidValue for one that there is not."""
    for name in settings.only:
        if name not in known:
            raise InvalidValue("--node", name, f"one of {', '.join(sorted(known)) or 'none'}")
    return matrix.sampled(settings.only or known, settings.nodes)


@asynccontextmanager
async def _ended(stop: Callable[[], Coroutine[object, object, None]]) -> AsyncIterator[None]:
    """Calls `stop` at the end, also when this task is cancelled once more meanwhile."""
    try:
        yield
    finally:
        await asyncio.shield(tasks.start(stop(), "cleaning up"))


async def cleaned(settings: Settings) -> list[str]:
    """Remove what any test made, of one that still runs as well; the names of what went."""
    if settings.via:
        async with datastore(settings.options) as store:
            return await via.forget(store)
    return [f"namespace {name}" for name in await _cluster(settings).forget()]
