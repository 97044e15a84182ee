"""Stuck, slow, broken and hostile clients of `cni.sock`, against a daemon of its own process.

Expectation: who is not root gets nothing, and whatever the others do, a pod starts meanwhile, no
descriptor is kept, and nothing of a call that was not finished is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from cni.server.server import CONCURRENCY
from cni.socket import protocol
from cni.socket.accepting import CONNECTIONS
from libcalico.local.node_api import Await
from tests.cni.executable import FULL_SIZE
from tests.cni.supervised import Supervisor, supervised
from tests.cni.world import (
    FelixPeer,
    World,
    container_id,
    network_config,
    node_world,
    pod_namespace,
    result_of,
)
from tests.support.netns import Namespace
from tests.support.patience import HANG, until

WITHOUT_END = {"policy_setup_timeout_seconds": 3600}
HELLO = protocol.encode_frame(protocol.Hello("executable"))
ENDED = BrokenPipeError, ConnectionResetError
"""What sending says where the daemon has ended the connection, and while it does so."""
ATTEMPT = """
import socket, sys
sock = socket.socket(socket.AF_UNIX)
sock.settimeout(120)
try:
    sock.connect("private/cni.sock")
    print(sock.recv(100))
except PermissionError:
    print("refused")
except ConnectionResetError:
    print(b"")
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with node_world(tmp_path_factory.mktemp("node")) as world:
        asyncio.run(prepare(world))
        yield world


async def prepare(node: World) -> None:
    async with node.etcd.connect() as store:
        await node.prepare(store)


@pytest.fixture(scope="module")
def daemon(node: World) -> Iterator[Supervisor]:
    with supervised(node.settings, node.etcd.endpoint, node.folder / "cni.log") as found:
        asyncio.run(pod_starts(node))
        yield found


@pytest.fixture
def pod() -> Iterator[Namespace]:
    with pod_namespace() as space:
        yield space


async def pod_starts(node: World) -> None:
    """A pod comes and goes beside them."""
    with pod_namespace("other") as space:
        async with asyncio.timeout(HANG):
            result_of(await node.add(space, "other"))
            assert (await node.delete(space, "other")).status == 0


def connected(node: World) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(node.settings.socket))
    sock.settimeout(HANG)
    return sock


def ended(sock: socket.socket) -> bool:
    """Whether the daemon closed it, after whatever it said."""
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        return True
    except (TimeoutError, BlockingIOError):
        return False
    return True


def descriptors(daemon: Supervisor) -> int:
    return len(os.listdir(f"/proc/{daemon.pid}/fd"))


def request(pod: Namespace, name: str, ifname: str = "eth0", **config: object) -> protocol.Request:
    return protocol.Request(
        argv0="calico",
        env={
            "CNI_COMMAND": "ADD",
            "CNI_CONTAINERID": container_id(name),
            "CNI_NETNS": str(pod.path),
            "CNI_IFNAME": ifname,
            "CNI_ARGS": f"K8S_POD_NAMESPACE=default;K8S_POD_NAME={name}",
        },
        stdin=json.dumps(network_config(config)),
        deadline=HANG,
        has_netns=True,
    )


def test_only_root_and_the_mode_of_everything(node: World, daemon: Supervisor) -> None:
    """Behind either door stands the next one; the last is the kernel's word on the peer."""
    private, path = node.settings.socket.parent, node.settings.socket
    doors = [(private, 0o700), (path, 0o600)]
    assert [door.stat().st_mode & 0o7777 for door, _ in doors] == [mode for _, mode in doors]
    assert {door.stat().st_uid for door, _ in doors} == {0}
    node.folder.chmod(0o755)
    for parent in node.folder.parents:
        assert parent.stat().st_mode & 0o001 or parent.stat().st_uid == 0
    try:
        assert attempt(node) == "refused"
        private.chmod(0o755)
        assert attempt(node) == "refused"
        path.chmod(0o666)
        assert attempt(node) == "b''", "closed, and not even a greeting"
    finally:
        for door, mode in doors:
            door.chmod(mode)
    with connected(node) as ours:
        assert ours.recv(100)
    assert daemon.pid


def attempt(node: World) -> str:
    """What nobody gets. The folder is its working directory: it could not walk there."""
    done = subprocess.run(
        ["/usr/bin/python3", "-IS", "-c", ATTEMPT],
        cwd=node.folder, user=65534, group=65534, extra_groups=[],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done
    return done.stdout.strip()


@pytest.mark.asyncio
async def test_silent_slow_and_half_sent(node: World, daemon: Supervisor) -> None:
    """More than the daemon serves at a time (CHAN-3); each is ended after its ten seconds."""
    before = descriptors(daemon)
    frame = protocol.encode_frame(protocol.Hello("executable", release="x" * 3000))
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        clients = []
        for number in range(CONNECTIONS + 60):
            sock = stack.enter_context(connected(node))
            with contextlib.suppress(*ENDED):
                sock.sendall([b"", HELLO[:2], frame[:700], HELLO, HELLO + frame[:9]][number % 5])
            clients.append(sock)
        slow = clients[-1]
        dribble = asyncio.create_task(dribbling(slow, frame))
        for _ in range(3):
            await pod_starts(node)
        assert descriptors(daemon) < 2 * CONNECTIONS + 100
        await dribble
        for sock in clients:
            assert await asyncio.to_thread(ended, sock)
    assert time.monotonic() - began > 5
    await until(lambda: descriptors(daemon) <= before + 2)


async def dribbling(sock: socket.socket, data: bytes) -> None:
    """A byte now and then never makes it more than ten seconds."""
    with contextlib.suppress(OSError):
        for byte in data:
            sock.send(bytes([byte]))
            await asyncio.sleep(0.2)


@pytest.mark.asyncio
async def test_what_is_no_message_ends_the_connection_at_once(
    node: World, daemon: Supervisor
) -> None:
    before = descriptors(daemon)
    for nonsense in (
        (2 * 1024 * 1024 + 1).to_bytes(4, "big"),
        b"\xff\xff\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\0",
        b"\0\0\0\x02{}",
        b"\0\0\0\x02[]",
        b"\0\0\0\x05\xff\xfe\xfd\xfc\xfb",
        HELLO + b"\0\0\0\x0d" + b'{"type":"x"}\n' + (1 << 31).to_bytes(4, "big"),
        HELLO + frame_of(b'{"type":"request","argv0":1}'),
        HELLO + frame_of(b"[" * 100_000),
        HELLO * 2,
    ):
        with connected(node) as sock:
            sock.sendall(nonsense)
            assert await asyncio.to_thread(ended, sock), nonsense[:40]
    await pod_starts(node)
    await until(lambda: descriptors(daemon) <= before + 2)
    # Exactly the limit is a frame like any other; only the type is unknown.
    with connected(node) as sock:
        body = b'{"type":"later","x":"' + b"a" * (2 * 1024 * 1024 - 23) + b'"}'
        await asyncio.to_thread(sock.sendall, HELLO + frame_of(body))
        sock.settimeout(0.3)
        assert not ended(sock)


def frame_of(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@pytest.mark.asyncio
async def test_a_flood_of_descriptors_is_closed(
    node: World, daemon: Supervisor, pod: Namespace
) -> None:
    before = descriptors(daemon)
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            sock = stack.enter_context(connected(node))
            for _ in range(5):
                with contextlib.suppress(*ENDED):
                    socket.send_fds(sock, [HELLO[:1]], [pod.fd] * 50)
        await pod_starts(node)
        assert descriptors(daemon) < before + 1000, "at most one waits with each connection"
    await until(lambda: descriptors(daemon) <= before + 2)


@pytest.mark.asyncio
async def test_disconnected_in_the_middle(node: World, daemon: Supervisor, pod: Namespace) -> None:
    """After any number of bytes, and at any moment of the ADD that follows."""
    before = descriptors(daemon)
    frame = HELLO + protocol.encode_frame(request(pod, "middle"))
    step = 7 if FULL_SIZE else 97
    for length in range(1, len(frame), step):
        with connected(node) as sock:
            socket.send_fds(sock, [frame[:length]], [pod.fd])
    for number in range(60 if FULL_SIZE else 12):
        with connected(node) as sock:
            socket.send_fds(sock, [HELLO], [])
            sent = socket.send_fds(sock, [frame[len(HELLO) :]], [pod.fd])
            assert sent == len(frame) - len(HELLO)
            await asyncio.sleep(number % 6 * 0.002)
    with connected(node) as sock:
        socket.send_fds(sock, [HELLO], [])
        socket.send_fds(sock, [frame[len(HELLO) :]], [pod.fd])
        await asyncio.to_thread(sock.recv, 65536)
        sock.sendall(protocol.encode_frame(protocol.Undelivered("stdout")))
        assert await asyncio.to_thread(ended, sock)
    await pod_starts(node)
    # Who ended in order behind the answer had it, as far as the daemon can know: its DEL comes.
    assert (await node.delete(pod, "middle")).status == 0
    await node.becomes_clean()
    assert "eth0" not in pod.run("ip", "link")
    await until(lambda: descriptors(daemon) <= before + 2)


@pytest.mark.asyncio
async def test_at_most_64_calls_run_at_a_time(
    node: World, daemon: Supervisor, pod: Namespace
) -> None:
    count = CONCURRENCY + 12
    assert CONCURRENCY == 64
    async with FelixPeer(node.settings.felix_socket) as felix:
        felix.hold = True
        await until(lambda: felix.connected)
        with contextlib.ExitStack() as stack:
            clients = []
            for number in range(count):
                sock = stack.enter_context(connected(node))
                sent = request(pod, f"many-{number}", f"e{number}", **WITHOUT_END)
                socket.send_fds(sock, [HELLO], [])
                socket.send_fds(sock, [protocol.encode_frame(sent)], [pod.fd])
                clients.append(sock)
            await until(lambda: len(waiting(felix)) >= CONCURRENCY)
            await asyncio.sleep(0.5)
            assert len(waiting(felix)) == CONCURRENCY
    # Those that ran are cancelled, those that waited never begin, and nothing is left.
    await node.becomes_clean()
    await pod_starts(node)
    node.assert_clean()


@pytest.mark.asyncio
async def test_calls_that_wait_for_their_turn_hold_up_no_other_container(
    node: World, daemon: Supervisor, pod: Namespace
) -> None:
    """CNI-41: as many calls of one container as may run at a time, behind one that hangs."""
    async with FelixPeer(node.settings.felix_socket) as felix:
        felix.hold = True
        await until(lambda: felix.connected)
        with contextlib.ExitStack() as stack:
            for number in range(CONCURRENCY + 1):
                sock = stack.enter_context(connected(node))
                sent = request(pod, "same", f"e{number}", **WITHOUT_END)
                socket.send_fds(sock, [HELLO], [])
                socket.send_fds(sock, [protocol.encode_frame(sent)], [pod.fd])
            await until(lambda: waiting(felix))
            await asyncio.sleep(0.5)
            assert len(waiting(felix)) == 1
            await pod_starts(node)
    await node.becomes_clean()


def waiting(felix: FelixPeer) -> list[Await]:
    return [message for message in felix.messages if isinstance(message, Await)]
