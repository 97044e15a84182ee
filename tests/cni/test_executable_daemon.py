"""The executable and a daemon that speaks protocol v1, on a real socket.

Expectations: what the runtime gave arrives untouched, with the pod's namespace itself and not
its path; what the daemon answers is printed as it is, or replaced by a CNI error when it
cannot be one; a daemon that dies, hangs or speaks nonsense never leaves the runtime without an
answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cni.socket import accepting, protocol
from cni.socket.channel import Channel
from tests.cni.executable import (
    BASE,
    CONFIG,
    Build,
    Daemon,
    Done,
    accept,
    call,
    plugin,
)
from tests.support.netns import network_namespace
from tests.support.patience import HANG


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A call of `calico-ipam`, which needs no namespace, with socket and queue of its own."""
    return BASE | {
        "CNI_CALICO_SOCKET": str(tmp_path / "private" / "cni.sock"),
        "CNI_CALICO_PENDING": str(tmp_path / "pending"),
    }


def socket_of(env: dict[str, str]) -> Path:
    return Path(env["CNI_CALICO_SOCKET"])


def answering(*messages: protocol.Message) -> Any:
    """A handler that sends these and waits for the other side to close."""

    async def handle(connection: Channel, _: protocol.Request, __: int | None) -> None:
        for message in messages:
            await connection.send(message)
        await connection.receive()

    return handle


# What arrives


def test_request_carries_names_environment_stdin_and_namespace(
    exe: Build, env: dict[str, str]
) -> None:
    found: list[tuple[int, int]] = []

    async def look(connection: Channel, _: protocol.Request, descriptor: int | None) -> None:
        assert descriptor is not None
        about = os.fstat(descriptor)
        found.append((about.st_dev, about.st_ino))
        await connection.send(protocol.Result(0, '{"cniVersion":"1.0.0"}\n'))

    stdin = ' {"name":"net", "cniVersion":"1.0.0",\n\t"x":"\u65e5\\u0041\\"" } \n'
    args = {"CNI_ARGS": 'K8S_POD_NAME=a b\\"c\u00e9;IgnoreUnknown=1', "OTHER": "not sent"}
    with network_namespace("cni") as pod, Daemon(socket_of(env), look) as daemon:
        env |= args | {"CNI_NETNS": str(pod.path)}
        started = time.monotonic()
        done = call(exe.plugin("calico"), env, stdin)
        took = time.monotonic() - started
        own = os.stat(pod.path)
    assert done == Done(0, b'{"cniVersion":"1.0.0"}\n', "")
    assert found == [(own.st_dev, own.st_ino)]
    (request,) = daemon.requests
    assert request.argv0 == "calico"
    assert request.env == {key: value for key, value in env.items() if key.startswith("CNI_")}
    assert request.stdin == stdin.strip()
    assert request.has_netns
    assert 60 - took <= request.deadline <= 60


def test_hello_and_request_come_in_one_with_the_namespace(exe: Build, env: dict[str, str]) -> None:
    """So the daemon wakes once. What carries descriptors the kernel never joins to what was sent
    apart from it (unix(7)): of two sends, one receive would show the first."""
    found: list[tuple[list[str], int]] = []

    def once(listener: socket.socket) -> None:
        with contextlib.closing(listener), listener.accept()[0] as peer:
            data, descriptors, _, _ = socket.recv_fds(peer, 1 << 20, 4)
            for descriptor in descriptors:
                os.close(descriptor)
            buffer, types = bytearray(data), []
            while (body := protocol.take_frame(buffer)) is not None:
                types.append(json.loads(body)["type"])
            found.append((types, len(descriptors)))
            for answer in (protocol.Hello("daemon"), protocol.Result(0, '{"a":1}')):
                peer.sendall(protocol.encode_frame(answer))
            peer.recv(1)

    listener = accepting.listen(socket_of(env))
    listener.setblocking(True)
    thread = threading.Thread(target=once, args=[listener])
    thread.start()
    with network_namespace("cni") as pod:
        done = call(exe.plugin("calico"), env | {"CNI_NETNS": str(pod.path)}, CONFIG)
    thread.join(HANG)
    assert done == Done(0, b'{"a":1}', "")
    assert found == [(["hello", "request"], 1)]


def test_a_request_says_what_time_is_left_when_the_daemon_takes_it(
    exe: Build, env: dict[str, str]
) -> None:
    """A daemon that is behind lets connect(2) wait; its own limit is to end before the caller's."""
    found: list[float] = []
    waited: list[float] = []

    def late(listener: socket.socket, first: socket.socket) -> None:
        with contextlib.closing(listener), first:
            while not connecting(process.pid):
                time.sleep(0.01)
            since = time.monotonic()
            time.sleep(1)
            waited.append(time.monotonic() - since)
            listener.accept()[0].close()
            with listener.accept()[0] as peer:
                buffer = bytearray()
                while not found:
                    buffer += peer.recv(1 << 16)
                    while (body := protocol.take_frame(buffer)) is not None:
                        if (frame := json.loads(body))["type"] == "request":
                            found.append(frame["deadline"])
                for answer in (protocol.Hello("daemon"), protocol.Result(0, "{}")):
                    peer.sendall(protocol.encode_frame(answer))
                peer.recv(1)

    listener = accepting.listen(socket_of(env), backlog=0)
    listener.setblocking(True)
    first = socket.socket(socket.AF_UNIX)
    first.connect(str(socket_of(env)))
    with subprocess.Popen(
        [exe.plugin("calico-ipam")], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        thread = threading.Thread(target=late, args=[listener, first])
        thread.start()
        out, _ = process.communicate(json.dumps(CONFIG).encode(), timeout=HANG)
        thread.join(HANG)
    assert (process.returncode, out) == (0, b"{}")
    assert found[0] <= 60.1 - waited[0]


def connecting(pid: int) -> bool:
    """Whether a process has opened a socket and sleeps: in connect(2), nobody accepts yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        ends = [os.readlink(one) for one in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return False
    return state == "S" and any(end.startswith("socket:") for end in ends)


def test_a_usual_call_touches_few_pages(env: dict[str, str]) -> None:
    """Each costs a fault of the processor, half a microsecond and more: 64 when memory was
    malloc's and grew, 16 now."""
    with Daemon(socket_of(env), accept):
        reading, writing = os.pipe()
        os.write(writing, json.dumps(CONFIG).encode())
        os.close(writing)
        program = plugin("calico-ipam")
        put = [(os.POSIX_SPAWN_DUP2, reading, 0)]
        child = os.posix_spawn(program, [str(program)], env, file_actions=put)
        os.close(reading)
        _, status, used = os.wait4(child, 0)
    assert status == 0
    assert used.ru_minflt < 40


@pytest.mark.parametrize("state", ["unset", "gone", "file"])
def test_delete_without_a_namespace_has_no_descriptor(
    exe: Build, state: str, env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    env |= {"CNI_COMMAND": "DEL", "CNI_NETNS": "" if state == "unset" else str(tmp_path / state)}
    with Daemon(socket_of(env), accept) as daemon:
        assert call(exe.plugin("calico"), env, CONFIG) == Done(0, b"", "")
    assert [(r.has_netns, r.env["CNI_NETNS"]) for r in daemon.requests] == [
        (False, env["CNI_NETNS"])
    ]
    assert daemon.requests[0].deadline <= 25


def test_a_mebibyte_goes_through(exe: Build, env: dict[str, str]) -> None:
    stdin = json.dumps(CONFIG | {"args": "x\u00e9" * (2**20 // 3)}, ensure_ascii=False)
    with Daemon(socket_of(env), accept) as daemon:
        assert call(exe.plugin("calico-ipam"), env, stdin).status == 0
        assert call(exe.strict("calico-ipam"), env, stdin).status == 0
    assert [request.stdin == stdin for request in daemon.requests] == [True, True]


def test_what_exceeds_a_frame_is_refused_not_cut(exe: Build, env: dict[str, str]) -> None:
    stdin = json.dumps(CONFIG | {"args": ['"'] * 250_000})
    with Daemon(socket_of(env), accept) as daemon:
        assert call(exe.plugin("calico-ipam"), env, stdin).error["code"] == 6
    assert daemon.requests == []


def test_sixty_four_at_once(exe: Build, env: dict[str, str]) -> None:
    async def echo(connection: Channel, request: protocol.Request, _: int | None) -> None:
        await asyncio.sleep(0.01)
        await connection.send(
            protocol.Result(0, json.dumps({"id": request.env["CNI_CONTAINERID"]}))
        )

    with Daemon(socket_of(env), echo), ThreadPoolExecutor(16) as pool:
        names = exe.some([f"c{number}" for number in range(64)], 16)
        done = pool.map(
            lambda name: call(exe.plugin("calico-ipam"), env | {"CNI_CONTAINERID": name}, CONFIG),
            names,
        )
        assert [json.loads(each.stdout)["id"] for each in done] == names


# What is printed


@pytest.mark.parametrize("command", ["DEL", "CHECK", "GC", "STATUS"])
def test_success_of_other_verbs_prints_nothing(
    exe: Build, command: str, env: dict[str, str]
) -> None:
    env |= {"CNI_COMMAND": command}
    with Daemon(socket_of(env), answering(protocol.Result(0, '{"surprise":1}', "a warning\n"))):
        done = call(exe.plugin("calico-ipam"), env, CONFIG | {"cniVersion": "1.1.0"})
    assert done == Done(0, b"", "a warning\n")


@pytest.mark.parametrize("status", [1, 7, 255])
def test_errors_are_printed_as_they_came_with_status_one(
    exe: Build, status: int, env: dict[str, str]
) -> None:
    error = '{"cniVersion":"1.0.0","code":100,"msg":"m","details":"d"}\n'
    for command in ("ADD", "DEL"):
        with Daemon(socket_of(env), answering(protocol.Result(status, error))):
            done = call(exe.plugin("calico-ipam"), env | {"CNI_COMMAND": command}, CONFIG)
        assert (done.status, done.stdout) == (1, error.encode())


@pytest.mark.parametrize("exit_status", [0, 1])
@pytest.mark.parametrize("stdout", ["", "oops", "[]", "null", "{} {}", '{"x":1'])
def test_an_answer_that_is_no_object_is_replaced(
    exe: Build, stdout: str, exit_status: int, env: dict[str, str]
) -> None:
    received: list[protocol.Message] = []

    async def odd(connection: Channel, _: protocol.Request, __: int | None) -> None:
        await connection.send(protocol.Result(exit_status, stdout))
        answer = await connection.receive()
        received.extend([answer[0]] if answer else [])

    with Daemon(socket_of(env), odd):
        assert call(exe.plugin("calico-ipam"), env, CONFIG).error["code"] == 999
    assert received == [protocol.Undelivered("stdout")]


def test_the_daemon_hears_when_the_result_cannot_be_printed(
    exe: Build, env: dict[str, str]
) -> None:
    received: list[protocol.Message] = []

    async def listen(connection: Channel, _: protocol.Request, __: int | None) -> None:
        await connection.send(protocol.Result(0, '{"cniVersion":"1.0.0"}\n'))
        answer = await connection.receive()
        received.extend([answer[0]] if answer else [])

    reading, writing = os.pipe()
    os.close(reading)
    with Daemon(socket_of(env), listen):
        done = subprocess.run(
            [exe.plugin("calico-ipam")],
            input=json.dumps(CONFIG).encode(),
            env=env,
            stdout=writing,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    os.close(writing)
    assert done.returncode == 1
    assert received == [protocol.Undelivered("stdout")]


# A daemon in trouble


def outcome(command: str, env: dict[str, str], executable: Path) -> None:
    """The answer of a call that the daemon left alone (EXE-4)."""
    env = env | {"CNI_COMMAND": command}
    done = call(executable, env, CONFIG | {"cniVersion": "1.1.0"})
    if command == "DEL":
        assert (done.status, done.stdout) == (0, b"")
        (file,) = Path(env["CNI_CALICO_PENDING"]).iterdir()
        assert protocol.decode_pending(file.read_bytes()).env == env
    else:
        assert done.error["code"] == (50 if command == "STATUS" else 11)
        assert "calico-cni" in done.error["msg"]


@pytest.mark.parametrize("command", ["ADD", "DEL", "CHECK", "GC", "STATUS"])
@pytest.mark.parametrize("trouble", ["dies", "hangs", "other version"])
def test_a_daemon_that_does_not_finish(
    exe: Build, command: str, trouble: str, env: dict[str, str]
) -> None:
    async def handle(connection: Channel, _: protocol.Request, __: int | None) -> None:
        if trouble == "dies":
            connection.close()
        await asyncio.sleep(HANG)

    version = 2 if trouble == "other version" else 1
    build = exe.short if trouble == "hangs" else exe.hasty
    with Daemon(socket_of(env), handle, version):
        outcome(command, env, build("calico-ipam"))


@pytest.mark.parametrize(
    "noise",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x20\x00\x01",
        b"\0\0\0\0",
        b"\0\0\0\x02[]",
        b"\0\0\0\x02{",
        b"\0\0\0\x04junk",
        b'\0\0\0\x10{"type":"hello"}',
        b'\0\0\0\x1c{"type":"hello","version":1}\0\0\0\x05{"a":',
        b"",
    ],
)
def test_nonsense_is_a_daemon_that_does_not_answer(
    exe: Build, noise: bytes, env: dict[str, str]
) -> None:
    async def main(started: threading.Event, stop: asyncio.Event) -> None:
        async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(noise)
            await writer.drain()
            writer.close()

        socket_of(env).parent.mkdir(exist_ok=True)
        async with await asyncio.start_unix_server(speak, socket_of(env)):
            started.set()
            await stop.wait()

    started, stop, loop = threading.Event(), asyncio.Event(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(main(started, stop),))
    thread.start()
    assert started.wait(HANG)
    try:
        outcome("ADD", env, exe.strict("calico-ipam"))
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(HANG)
        loop.close()


def test_a_daemon_that_is_just_restarting_is_waited_for(exe: Build, env: dict[str, str]) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(call, exe.lasting("calico-ipam"), env, CONFIG)
        time.sleep(0.4)  # it has tried by then, or else the daemon is there before
        with Daemon(socket_of(env), accept):
            assert waiting.result().status == 0


def test_unknown_messages_and_fields_of_a_later_release_are_ignored(
    exe: Build, env: dict[str, str]
) -> None:
    class Later:
        def __init__(self, connection: Channel) -> None:
            self.connection = connection

        async def send(self, document: dict[str, Any]) -> None:
            body = json.dumps(document).encode()
            sock = self.connection._sock
            await asyncio.get_running_loop().sock_sendall(sock, len(body).to_bytes(4, "big") + body)

    async def handle(connection: Channel, _: protocol.Request, __: int | None) -> None:
        later = Later(connection)
        await later.send({"type": "progress", "percent": 50, "nested": {"exit": 3}})
        await later.send({"new": [1, {"type": "no"}], "type": "result", "exit": 0, "stdout": "{}"})

    for executable in (exe.plugin("calico-ipam"), exe.strict("calico-ipam")):
        with Daemon(socket_of(env), handle):
            assert call(executable, env, CONFIG) == Done(0, b"{}", "")


def test_frames_in_single_bytes(exe: Build, env: dict[str, str]) -> None:
    async def slowly(connection: Channel, _: protocol.Request, __: int | None) -> None:
        loop = asyncio.get_running_loop()
        for byte in protocol.encode_frame(protocol.Result(0, '{"a":"\u00e9"}')):
            await loop.sock_sendall(connection._sock, bytes([byte]))
            await asyncio.sleep(0)

    with Daemon(socket_of(env), slowly):
        assert call(exe.plugin("calico-ipam"), env, CONFIG).stdout == '{"a":"\u00e9"}'.encode()


def test_the_daemon_sees_the_executable_die(exe: Build, env: dict[str, str]) -> None:
    died = threading.Event()
    arrived = threading.Event()

    async def watch(connection: Channel, _: protocol.Request, __: int | None) -> None:
        arrived.set()
        assert await connection.receive() is None
        died.set()

    with (
        Daemon(socket_of(env), watch),
        subprocess.Popen([exe.plugin("calico-ipam")], stdin=subprocess.PIPE, env=env) as process,
    ):
        assert process.stdin is not None
        process.stdin.write(json.dumps(CONFIG).encode())
        process.stdin.close()
        assert arrived.wait(HANG)
        process.kill()
        assert died.wait(HANG)


def test_a_daemon_of_another_user_gets_nothing(
    exe: Build, env: dict[str, str], tmp_path: Path
) -> None:
    """The request holds the configuration's secrets, so the listener must be root or ourselves."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    program = (
        "import os,socket,sys; os.setuid(65534); s=socket.socket(socket.AF_UNIX);"
        "s.bind(sys.argv[1]); s.listen(); print(flush=True); c,_=s.accept(); print(c.recv(1))"
    )
    path = Path("/tmp") / f"muslin-foreign-{os.getpid()}.sock"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE
    ) as listener:
        assert listener.stdout is not None
        listener.stdout.readline()
        done = call(exe.hasty("calico-ipam"), env | {"CNI_CALICO_SOCKET": str(path)}, CONFIG)
        assert done.error["code"] == 11
        assert listener.stdout.readline() == b"b''\n"
        path.unlink()


def test_socket_modes_and_a_stale_socket(exe: Build, env: dict[str, str]) -> None:
    path = socket_of(env)
    first = accepting.listen(path)
    first.close()
    assert call(exe.hasty("calico-ipam"), env, CONFIG).error["code"] == 11
    with Daemon(path, accept):
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert call(exe.plugin("calico-ipam"), env, CONFIG).status == 0
