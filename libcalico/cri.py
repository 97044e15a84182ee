"""The sandboxes that the container runtime of this node knows.

The collector of addresses asks here whether a sandbox still exists. The runtime answers over its
CRI socket where one is configured; without one the answer is unknown, and callers take that for
"in use".
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class SandboxSource(Protocol):
    """A source of the list of sandboxes."""

    @property
    def configured(self) -> bool:
        """Whether a runtime can be asked."""

    async def sandboxes(self) -> frozenset[str] | None:
        """The ids of all sandboxes in any state; None where they cannot be learned."""


class NoSandboxes:
    """No CRI socket is configured."""

    configured = False

    async def sandboxes(self) -> frozenset[str] | None:
        """None: the sandboxes are unknown."""
        return None


class CRISandboxes:
    """`RuntimeService.ListPodSandbox` over a unix socket (CRI v1)."""

    configured = True

    def __init__(self, socket: Path, seconds: float = 5.0) -> None:
        self._socket, self._seconds = socket, seconds

    async def sandboxes(self) -> frozenset[str] | None:
        """The ids; None if the runtime does not answer in time, or not in CRI v1."""
        import grpc.aio

        options = [("grpc.max_receive_message_length", -1), ("grpc.default_authority", "localhost")]
        try:
            async with grpc.aio.insecure_channel(f"unix://{self._socket}", options) as channel:
                call = channel.unary_unary("/runtime.v1.RuntimeService/ListPodSandbox")
                # An empty request has no filter: ready and stopped sandboxes alike.
                answer = await call(b"", timeout=self._seconds)
            return frozenset(_ids(answer))
        except (grpc.aio.AioRpcError, ValueError):
            return None


def _ids(answer: bytes) -> list[str]:
    """`ListPodSandboxResponse.items` (field 1) -> `PodSandbox.id` (field 1).

    Read by hand: two fields of two messages (CRI v1 `api.proto`) are not worth a stub. Raises
    ValueError for what is no such message.
    """
    containers = []
    for number, body in _fields(answer):
        if number == 1 and isinstance(body, bytes):
            ids = [value for inner, value in _fields(body) if inner == 1]
            if len(ids) != 1 or not isinstance(ids[0], bytes) or not ids[0]:
                raise ValueError("a sandbox without an id")
            containers.append(ids[0].decode())
    return containers


def _fields(data: bytes) -> list[tuple[int, bytes | int]]:
    """Field numbers and raw values of one protobuf message."""
    fields: list[tuple[int, bytes | int]] = []
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            fields.append((tag >> 3, value))
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > len(data):
            raise ValueError("cut short")
        fields.append((tag >> 3, data[at : at + size]))
        at += size
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("cut short")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
