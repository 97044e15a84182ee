"""The sandbox list over a real gRPC unix socket, and bytes that are no such list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from libcalico.cri import CRISandboxes, NoSandboxes

# ListPodSandboxResponse{items: [PodSandbox{id, metadata{name}, state, created_at}, ...]}.
FIRST = b"\x0a\x03abc\x12\x05\x0a\x03web\x18\x01\x20\x80\x80\x80\x80\x10"
SECOND = b"\x0a\x03def"
LIST = b"".join(b"\x0a" + bytes([len(item)]) + item for item in (FIRST, SECOND))


class Runtime:
    """Answers ListPodSandbox with given bytes."""

    def __init__(self, socket: Path, answer: bytes) -> None:
        async def listing(_request: bytes, _context: Any) -> bytes:
            return answer

        self.server = grpc.aio.server()
        handler = grpc.method_handlers_generic_handler(
            "runtime.v1.RuntimeService",
            {"ListPodSandbox": grpc.unary_unary_rpc_method_handler(listing)},
        )
        self.server.add_generic_rpc_handlers((handler,))
        self.server.add_insecure_port(f"unix://{socket}")


@pytest.mark.asyncio
async def test_the_list_has_every_sandbox(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path / "cri.sock", LIST)
    await runtime.server.start()
    try:
        source = CRISandboxes(tmp_path / "cri.sock")
        assert await source.sandboxes() == frozenset({"abc", "def"})
    finally:
        await runtime.server.stop(None)


@pytest.mark.asyncio
@pytest.mark.parametrize("answer", [LIST[:-1], b"\x0a\x02\x18\x01", b"\x0b", b"\xff" * 12])
async def test_what_cannot_be_read_is_unknown(tmp_path: Path, answer: bytes) -> None:
    runtime = Runtime(tmp_path / "cri.sock", answer)
    await runtime.server.start()
    try:
        assert await CRISandboxes(tmp_path / "cri.sock").sandboxes() is None
    finally:
        await runtime.server.stop(None)


@pytest.mark.asyncio
async def test_nobody_there_is_unknown(tmp_path: Path) -> None:
    assert await CRISandboxes(tmp_path / "none.sock", seconds=1).sandboxes() is None
    assert not NoSandboxes.configured
    assert await NoSandboxes().sandboxes() is None
