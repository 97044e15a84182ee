"""Exports: lines in rotated files, OTLP to a collector that listens, and what goes wrong."""

from __future__ import annotations

import asyncio
import gzip
import http.server
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flows.aggregate.store import Store
from flows.export.exports import WAITING, Exports, opened
from flows.export.json_lines import JSONLines
from flows.export.otlp import OTLP
from flows.record import Action, Flow
from flows.server.settings import Settings
from flows.written import read_line
from libcalico.errors import MuslinError
from libcalico.process import tasks
from tests.flows.running import NOW, aggregator
from tests.flows.test_client import DB, START, WEB, WORLD, deliver, flow
from tests.support.patience import until


def some(count: int) -> list[Flow]:
    return [flow(WEB, DB, port=1000 + number) for number in range(count)]


def lines(file: Path) -> list[Flow]:
    return [read_line(line) for line in file.read_bytes().splitlines()]


def written(file: Path) -> int:
    """How many lines there are while a thread still writes: the last one may not be whole."""
    return file.read_bytes().count(b"\n")


@pytest.mark.asyncio
async def test_what_is_complete_is_written_once(tmp_path: Path) -> None:
    file = tmp_path / "flows.json"
    settings = Settings(port=0, health=False, export_file=str(file))
    async with aggregator(settings) as running:
        await deliver(running, [flow(WEB, DB, start=NOW), flow(WEB, DB, start=NOW + 15)])
        async with tasks.beside(running.process.exports.run(), name="exports"):
            await running.pass_time(30)
            await running.pass_time(1)
            await running.process.exports.written()
    assert [one.start for one in lines(file)] == [NOW]


def test_files_are_rotated_and_bounded(tmp_path: Path) -> None:
    file = tmp_path / "flows.json"
    export = JSONLines(str(file), 10_000, 3)
    for number in range(20):
        export.write(some(20)[number:] + some(20)[:number])
    export.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "flows.json", "flows.json.1", "flows.json.2",
    ]  # fmt: skip
    for path in tmp_path.iterdir():
        assert len(lines(path)) % 20 == 0
        assert path.stat().st_size < 30_000


def test_one_file_alone_begins_anew(tmp_path: Path) -> None:
    file = tmp_path / "flows.json"
    export = JSONLines(str(file), 10_000, 1)
    for _ in range(5):
        export.write(some(30))
    export.close()
    assert [path.name for path in tmp_path.iterdir()] == ["flows.json"]
    assert len(lines(file)) == 30


def test_half_a_line_of_a_killed_process_is_ended(tmp_path: Path) -> None:
    file = tmp_path / "flows.json"
    file.write_bytes(b'{"start_time": 18')
    export = JSONLines(str(file), 10_000, 3)
    export.write(some(1))
    export.close()
    half, whole = file.read_bytes().splitlines()
    assert half == b'{"start_time": 18'
    assert read_line(whole) == some(1)[0]


def test_half_a_line_of_a_full_disk_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, write = tmp_path / "flows.json", os.write
    export = JSONLines(str(file), 10_000, 3)

    def full(handle: int, data: memoryview) -> int:
        monkeypatch.setattr(os, "write", none)
        return write(handle, data[:17])

    def none(handle: int, data: memoryview) -> int:
        raise OSError("no space left")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="no space left"):
        export.write(some(1))
    monkeypatch.undo()
    export.write(some(1))
    export.close()
    half, whole = file.read_bytes().splitlines()
    assert len(half) == 17
    assert read_line(whole) == some(1)[0]


def test_a_file_that_cannot_be_put_aside_stays_in_use(tmp_path: Path) -> None:
    file, aside = tmp_path / "flows.json", tmp_path / "flows.json.1"
    export = JSONLines(str(file), 10_000, 2)
    export.write(some(30))
    aside.mkdir()
    for _ in range(2):
        with pytest.raises(IsADirectoryError):
            export.write(some(1))
    aside.rmdir()
    export.write(some(1))
    export.close()
    assert (len(lines(aside)), len(lines(file))) == (30, 1)


def test_nothing_is_written_to_a_file_that_was_given_back(tmp_path: Path) -> None:
    export = JSONLines(str(tmp_path / "flows.json"), 10_000, 2)
    export.close()
    # The number of its descriptor is another file's by now.
    other = os.open(tmp_path / "other", os.O_WRONLY | os.O_CREAT)
    try:
        with pytest.raises(OSError, match="Bad file descriptor"):
            export.write(some(1))
        assert not os.fstat(other).st_size
    finally:
        os.close(other)


class Stuck:
    """An export that waits until it is let go, or fails."""

    name = "stuck"

    def __init__(self) -> None:
        self.began, self.go = threading.Event(), threading.Event()
        self.fails = False

    def write(self, flows: Sequence[Flow]) -> None:
        self.began.set()
        self.go.wait()
        if self.fails:
            raise OSError("no space left")

    def close(self) -> None:
        return


@pytest.mark.asyncio
async def test_a_slow_export_holds_up_no_other_and_loses_a_number(tmp_path: Path) -> None:
    stuck, file = Stuck(), tmp_path / "flows.json"
    exports = Exports([stuck, JSONLines(str(file), 10**6, 2)])
    store = Store(START)
    for one in some(3):
        store.receive(one, "n1", START)
    (bucket,) = store.ring.between(START, START + 1)
    async with tasks.beside(exports.run(), name="exports"):
        exports.offer([bucket])
        await until(lambda: written(file) == 3, "the other export writes")
        exports.offer([bucket] * WAITING)
        await until(lambda: written(file) == 3 * (WAITING + 1), "it goes on")
        exports.offer([bucket])
        assert exports.lost() == {"stuck": 3, "file": 0}
        stuck.fails = True
        stuck.go.set()
        await until(lambda: exports.lost()["stuck"] == 3 * (WAITING + 2), "all are counted")
        assert exports.problems == {"stuck": "no space left"}
        await until(lambda: written(file) == 3 * (WAITING + 2), "the last one, too")
    exports.close()
    assert len(lines(file)) == 3 * (WAITING + 2)


@pytest.mark.asyncio
async def test_an_export_that_is_cancelled_counts_what_it_did_not_write(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """FLW-5: what a thread fails to write after that, and what waited."""
    stuck = Stuck()
    exports = Exports([stuck])
    store = Store(START)
    for one in some(3):
        store.receive(one, "n1", START)
    (bucket,) = store.ring.between(START, START + 1)
    async with tasks.beside(exports.run(), name="exports"):
        exports.offer([bucket] * 3)
        await until(lambda: stuck.began.is_set(), "one is in the thread")
    stuck.fails = True
    exports.close()
    assert exports.lost() == {"stuck": 6}
    assert "6 flows that waited are lost" in caplog.text
    stuck.go.set()
    await until(lambda: exports.lost()["stuck"] == 9, "the one in the thread, too")


@pytest.mark.asyncio
async def test_an_export_that_had_no_thread_yet_counts_what_it_took() -> None:
    """FLW-5: it was cancelled while all threads were busy."""
    stuck, busy = Stuck(), Stuck()
    exports = Exports([stuck])
    store = Store(START)
    for one in some(3):
        store.receive(one, "n1", START)
    (bucket,) = store.ring.between(START, START + 1)
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as threads:
        loop.set_default_executor(threads)
        held = loop.run_in_executor(None, busy.write, [])
        async with tasks.beside(exports.run(), name="exports"):
            exports.offer([bucket, bucket])
            (worker,) = exports._workers
            await until(lambda: worker.queue.qsize() == 1, "it takes the first one")
        exports.close()
        busy.go.set()
        await held
    assert not stuck.began.is_set()
    assert exports.lost() == {"stuck": 6}


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes OTLP logs, or refuses them."""

    def do_POST(self) -> None:
        body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.got.append((self.path, body))  # type: ignore[attr-defined]
        self.send_response(self.server.status)  # type: ignore[attr-defined]
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def collector() -> Iterator[http.server.HTTPServer]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Collector)
    server.got, server.status = [], 200  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def test_otlp_logs_reach_a_collector(collector: http.server.HTTPServer) -> None:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    export = OTLP(f"http://127.0.0.1:{collector.server_port}/")
    export.write(list(WORLD.values()))
    export.close()
    ((path, body),) = collector.got  # type: ignore[attr-defined]
    assert path == "/v1/logs"
    (resource,) = ExportLogsServiceRequest.FromString(body).resource_logs
    assert "calico-goldmane" in str(resource.resource)
    records = resource.scope_logs[0].log_records
    assert [read_line(one.body.string_value) for one in records] == list(WORLD.values())
    for one, sent in zip(records, WORLD.values(), strict=True):
        attributes = {each.key: each.value for each in one.attributes}
        assert one.time_unix_nano == sent.start * 10**9
        assert one.severity_text == ("WARN" if sent.key.action is Action.DENY else "INFO")
        assert attributes["flow.dest_port"].int_value == sent.key.port
        assert attributes["flow.source_name"].string_value == sent.key.source.name


def test_many_flows_are_several_requests(collector: http.server.HTTPServer) -> None:
    export = OTLP(f"http://127.0.0.1:{collector.server_port}")
    export.write(some(1001))
    export.close()
    assert len(collector.got) == 3  # type: ignore[attr-defined]


def test_a_collector_that_refuses_is_named(collector: http.server.HTTPServer) -> None:
    collector.status = 400  # type: ignore[attr-defined]
    address = f"http://127.0.0.1:{collector.server_port}"
    export = OTLP(address)
    with pytest.raises(MuslinError, match=f"{address} did not take 5 of 5 flows"):
        export.write(list(WORLD.values()))
    export.close()


def test_without_the_extra_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(MuslinError, match=r"pip install 'muslin\[otlp\]'"):
        opened("", 0, 0, "http://127.0.0.1:1")


def test_without_exports_nothing_is_written() -> None:
    exports = opened("", 0, 0, "")
    assert exports.lost() == {}
    asyncio.run(exports.run())
