"""Where the page may listen, and by which names it is asked for."""

from __future__ import annotations

import pytest

from libcalico.errors import InvalidValue
from web.guard.listening import LOCAL, host_of, listening, may_ask


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "127.0.0.9"])
def test_loopback_needs_nothing(host: str) -> None:
    where = listening(host, 8091, review=False)
    assert where.names == LOCAL
    assert where.url.startswith("http://")


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"host": "0.0.0.0"}, "--listen"),
        ({"host": "10.0.0.1"}, "--listen"),
        ({"host": "::"}, "--listen"),
        ({"host": "localhost"}, "--listen"),
        ({"host": "0.0.0.0", "review": True}, "--listen"),
        ({"host": "127.0.0.1", "port": 70000}, "--port"),
        ({"host": "127.0.0.1", "certificate": "x"}, "--tls-key"),
        ({"host": "127.0.0.1", "key": "x"}, "--tls-cert"),
        ({"host": "127.0.0.1", "names": ["http://x"]}, "--name"),
    ],
)
def test_what_would_be_open_is_refused(given: dict[str, object], option: str) -> None:
    wanted: dict[str, object] = {"port": 8091, "review": False, **given}
    with pytest.raises(InvalidValue, match=option):
        listening(**wanted)  # type: ignore[arg-type]


def test_behind_review_and_tls_other_addresses_are_served() -> None:
    where = listening("0.0.0.0", 8443, review=True, certificate="c", key="k", names=["Net.example"])
    assert where.url == "https://0.0.0.0:8443/"
    assert "net.example" in where.names


@pytest.mark.parametrize(
    ("host", "origin", "served"),
    [
        ("127.0.0.1:8091", "", True),
        ("localhost:8091", "http://localhost:8091", True),
        ("[::1]:8091", "", True),
        ("evil.example:8091", "", False),
        ("127.0.0.1:8091", "http://evil.example", False),
        ("127.0.0.1:8091", "http://127.0.0.1:9999", False),
        ("127.0.0.1:8091", "null", False),
        ("", "", False),
    ],
)
def test_names_and_origins(host: str, origin: str, served: bool) -> None:
    assert may_ask(host, origin, LOCAL) is served


def test_hosts_without_their_port() -> None:
    assert [host_of(one) for one in ("A:1", "a", "[::1]:1", "[::1]")] == [
        "a",
        "a",
        "[::1]",
        "[::1]",
    ]
