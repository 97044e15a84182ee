"""Sessions that cannot come up, for every reason at once, in one real namespace.

    10.9.0.1 the agent with ExaBGP; each other address is a peer with one thing wrong

BIRD stands behind most of them; the rest are closed or silent ports, a filter of iptables, a
route that is not there. The one healthy session must stay as it is while the others are tried.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from typing import Any

import pytest

from bgp.agent.agent import Agent
from bgp.agent.publish import Publisher
from bgp.agent.status_document import describe
from bgp.peering.passwords import Passwords, SecretRef
from bgp.peering.peering import Settings
from bgp.sessions import probing, tcp_probe
from bgp.sessions.evidence import Reached
from bgp.speaker.exabgp.speaker import ExaBGPSpeaker
from libcalico.datastore.interface import Entry
from libcalico.datastore.syncer import SyncBatch, Update
from tests.bgp.agents import resource
from tests.bgp.session_lab import Lab, RawPeer, namespace, peer, session
from tests.support.patience import HANG, until

PEERS: dict[str, tuple[int, str]] = {
    "10.9.0.2": (64512, ""),  # all is well
    "10.9.0.3": (64599, "wrong AS"),  # it is 64500
    "10.9.0.4": (64512, "wrong AS"),  # it wants us to be 64999
    "10.9.0.5": (64512, "wrong password"),  # another one
    "10.9.0.6": (64512, "wrong password"),  # it has none
    "10.9.0.7": (64512, "wrong password"),  # it has one, we have none
    "10.9.0.8": (64512, "refused"),
    "10.9.0.9": (64512, "filtered"),
    "192.0.2.1": (64512, "no route"),
    "10.9.0.11": (64512, "hold timer"),  # it sends an OPEN with 3 s, and no KEEPALIVE after
    "10.9.0.12": (64512, "capability mismatch"),
    "10.9.0.13": (64512, "no OPEN"),
}
SECRETS = {"10.9.0.5": "k-canary", "10.9.0.6": "k-canary"}


def bird(address: str, **more: Any) -> str:
    """A BIRD at an address of its own: one BIRD has one session with a neighbour only."""
    text = session(**more).replace("local 10.9.0.2", f"local {address}")
    return f"router id {address}; protocol device {{}}\n{text}"


def birds() -> list[str]:
    """What stands behind the addresses."""
    ipv6 = bird("10.9.0.12").replace("ipv4 {", "ipv6 {")
    return [
        bird("10.9.0.2"),
        bird("10.9.0.3", asn=64500),
        bird("10.9.0.4").replace("neighbor 10.9.0.1 as 64512", "neighbor 10.9.0.1 as 64999"),
        bird("10.9.0.5", more='password "theirs"; passive;'),
        bird("10.9.0.6"),
        bird("10.9.0.7", more='password "theirs";'),
        bird("10.9.0.9"),
        ipv6,
    ]


@contextlib.contextmanager
def running_birds(lab: Lab) -> Iterator[None]:
    """One process each."""
    processes = []
    try:
        for number, text in enumerate(birds()):
            file = lab.directory / f"b{number}.conf"
            file.write_text(text)
            command = ["bird", "-f", "-c", str(file), "-s", str(file.with_suffix(".ctl"))]
            processes.append(subprocess.Popen(lab.space.command(*command)))
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait(HANG)


@asynccontextmanager
async def agent_in(lab: Lab) -> AsyncIterator[Agent]:
    """An agent with a real speaker, told of all peers."""
    speaker = ExaBGPSpeaker(lab.directory / "run")
    agent = Agent("n1", speaker, Publisher(Path("/nonexistent/node.sock")), Settings())
    known = {SecretRef("s" + name, "key"): value for name, value in SECRETS.items()}
    agent.decisions.passwords = Passwords(known)
    tasks = [asyncio.create_task(each) for each in (agent.follow_speaker(), agent.keep_time())]
    try:
        changes = [resource("Node", "n1", {"bgp": {"ipv4Address": "10.9.0.1/32"}})]
        for number, (address, (asn, _)) in enumerate(PEERS.items()):
            spec: dict[str, object] = {"peerIP": address, "asNumber": asn}
            if address in SECRETS:
                spec["password"] = {"secretKeyRef": {"name": "s" + address, "key": "key"}}
            changes.append(resource("BGPPeer", f"p{number}", spec))
        updates = [Update(key, Entry(key, value, 1, b"")) for key, value in changes]
        await agent.apply_batch(SyncBatch(updates, True))
        # The healthy one is never down for long enough to be looked into, however slow this is.
        await until(lambda: agent.sessions.status[ip_address("10.9.0.2")].up, "all is well")
        tasks.append(asyncio.create_task(agent.doctor.run()))
        yield agent
    finally:
        await speaker.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.promise("PAIN-11", "M-142")
def test_every_reason_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "QUIET", 2.0)
    monkeypatch.setattr(probing, "PAUSES", (4.0,))

    async def body(lab: Lab) -> None:
        async with agent_in(lab) as agent:
            raw = RawPeer(IPv4Address("10.9.0.11"))
            await raw.dial()
            await raw.open(hold=3)

            def causes() -> dict[str, str]:
                return {peer["address"]: peer["cause"] for peer in describe(agent)["peers"]}

            wanted = {address: cause for address, (_, cause) in PEERS.items()}
            seen: dict[str, set[str]] = {address: set() for address in PEERS}

            def done() -> bool:
                for address, cause in causes().items():
                    seen[address].add(cause)
                return all(cause in seen[address] for address, cause in wanted.items())

            try:
                await until(done, "all causes")
            except AssertionError:
                print(seen, *describe(agent)["peers"], sep="\n")
                raise
            for address in ("10.9.0.8", "10.9.0.9", "192.0.2.1", "10.9.0.3", "10.9.0.5"):
                assert seen[address] - {""} == {wanted[address]}, address
            healthy = describe(agent)["peers"][0]
            assert (healthy["info"], healthy["fix"]) == ("Established", "")
            assert seen["10.9.0.2"] == {""}
            said = dict(agent.conditions())
            assert "10.9.0.8 refuses connections to port 179" in said["BGP peer 10.9.0.8"]
            assert "BGP peer 10.9.0.2" not in said
            assert all("k-canary" not in text for text in said.values())
            # What is mended loses its cause.
            lab.space.run("iptables", "-F", "INPUT")
            mended = ip_address("10.9.0.9")
            await until(lambda: agent.sessions.status[mended].up, "mended")
            await until(lambda: mended not in agent.doctor.diagnoses, "forgotten")
            await raw.close()

    with namespace() as lab:
        for number in range(7, 14):
            lab.space.run("ip", "addr", "add", f"10.9.0.{number}/32", "dev", "lo")
        for way in ("-s", "-d"):
            lab.space.run("iptables", "-A", "INPUT", way, "10.9.0.9", "-p", "tcp", "-j", "DROP")
        with running_birds(lab), lab.space.entered(), socket.socket() as silent:
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            silent.bind(("10.9.0.13", 179))
            silent.listen(16)
            asyncio.run(asyncio.wait_for(body(lab), 5 * HANG))


@pytest.mark.parametrize("listens", [True, False])
@pytest.mark.asyncio
async def test_an_answer_that_came_while_this_process_stood_still_counts(
    listens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = tcp_probe._ready
    dialling: list[socket.socket] = []

    async def noted(one: socket.socket, timeout: float) -> None:
        dialling.append(one)
        await ready(one, timeout)
        if not timeout:
            select.select([], [one], [], HANG)  # the process stands still until the answer is there

    monkeypatch.setattr(tcp_probe, "_ready", noted)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        if listens:
            other.listen()
        port = other.getsockname()[1]
        dialled = peer(IPv4Address("127.0.0.1"), any_source=True, port=port)
        # Its time is over before the loop looks.
        found = await tcp_probe.probe(dialled, 0.0)
        # The same where the answer and the end of the time are seen in one turn of the loop.
        before = len(dialling)
        asked = asyncio.create_task(tcp_probe.probe(dialled, 0.05))
        await until(lambda: len(dialling) > before, "it dials", pause=0)
        select.select([], [dialling[-1]], [], HANG)
        time.sleep(0.1)  # noqa: ASYNC251 - the process stands still
        assert (await asked).reached is found.reached
    assert found.reached is (Reached.CONNECTED if listens else Reached.REFUSED)
