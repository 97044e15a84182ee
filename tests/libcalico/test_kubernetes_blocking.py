"""The client of the Kubernetes API without an event loop: the same errors, connections and ways."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from libcalico.kubernetes.access import Access, Renewing
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import ApiError, Unreachable
from libcalico.parsing import proxy
from libcalico.process import unlooped
from tests.support.certificates import Authority
from tests.support.ports import free_ports

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
REFUSED = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n"
HANGS = b""


class Server(threading.Thread):
    """Answers the requests of each connection with these answers, then ends it."""

    def __init__(self, answers: list[list[bytes]], tls: ssl.SSLContext | None = None) -> None:
        super().__init__(daemon=True)
        self._answers, self._tls = answers, tls
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self.heads: list[bytes] = []

    def run(self) -> None:
        for answers in self._answers:
            held, _ = self.socket.accept()
            if self._tls is not None:
                held = self._tls.wrap_socket(held, server_side=True)
            with held:
                for answer in answers:
                    head = b""
                    while not head.endswith(b"\r\n\r\n"):
                        head += held.recv(4096)
                    self.heads.append(head)
                    held.sendall(answer)
                    if answer == HANGS:
                        held.recv(1)  # until the client gives up


@contextmanager
def serving(*answers: list[bytes], tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server(list(answers), tls)
    server.start()
    try:
        yield server
    finally:
        server.socket.close()
        server.join(10)
        assert not server.is_alive()


def asked(client: Client) -> bytes:
    return unlooped.run(client.request("GET", "/x"))


def at(port: int, **more: object) -> Client:
    access = Access(f"http://127.0.0.1:{port}", **more)  # type: ignore[arg-type]
    return Client(lambda: access)


def test_a_connection_is_used_again_and_made_anew_where_it_ended() -> None:
    with serving([ANSWER, ANSWER], [ANSWER]) as server:
        client = at(server.port)
        assert [asked(client) for _ in range(3)] == [b"ok"] * 3
        unlooped.run(client.close())
        assert len(server.heads) == 3


def test_a_connection_with_tls_is_used_again_though_tickets_come_after_its_first_answer(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path, "ca")
    issued = authority.issue("api", names=("IP:127.0.0.1",), usage="serverAuth")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.cert, issued.key)
    with serving([ANSWER, ANSWER, ANSWER], tls=context) as server:
        access = Access(f"https://127.0.0.1:{server.port}", ca=Path(authority.cert).read_bytes())
        client = Client(lambda: access)
        assert [asked(client) for _ in range(3)] == [b"ok"] * 3
        unlooped.run(client.close())


def test_a_server_that_is_not_trusted_is_named(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path, "ca"), Authority(tmp_path, "other")
    issued = authority.issue("api", names=("IP:127.0.0.1",), usage="serverAuth")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.cert, issued.key)
    listening = socket.create_server(("127.0.0.1", 0))

    def refuse() -> None:
        held, _ = listening.accept()
        with held, pytest.raises(ssl.SSLError):
            context.wrap_socket(held, server_side=True)

    thread = threading.Thread(target=refuse)
    thread.start()
    port = listening.getsockname()[1]
    access = Access(f"https://127.0.0.1:{port}", ca=Path(other.cert).read_bytes())
    with pytest.raises(Unreachable, match=r"GET /x: .*certificate is not trusted"):
        asked(Client(lambda: access))
    thread.join()
    listening.close()


def test_a_server_that_does_not_answer_is_given_up_at_the_deadline() -> None:
    with serving([HANGS]) as server:
        access = Access(f"http://127.0.0.1:{server.port}")
        client = Client(lambda: access, timeout=0.3)
        with pytest.raises(Unreachable, match=r"^GET /x: no answer within 0.3 s$"):
            asked(client)
        unlooped.run(client.close())


def test_a_server_that_is_not_there_is_named() -> None:
    (port,) = free_ports(1)
    with pytest.raises(Unreachable, match=r"GET /x: .*no connection: Connection refused"):
        asked(at(port))


@pytest.mark.parametrize("name", ["a" * 64 + ".example", "no.such.host.invalid", "[::1%none]"])
def test_a_name_that_leads_nowhere_is_named(name: str) -> None:
    with pytest.raises(Unreachable, match="no connection"):
        asked(Client(lambda: Access(f"http://{name}:1")))


def test_a_proxy_connects_us() -> None:
    connects = b"HTTP/1.1 200 OK\r\n\r\n"
    with serving([connects, ANSWER]) as server:
        access = Access("http://api:6443", proxy=proxy(f"http://127.0.0.1:{server.port}"))
        client = Client(lambda: access)
        assert asked(client) == b"ok"
        unlooped.run(client.close())
        assert server.heads[0].startswith(b"CONNECT api:6443 HTTP/1.1\r\n")


def test_a_credential_that_is_refused_is_asked_for_anew() -> None:
    with serving([REFUSED, ANSWER]) as server:
        given = [Access(f"http://127.0.0.1:{server.port}", acting_as=(("a", x),)) for x in "12"]
        refused: list[Access] = []
        client = Client(Renewing(lambda: given[len(refused)], refused.append))
        assert asked(client) == b"ok"
        assert refused == given[:1]
        unlooped.run(client.close())


def test_an_error_of_the_api_is_one() -> None:
    with serving([b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n"]) as server:
        client = at(server.port)
        with pytest.raises(ApiError):
            asked(client)
        unlooped.run(client.close())
