"""FOU-1: flows reach every output, and one that fails holds up no other."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import grpc.aio
import pytest

from felix.flows import outputs
from felix.flows.outputs import Outputs, Wanted
from flows import goldmane_pb2 as pb
from flows import goldmane_pb2_grpc
from flows.record import Action, End, EndKind, Flow, Key, Reporter
from tests.support.patience import until
from tests.support.ports import free_ports


def flow(port: int) -> Flow:
    source, destination = (End(EndKind.WORKLOAD, name, "shop") for name in ("a", "b"))
    return Flow(Key(source, destination, port, "tcp", Reporter.SOURCE, Action.ALLOW), 0, 15)


class Collector(goldmane_pb2_grpc.FlowCollectorServicer):  # type: ignore[misc]
    """Takes what a node sends, as Goldmane does."""

    def __init__(self) -> None:
        self.ports: list[int] = []

    async def Connect(self, updates, context):  # type: ignore[no-untyped-def]
        async for update in updates:
            self.ports.append(update.flow.Key.dest_port)
            yield pb.FlowReceipt()


async def served(address: str) -> tuple[grpc.aio.Server, Collector]:
    server, collector = grpc.aio.server(), Collector()
    goldmane_pb2_grpc.add_FlowCollectorServicer_to_server(collector, server)
    server.add_insecure_port(address)
    await server.start()
    return server, collector


def lines(file: Path) -> list[int]:
    text = file.read_text() if file.exists() else ""
    return [json.loads(line)["dest_port"] for line in text.splitlines()]


def test_the_aggregator_the_socket_and_the_file_get_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "CHECK", 0.05)

    async def story() -> None:
        socket, file = tmp_path / "flows.sock", tmp_path / "deep/flows.log"
        (port,) = free_ports(1)
        far, aggregator = await served(f"127.0.0.1:{port}")
        near, listener = await served(f"unix://{socket}")
        one = Outputs("n1", socket, file)
        one.want(Wanted(f"127.0.0.1:{port}", local=True))
        await until(lambda: len(one._senders) == 2)
        await one.offer([flow(1), flow(2)])
        await until(lambda: aggregator.ports == listener.ports == [1, 2])
        assert lines(file) == [1, 2]
        assert one.conditions() == []
        one.want(Wanted(f"127.0.0.1:{port}"))
        await one.offer([flow(3)])
        await until(lambda: aggregator.ports == [1, 2, 3])
        assert (listener.ports, lines(file), one.lost) == ([1, 2], [1, 2], 0)
        one.stop()
        await far.stop(None)
        await near.stop(None)

    asyncio.run(story())


def test_what_fails_is_said_and_counted_and_holds_up_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        (port,) = free_ports(1)
        (tmp_path / "file").write_text("a file where a folder should be")
        one = Outputs("n1", tmp_path / "no.sock", tmp_path / "file/flows.log")
        one.want(Wanted(f"127.0.0.1:{port}", local=True))
        await one.offer([flow(1), flow(2)])
        await until(lambda: any("aggregator" in name for name, _ in one.conditions()))
        said = dict(one.conditions())
        assert "2 flows were lost" in said[str(tmp_path / "file/flows.log")]
        assert one.lost == 2
        one.stop()
        assert one.conditions() == []

    asyncio.run(story())


def test_some_files_for_tls_and_not_all_are_a_condition(tmp_path: Path) -> None:
    async def story() -> None:
        one = Outputs("n1", tmp_path / "no.sock", tmp_path / "flows.log")
        one.want(Wanted("127.0.0.1:1", ca="/ca.pem"))
        await until(lambda: any("certificate" in reason for _, reason in one.conditions()))
        one.stop()

    asyncio.run(story())
