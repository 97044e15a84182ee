"""The endpoint status files that Calico's CNI plugin waits for."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path

import pytest

from felix.agent import Agent, Paths
from felix.calc.endpoints import Endpoint
from felix.debouncer import Debouncer
from felix.reports.endpoint_status import EndpointStatus
from libcalico.model import ResourceKey
from tests.support.patience import HANG


def endpoint(name: str, interface: str) -> Endpoint:
    key = ResourceKey("WorkloadEndpoint", name, "default")
    networks = (ip_network("10.65.0.1/32"),)
    return Endpoint(key, "c", interface, networks, "", (), "k8s", f"default/{name}", "eth0")


def test_files_follow_the_endpoints_in_force(tmp_path: Path) -> None:
    folder = tmp_path / "endpoint-status"
    status = EndpointStatus(str(tmp_path))
    status.update([endpoint("pod1", "cali1")])
    path = folder / "k8s default%2Fpod1 eth0"
    assert json.loads(path.read_text()) == {"ifaceName": "cali1", "ipv4Nets": ["10.65.0.1/32"]}
    again = EndpointStatus(str(tmp_path))
    (folder / "k8s default%2Fstale eth0").write_text("{}")
    before = path.stat().st_mtime_ns
    again.update([endpoint("pod1", "cali1")])
    assert [entry.name for entry in folder.iterdir()] == [path.name]
    assert path.stat().st_mtime_ns == before
    again.update([endpoint("pod1", "cali2")])
    assert json.loads(path.read_text())["ifaceName"] == "cali2"
    again.update([])
    assert list(folder.iterdir()) == []
    assert list(tmp_path.iterdir()) == [folder]


def test_a_file_goes_at_once_with_what_it_says_and_comes_when_there_is_time(
    tmp_path: Path,
) -> None:
    folder, status = tmp_path / "endpoint-status", EndpointStatus(str(tmp_path))

    def files() -> set[str]:
        return {path.name.split("%2F")[1].split()[0] for path in folder.iterdir()}

    one, two, three = (endpoint(f"pod{n}", f"cali{n}") for n in (1, 2, 3))
    status.update([one, two])
    status.remove({one.key: one, three.key: three}, {three.key})
    assert files() == {"pod1", "pod2"}, "nothing is said of it"
    status.remove({one.key: one, three.key: three}, {two.key, three.key})
    assert files() == {"pod1"}
    # With what does not stand in the file all is well; what stands there must be so.
    again = replace(one, profiles=("other",))
    status.remove({one.key: again}, None)
    assert files() == {"pod1"}
    status.remove({one.key: replace(one, interface="cali9")}, None)
    assert files() == set()
    status.update([again, three])
    assert files() == {"pod1", "pod3"}
    status.remove({}, None)
    assert files() == set()


@pytest.mark.asyncio
async def test_felix_removes_files_in_the_turn_and_all_of_them_at_its_end(tmp_path: Path) -> None:
    where = Paths(tmp_path / "sock", tmp_path / "cfg", tmp_path / "status")
    agent = Agent("n1", {"FELIX_ENDPOINTSTATUSPATHPREFIX": str(tmp_path)}, where)
    state, folder = agent.dataplane.state, tmp_path / "endpoint-status"
    one, two = (endpoint(f"pod{n}", f"cali{n}") for n in (1, 2))

    def turn(*in_force: Endpoint) -> list[str]:
        state.settle_some({one.key, two.key}, {each.key: each for each in in_force})
        agent._published()
        return sorted(path.name.split("%2F")[1].split()[0] for path in folder.iterdir())

    state.applied = True
    folder.mkdir()
    (folder / "k8s default%2Fstale eth0").write_text("{}")
    assert turn(one) == ["pod1"], "what another felix left goes at once too"
    assert turn(one, two) == ["pod1"]
    assert turn(two) == []
    assert turn(one, two) == []
    (folder / "k8s default%2Fleft eth0").write_text("{}")
    agent.endpoint_status.stop()
    assert not folder.exists(), "EPF-2: also what another felix left"


@pytest.mark.parametrize("length", [231, 232, 253])
def test_a_name_too_long_for_a_file_stops_no_other(
    tmp_path: Path, length: int, caplog: pytest.LogCaptureFixture
) -> None:
    """`k8s default%2F` and ` eth0` are 19 bytes: 236 are left for the pod's name."""
    folder, status = tmp_path / "endpoint-status", EndpointStatus(str(tmp_path))
    long, last = endpoint("p" * length, "cali1"), endpoint("pod2", "cali2")
    for _ in range(2):
        status.update([long, last])
        names = {path.name for path in folder.iterdir()}
        assert "k8s default%2Fpod2 eth0" in names
    fits = length <= 236
    assert len(names) == 1 + fits
    assert len(status.problems) == len(caplog.records) == (not fits)
    assert not status.again, "it never will be possible"
    status.update([last])
    assert status.problems == []
    assert [path.name for path in folder.iterdir()] == ["k8s default%2Fpod2 eth0"]


def test_a_file_that_cannot_be_written_stops_only_itself_and_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, status = tmp_path / "endpoint-status", EndpointStatus(str(tmp_path))
    status.update([])
    in_the_way = folder / "k8s default%2Fpod1 eth0"
    (in_the_way / "x").mkdir(parents=True)
    pods = [endpoint(f"pod{n}", f"cali{n}") for n in (1, 2, 3)]
    for _ in range(2):
        status.update(pods)
    assert sorted(p.name for p in folder.iterdir() if p.is_file()) == [
        "k8s default%2Fpod2 eth0",
        "k8s default%2Fpod3 eth0",
    ]
    assert len(caplog.records) == 1
    assert status.again
    EndpointStatus(str(tmp_path)).update(pods[1:])
    (in_the_way / "x").rmdir()
    in_the_way.rmdir()
    status.update(pods)
    assert in_the_way.is_file()
    assert (status.problems, status.again) == ([], False)


def test_without_a_prefix_or_with_a_bad_one_nothing_happens(tmp_path: Path) -> None:
    EndpointStatus("").update([endpoint("pod1", "cali1")])
    (tmp_path / "file").touch()
    EndpointStatus(str(tmp_path / "file")).update([endpoint("pod1", "cali1")])


@pytest.mark.asyncio
async def test_what_can_wait_is_done_after_a_burst_and_in_a_long_one() -> None:
    done: list[float] = []
    clock, called = asyncio.get_running_loop().time, asyncio.Event()

    def act() -> None:
        done.append(clock())
        called.set()

    later = Debouncer(act, quiet=0.1, latest=0.4)
    later.moved()
    later.moved()
    # Before the last one: the process may stand still behind it.
    moved = clock()
    later.moved()
    assert not done
    await called.wait()
    assert len(done) == 1
    assert done[0] > moved + 0.09
    until = clock() + HANG
    while len(done) == 1 and clock() < until:
        later.moved()
        await asyncio.sleep(0.01)
    assert len(done) == 2, "it never was quiet"
    later.moved()
    later.stop()
    await asyncio.sleep(0.3)
    assert len(done) == 2, "what is due at the end is dropped"
