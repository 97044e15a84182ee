"""What `calico-bgp` runs: environment in, agent wired up, until a signal.

Tested in tests/bgp/test_agent.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from bgp.agent.agent import Agent, SpeakerBroken
from bgp.agent.bird_world import AgentWorld
from bgp.agent.followed import selections
from bgp.agent.publish import Publisher
from bgp.agent.report import Reporter
from bgp.agent.saved_decisions import SavedDecisions
from bgp.bird import birdctl
from bgp.cluster.nodes import NodeView, router_id
from bgp.cluster.resolving import Resolver
from bgp.cluster.services import ServiceSource
from bgp.idle import backend, idle
from bgp.peering.passwords import FilePasswords, PasswordSource
from bgp.peering.peering import Settings
from bgp.speaker.exabgp.speaker import ExaBGPSpeaker
from bgp.speaker.interface import DEFAULT_HOLD_TIME, DEFAULT_MAX_PREFIXES
from libcalico import apiconfig, parsing
from libcalico.datastore import UNHURRIED, connect, hosts
from libcalico.datastore.syncer import Syncer
from libcalico.errors import InvalidValue
from libcalico.process import health, malloc_trim, paths

log = logging.getLogger(__name__)

RUN_DIR = paths.RUN / "bgp"
PASSWORDS = Path("/etc/calico/bgp-passwords")
_HEARTBEAT = 2.0


def settings(environ: Mapping[str, str]) -> Settings:
    """Settings of the environment. Raises `InvalidValue`.

    A hold time below 3 is forbidden by RFC 4271 4.2, and 0 (no keepalives) would never
    notice a dead peer.
    """
    hold = environ.get("CALICO_BGP_HOLD_TIME", "") or str(DEFAULT_HOLD_TIME)
    limit = environ.get("CALICO_BGP_MAX_PREFIXES", "") or str(DEFAULT_MAX_PREFIXES)
    hold_time = parsing.number("CALICO_BGP_HOLD_TIME", hold, 3, 65535)
    max_prefixes = parsing.number("CALICO_BGP_MAX_PREFIXES", limit, 0, 2**32 - 1)
    identifier = environ.get("CALICO_ROUTER_ID", "")
    try:
        router_id(NodeView("any", {}), identifier)
    except ValueError as error:
        raise InvalidValue("CALICO_ROUTER_ID", identifier, "an IPv4 address, or hash") from error
    cluster_ips = environ.get("CALICO_ADVERTISE_CLUSTER_IPS", "")
    return Settings(
        hold_time=hold_time,
        router_id=identifier,
        cluster_ips=cluster_ips,
        max_prefixes=max_prefixes,
    )


def health_port(environ: Mapping[str, str]) -> int:
    """The port of health and metrics. Raises `InvalidValue`."""
    text = environ.get("CALICO_BGP_HEALTH_PORT", "") or str(paths.BGP_PORT)
    return parsing.port("CALICO_BGP_HEALTH_PORT", text)


def kubernetes(environ: Mapping[str, str]) -> bool:
    """Whether there is said to be a Kubernetes API."""
    names = ("KUBERNETES_SERVICE_HOST", "KUBECONFIG", "K8S_API_ENDPOINT")
    return any(environ.get(name) for name in names)


def services(environ: Mapping[str, str]) -> ServiceSource | None:
    """Where services are read, if there is a Kubernetes API."""
    if not kubernetes(environ):
        return None
    from bgp.cluster.kubernetes import KubernetesServices

    return KubernetesServices(environ)


def passwords(environ: Mapping[str, str]) -> PasswordSource:
    """Where passwords are found: files if a directory is set or there is no Kubernetes API."""
    directory = environ.get("CALICO_BGP_PASSWORD_DIR", "")
    if kubernetes(environ) and not directory:
        # A client that few nodes need.
        from bgp.peering.kubernetes_passwords import KubernetesPasswords

        return KubernetesPasswords(environ)
    return FilePasswords(Path(directory or PASSWORDS))


async def node_name(environ: Mapping[str, str], file: Path = paths.NODENAME) -> str:
    """This node's name: NODENAME, or the file that node start-up writes (waited for)."""
    if name := environ.get("NODENAME", "").strip():
        return name
    if not file.exists():
        log.info("waiting for %s", file)
    while True:  # the file appears once, in one step, while the node starts
        if name := written_name(file):
            return name
        await asyncio.sleep(0.5)


def written_name(file: Path) -> str:
    """The name in the nodename file, empty where there is none. Raises `InvalidValue`."""
    return parsing.text_of(file).strip()


def agent_of(
    me: str, environ: Mapping[str, str], chosen: Settings, speaker: ExaBGPSpeaker
) -> Agent:
    """The agent of the node `me`, with its sockets; nothing runs yet."""
    publisher = Publisher(paths.NODE_SOCKET)
    agent = Agent(
        me,
        speaker,
        publisher,
        chosen,
        memory=SavedDecisions(RUN_DIR / "last.json"),
        service_source=services(environ),
        password_source=passwords(environ),
        resolver=Resolver(),
    )
    publisher.on_message = agent.on_felix
    publisher.on_connected = agent.on_felix_connected
    if folder := birdctl.directory(environ):
        worlds = {family: AgentWorld(agent, family) for family in birdctl.NAMES}
        agent.control = birdctl.ControlServer(folder, worlds)
    return agent


async def serve(environ: Mapping[str, str]) -> int:
    """Run the agent; returns an exit status when something is beyond repair."""
    config = apiconfig.of_node(environ)
    chosen = settings(environ)
    if (name := backend(environ)) != "bird":
        await idle(name, health_port(environ))
    me = await node_name(environ)
    store = await connect(config, gather=UNHURRIED)
    speaker = ExaBGPSpeaker(RUN_DIR)
    agent = agent_of(me, environ, chosen, speaker)
    loop = health.Reporter("event-loop", timeout=30.0, ready=True)
    sync = health.Reporter("datastore-snapshot")
    start = health.Reporter("graceful-start")
    port = health_port(environ)
    server = health.HealthServer("localhost", port, [loop, sync, start])
    syncer = Syncer(store, selections(), on_connection=agent.writer.changed)
    result = 0

    async def report() -> None:
        while True:
            loop.alive()
            sync.ready(agent.in_sync, syncer.error)
            start.ready(agent.gate.passed, "waiting for End-of-RIB of the peers")
            await asyncio.sleep(_HEARTBEAT if agent.gate.passed else 0.2)

    try:
        async with asyncio.TaskGroup() as group:
            for work in (
                agent.follow_datastore(syncer),
                agent.follow_addresses(hosts.addresses(hosts.hosts(config, environ))),
                *agent.work(),
                Reporter(agent, store).run(),
                server.run(),
                report(),
                malloc_trim.give_back(),
            ):
                group.create_task(work)
    except* SpeakerBroken as broken:
        log.error("%s", broken.exceptions[0])
        result = 1
    finally:
        await speaker.close()
        await store.close()
    return result
