"""Where the page may listen, and by which names it may be asked for.

Without token review it is for this machine alone: it listens on loopback, and takes requests that
name it as localhost, so that a page of another origin whose name leads here (DNS rebinding) gets
nothing. Tested in tests/web/test_listening.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address

from libcalico.errors import InvalidValue

PORT = 8091
LOCAL = frozenset({"localhost", "127.0.0.1", "[::1]"})


@dataclass(frozen=True, slots=True)
class Listening:
    """`host` is an address. `names`: the hosts that requests may name; none: any."""

    host: str
    port: int
    review: bool
    certificate: str = ""
    key: str = ""
    names: frozenset[str] = LOCAL

    @property
    def url(self) -> str:
        """Where to look."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate else 'http'}://{host}:{self.port}/"


def listening(
    host: str,
    port: int,
    *,
    review: bool,
    certificate: str = "",
    key: str = "",
    names: Iterable[str] = (),
) -> Listening:
    """Check where to listen. Raises InvalidValue naming the option."""
    try:
        address = ip_address(host)
    except ValueError:
        rule = "an IP address: 127.0.0.1, ::1, or another one with --token-review"
        raise InvalidValue("--listen", host, rule) from None
    if not 0 <= port <= 65535:
        raise InvalidValue("--port", port, "0 to 65535; 0 is any free port")
    if bool(certificate) != bool(key):
        missing = "--tls-key" if certificate else "--tls-cert"
        raise InvalidValue(missing, "", "--tls-cert and --tls-key go together")
    if not address.is_loopback:
        if not review:
            rule = "127.0.0.1 or ::1; other addresses only with --token-review"
            raise InvalidValue("--listen", host, rule)
        if not certificate:
            rule = "needs --tls-cert and --tls-key: tokens would cross the network in clear text"
            raise InvalidValue("--listen", host, rule)
    requested = frozenset(name.lower() for name in names)
    for name in requested:
        if not name or "/" in name or " " in name:
            raise InvalidValue("--name", name, "a host name without scheme, port and path")
    allowed = LOCAL | requested if address.is_loopback or requested else frozenset()
    return Listening(host, port, review, certificate, key, allowed)


def host_of(header: str) -> str:
    """The host of a Host header, without its port."""
    host, colon, port = header.strip().lower().rpartition(":")
    return host if colon and port.isdigit() and (":" not in host or host.endswith("]")) else header


def may_ask(host: str, origin: str, allowed: frozenset[str]) -> bool:
    """Whether a request that names this host, from a page of this origin, is served."""
    name = host_of(host)
    if allowed and name not in allowed:
        return False
    if not origin:
        return True
    # A browser names the origin of each request that another page could have caused.
    return origin.partition("://")[2].lower() == host.strip().lower()
