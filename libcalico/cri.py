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

        from libcalico import cri_pb2, cri_pb2_grpc

        options = [("grpc.max_receive_message_length", -1), ("grpc.default_authority", "localhost")]
        try:
            async with grpc.aio.insecure_channel(f"unix://{self._socket}", options) as channel:
                runtime = cri_pb2_grpc.RuntimeServiceStub(channel)
                request = cri_pb2.ListPodSandboxRequest()
                response = await runtime.ListPodSandbox(request, timeout=self._seconds)
        except grpc.aio.AioRpcError:
            return None
        # gRPC gives None for bytes that are no such message.
        if response is None:
            return None
        ids = frozenset(str(sandbox.id) for sandbox in response.items)
        return None if "" in ids else ids
