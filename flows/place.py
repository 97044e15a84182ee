"""Where the aggregator is, and the channel to it: mutual TLS from files, read anew each time.

gRPC is imported here, in `client`, `sending` and `attending`: a process imports them when it has
an aggregator to talk to, and not before.
Tested in tests/flows/test_client.py and tests/flows/test_server_tls.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from libcalico.errors import InvalidValue, MuslinError

NODE = "muslin-node"
"""The metadata in which a sender of ours names its node, for what it sends twice."""
LARGEST = 256 << 20
"""Bytes of one message, of a list without pages above all."""


class AggregatorError(MuslinError):
    """The aggregator did not do what was asked; the text says what it said."""


class AggregatorUnavailable(AggregatorError):
    """The aggregator does not answer, or TLS with it does not work; later it may."""


@dataclass(frozen=True, slots=True)
class Place:
    """`address` is HOST:PORT; `ca`, `certificate` and `key` are paths of PEM files, all of them or
    none (then without TLS, which only an aggregator without TLS takes). `server_name` is the name
    that the server's certificate must have, that of `address` where it is empty."""

    address: str
    ca: str = ""
    certificate: str = ""
    key: str = ""
    server_name: str = ""

    @property
    def encrypted(self) -> bool:
        """Whether TLS is used. Raises InvalidValue where some of the three files is not named."""
        named = {"ca": self.ca, "certificate": self.certificate, "key": self.key}
        missing = [name for name, path in named.items() if not path]
        if missing and len(missing) < len(named):
            rule = "name ca, certificate and key, or none of them"
            raise InvalidValue(missing[0], "", rule, f"aggregator {self.address}")
        return not missing


def channel(place: Place) -> grpc.aio.Channel:
    """A channel to the place. Raises AggregatorUnavailable where a file cannot be read."""
    options: list[tuple[str, int | str]] = [
        ("grpc.max_receive_message_length", LARGEST),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.max_reconnect_backoff_ms", 10_000),
    ]
    if not place.encrypted:
        return grpc.aio.insecure_channel(place.address, options)
    if place.server_name:
        options.append(("grpc.ssl_target_name_override", place.server_name))
    ca, key, certificate = (_read(one) for one in (place.ca, place.key, place.certificate))
    credentials = grpc.ssl_channel_credentials(ca, key, certificate)
    return grpc.aio.secure_channel(place.address, credentials, options)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as problem:
        raise AggregatorUnavailable(f"cannot read {path}: {problem.strerror}") from None


def failure(problem: grpc.aio.AioRpcError, place: Place, tried: str) -> AggregatorError:
    """What a failed call means, for an operator."""
    text = f"aggregator {place.address}: {tried}: {problem.details() or problem.code().name}"
    if problem.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return AggregatorUnavailable(text)
    return AggregatorError(text)
