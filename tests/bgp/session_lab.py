"""The real speaker in one network namespace, with BIRD and raw peers at addresses beside it.

    lo: 10.9.0.1 fd09::1 the speaker;  .2 ::2 BIRD;  .3 to .6 raw peers (`RawPeer`)

All talk over the loopback of the namespace, so ports are real and nothing is shared with
another test. The speaker runs in this process, its ExaBGP as its own user.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import struct
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from bgp.speaker.exabgp.speaker import ExaBGPSpeaker
from bgp.speaker.interface import (
    Event,
    Family,
    IPAddress,
    PathsReceived,
    Peer,
    PeerDown,
    PeerUp,
    Route,
    SpeakerDown,
)
from tests.support import bgp_wire as wire
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import HANG, patient

ME, BIRD = IPv4Address("10.9.0.1"), IPv4Address("10.9.0.2")
ME6, BIRD6 = IPv6Address("fd09::1"), IPv6Address("fd09::2")
RAW = [IPv4Address(f"10.9.0.{number}") for number in range(3, 7)]
MY_AS = 64512
TCP_MD5SIG = 14
HOLD = 600
"""A hold time that no test outlives: raw peers send no KEEPALIVEs by themselves."""
IP_MINTTL = 21


def peer(address: IPAddress, **more: object) -> Peer:
    """An internal peer of ours; any field can be chosen."""
    own: IPAddress = ME if address.version == 4 else ME6
    values: dict[str, object] = {
        "address": address,
        "remote_as": MY_AS,
        "local_address": own,
        "local_as": MY_AS,
        "router_id": ME,
        "families": (Family.of(address),),
        "hold_time": HOLD,
        **more,
    }
    return Peer(**values)  # type: ignore[arg-type]


@dataclass
class Heard:
    """The speaker's events so far, and the table they make."""

    speaker: ExaBGPSpeaker
    events: list[Event] = field(default_factory=list)

    async def run(self) -> None:
        async for event in self.speaker.events():
            self.events.append(event)

    def of(self, kind: type[Event], address: IPAddress | None = None) -> list[Event]:
        """Events of a kind, of a peer."""
        return [
            event
            for event in self.events
            if isinstance(event, kind) and address in (None, getattr(event, "peer", None))
        ]

    def up(self, *addresses: IPAddress) -> bool:
        """Whether the sessions with these peers are Established."""
        state: dict[IPAddress, bool] = {}
        for event in self.events:
            if isinstance(event, (PeerUp, PeerDown)):
                state[event.peer] = isinstance(event, PeerUp)
            elif isinstance(event, SpeakerDown):
                state.clear()
        return all(state.get(address, False) for address in addresses)

    def table(self, address: IPAddress) -> dict[tuple[str, int], PathsReceived]:
        """(prefix, path id) -> the UPDATE that brought it."""
        found: dict[tuple[str, int], PathsReceived] = {}
        for event in self.events:
            if isinstance(event, PathsReceived) and event.peer == address:
                for gone in event.withdrawn:
                    found.pop((str(gone.prefix), gone.path_id), None)
                for path in event.announced:
                    found[str(path.prefix), path.path_id] = event
            elif isinstance(event, SpeakerDown) or (
                isinstance(event, PeerDown) and event.peer == address
            ):
                found.clear()
        return found

    def prefixes(self, address: IPAddress) -> set[str]:
        """What a peer offers now."""
        return {prefix for prefix, _ in self.table(address)}


@dataclass
class Lab:
    """The namespace and what runs in it."""

    space: Namespace
    directory: Path
    heard: Heard = field(init=False)
    reader: asyncio.Task[None] = field(init=False)
    """Who hears the speaker's events; cancelled where another reader shall hear them."""
    bird: subprocess.Popen[bytes] | None = None

    @property
    def speaker(self) -> ExaBGPSpeaker:
        return self.heard.speaker

    def start_bird(self, *protocols: str) -> None:
        """BIRD with these protocols; a second call reconfigures it."""
        text = f"router id {BIRD};\nprotocol device {{}}\n" + "\n".join(protocols)
        (self.directory / "bird.conf").write_text(text)
        if self.bird is not None:
            self.birdc("configure")
            return
        command = ["bird", "-f", "-c", str(self.directory / "bird.conf")]
        command += ["-s", str(self.directory / "bird.ctl")]
        with (self.directory / "bird.log").open("ab") as log:
            self.bird = subprocess.Popen(self.space.command(*command), stdout=log, stderr=log)

    def birdc(self, *words: str) -> str:
        return self.space.run("birdc", "-s", str(self.directory / "bird.ctl"), *words, check=False)

    def bird_up(self, name: str = "node1") -> bool:
        """Whether BIRD's protocol is Established."""
        return "Established" in self.birdc("show", "protocols", name)


def session(name: str = "node1", *, asn: int = MY_AS, more: str = "", channel: str = "") -> str:
    """A BIRD protocol that peers with the speaker over IPv4 and dials."""
    return f"""
    protocol bgp {name} {{
        local {BIRD} as {asn}; neighbor {ME} as {MY_AS}; multihop; strict bind;
        hold time 240; graceful restart on; connect delay time 1; connect retry time 1;
        error wait time 1,2; {more}
        ipv4 {{ import all; export all; {channel} }};
    }}"""


def static(*prefixes: str) -> str:
    """BIRD's own routes."""
    lines = " ".join(f"route {prefix} unreachable;" for prefix in prefixes)
    return f"protocol static s4 {{ ipv4; {lines} }}"


class RawPeer:
    """A peer that says what it is told to, byte by byte."""

    def __init__(self, local: IPAddress, *, asn: int = MY_AS) -> None:
        self.local, self.asn = local, asn
        self.messages: list[tuple[int, bytes]] = []
        self.closed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._socket: socket.socket | None = None

    async def dial(
        self,
        *,
        port: int = 179,
        to: IPAddress | None = None,
        ttl: int = 0,
        least: int = 0,
        key: bytes = b"",
    ) -> None:
        """Connect to the speaker from our own address; polls while it refuses.

        `to`: by default the speaker's address of our family.
        `ttl`: what we send with; `least`: what we take (`man 7 ip`, IP_MINTTL).
        """
        family = socket.AF_INET if self.local.version == 4 else socket.AF_INET6
        to = to or (ME if self.local.version == 4 else ME6)
        async with asyncio.timeout(patient(15)):
            while True:
                raw = socket.socket(family)
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if ttl:
                    raw.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, ttl)
                if least:
                    raw.setsockopt(socket.IPPROTO_IP, IP_MINTTL, least)
                if key:
                    flow = b"" if to.version == 4 else bytes(4)
                    where = struct.pack("HH124s", family, 0, flow + to.packed)
                    secret = struct.pack("2xH4x80s", len(key), key)
                    raw.setsockopt(socket.IPPROTO_TCP, TCP_MD5SIG, where + secret)
                raw.bind((str(self.local), 0))
                raw.setblocking(False)
                try:
                    loop = asyncio.get_running_loop()
                    await loop.sock_connect(raw, (str(to), port))
                    break
                except ConnectionError:
                    raw.close()
                    await asyncio.sleep(0.05)
                except BaseException:
                    raw.close()
                    raise
        self._socket = raw
        self.closed.clear()
        self.messages.clear()
        self._task = asyncio.create_task(self._listen(raw))

    async def _listen(self, raw: socket.socket) -> None:
        data = b""
        loop = asyncio.get_running_loop()
        try:
            while more := await loop.sock_recv(raw, 65536):
                data += more
                while len(data) >= wire.HEADER:
                    length = int.from_bytes(data[16:18], "big")
                    if len(data) < length:
                        break
                    self.messages.append((data[18], data[wire.HEADER : length]))
                    data = data[length:]
        except OSError:
            pass
        self.closed.set()

    async def send(self, kind: int, body: bytes = b"") -> None:
        await self.send_bytes(wire.message(kind, body))

    async def send_bytes(self, data: bytes) -> None:
        assert self._socket is not None
        with contextlib.suppress(ConnectionError):
            await asyncio.get_running_loop().sock_sendall(self._socket, data)

    async def open(self, *, hold: int = HOLD, wide: bool = True, restart: int = 120) -> None:
        """OPEN and KEEPALIVE."""
        can = wire.MULTIPROTOCOL4 + wire.MULTIPROTOCOL6 + wire.capability(2)
        can += wire.four_octet_as(self.asn) if wide else b""
        can += wire.graceful(restart) if restart else b""
        body = wire.open_body(self.asn, self.local.packed[-4:], hold=hold, capabilities=can)
        await self.send(wire.OPEN, body)
        await self.send(wire.KEEPALIVE)

    async def update(self, **parts: bytes) -> None:
        await self.send(wire.UPDATE, wire.update(**parts))

    def notifications(self) -> list[tuple[int, int]]:
        """(code, subcode) of the NOTIFICATIONs we got on this connection."""
        return [(body[0], body[1]) for kind, body in self.messages if kind == wire.NOTIFICATION]

    def updates(self) -> list[bytes]:
        """The bodies of the UPDATEs we got on this connection."""
        return [body for kind, body in self.messages if kind == wire.UPDATE]

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()


@contextlib.contextmanager
def namespace() -> Iterator[Lab]:
    """A namespace with all addresses, and a directory that ExaBGP's user can reach."""
    directory = Path(tempfile.mkdtemp(prefix="mses"))
    directory.chmod(0o755)
    with network_namespace("ses") as space:
        for number in range(1, 7):
            space.run("ip", "addr", "add", f"10.9.0.{number}/32", "dev", "lo")
            space.run("ip", "addr", "add", f"fd09::{number}/128", "dev", "lo")
        lab = Lab(space, directory)
        try:
            yield lab
        finally:
            if lab.bird is not None:
                lab.bird.kill()
                lab.bird.wait(HANG)
            shutil.rmtree(directory, ignore_errors=True)


@asynccontextmanager
async def running(lab: Lab) -> AsyncIterator[None]:
    """The speaker, started in the namespace of this thread."""
    lab.heard = Heard(ExaBGPSpeaker(lab.directory / "run"))
    lab.reader = asyncio.create_task(lab.heard.run())
    try:
        yield
    finally:
        await lab.speaker.close()
        lab.reader.cancel()
        await asyncio.gather(lab.reader, return_exceptions=True)


def story(body: Callable[[Lab], Awaitable[None]], timeout: float = 60) -> None:
    """Run `body` with a fresh lab; on failure show BIRD's log and the events.

    The limit is for the whole story: each of its waits has one of its own.
    """

    async def run(lab: Lab) -> None:
        async with asyncio.timeout(5 * patient(timeout)), running(lab):
            try:
                await body(lab)
            except BaseException:
                for event in lab.heard.events[-30:]:
                    print(repr(event)[:300])
                raise

    with namespace() as lab, lab.space.entered():
        asyncio.run(run(lab))


def route(prefix: str, **more: object) -> Route:
    """A route of ours."""
    from ipaddress import ip_network

    return Route(ip_network(prefix), **more)  # type: ignore[arg-type]


def address(text: str) -> IPAddress:
    return ip_address(text)
