"""FLG-1, FLG-2: on and off by the parameters; what lacks is said."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from felix.config.parameters import Config
from felix.flows import flow_logs
from felix.flows.flow_logs import FlowLogs, interval, wanted_outputs
from felix.flows.outputs import Outputs, Wanted
from felix.rules.nflog_prefix import Tell
from libcalico.process import prometheus_text
from linux import sysctl
from linux.errors import KernelError
from tests.support.patience import until

OFF = Config()
ON = replace(OFF, flow_logs_local_reporter="Enabled")


class _Telling:
    refused = ""

    def __init__(self) -> None:
        self.joined: dict[Any, Tell] = {}

    def join(self, listener: Any, tell: Tell) -> None:
        if self.refused:
            raise KernelError(16, self.refused)
        self.joined[listener] = tell

    def leave(self, listener: Any) -> None:
        self.joined.pop(listener, None)


class _Plane:
    def __init__(self) -> None:
        from felix.calc.graph import Calculator

        self.calc = Calculator("n1")


def made(folder: Path) -> tuple[FlowLogs, _Telling]:
    telling = _Telling()
    outputs = Outputs("n1", folder / "no.sock", folder / "flows.log")
    plane: Any = _Plane()
    reader: Any = telling
    return FlowLogs("n1", plane, reader, {}, folder / "mark", outputs), telling


@pytest.fixture(autouse=True)
def setting(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The kernel's setting, which is the machine's here: nothing of a test may touch it."""
    there = {"value": "0"}
    monkeypatch.setattr(sysctl, "get", lambda name: there["value"])
    monkeypatch.setattr(sysctl, "set", lambda name, value: there.update(value=str(value)))
    return there


def test_the_parameters_say_where_flows_go() -> None:
    assert not wanted_outputs(OFF)
    assert wanted_outputs(ON) == Wanted(local=True)
    files = replace(OFF, typha_ca_file="ca", typha_cert_file="cert", typha_key_file="key")
    assert not wanted_outputs(files), "the files alone ask for nothing"
    far = replace(files, flow_logs_goldmane_server="goldmane:7443")
    assert wanted_outputs(far) == Wanted("goldmane:7443", "ca", "cert", "key")


@pytest.mark.parametrize(
    ("seconds", "far", "each"), [(300, "", 300), (1, "", 1), (1, "g:1", 15), (31, "g:1", 45)]
)
def test_the_aggregator_gets_whole_buckets(seconds: float, far: str, each: float) -> None:
    config = replace(OFF, flow_logs_flush_interval=seconds, flow_logs_goldmane_server=far)
    assert interval(config) == each


def test_off_is_as_if_it_were_not_there(tmp_path: Path, setting: dict[str, str]) -> None:
    async def story() -> None:
        logs, telling = made(tmp_path)
        logs.configure(OFF)
        assert not logs.on
        assert (telling.joined, setting["value"]) == ({}, "0")
        assert (list(logs.figures()), logs.conditions()) == ([], [])
        logs.changed()
        logs.configure(ON)
        assert list(telling.joined.values()) == [Tell.FLOWS]
        assert setting["value"] == "1"
        logs.configure(replace(ON, flow_logs_flush_interval=5.0))
        assert len(telling.joined) == 1
        logs.configure(OFF)
        assert (logs.on, telling.joined, setting["value"]) == (False, {}, "0")
        logs.stop()

    asyncio.run(story())


def test_a_felix_that_ends_leaves_the_kernel_as_it_is(
    tmp_path: Path, setting: dict[str, str]
) -> None:
    async def story() -> None:
        logs, _ = made(tmp_path)
        logs.configure(ON)
        logs.stop()
        assert setting["value"] == "1"
        later, _ = made(tmp_path)
        later.configure(OFF)
        assert setting["value"] == "0", "one that starts without flow logs puts it back"

    asyncio.run(story())


def test_what_lacks_is_a_number_and_a_condition(tmp_path: Path) -> None:
    async def story() -> None:
        logs, telling = made(tmp_path)
        telling.refused = "NFLOG group 1"
        logs.configure(ON)
        assert logs.conditions() == [
            ("flow logs", "NFLOG group 1: Device or resource busy (EBUSY)")
        ]
        logs.lost.packets += 5
        logs._look_at_losses()
        said = [reason for _, reason in logs.conditions()]
        assert any("5 first packets were not told of" in reason for reason in said)
        page = prometheus_text.text(logs.figures())
        assert 'muslin_felix_flows_lost_total{what="packets"} 5.0' in page
        logs._look_at_losses()
        assert not any("first packets" in reason for _, reason in logs.conditions())
        logs.stop()

    asyncio.run(story())


def test_another_program_may_give_back_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_logs, "RETRY", 0.01)

    async def story() -> None:
        logs, telling = made(tmp_path)
        telling.refused = "NFLOG group 1"
        logs.configure(ON)
        telling.refused = ""
        await until(lambda: telling.joined)
        assert logs.conditions() == []
        logs.stop()

    asyncio.run(story())
