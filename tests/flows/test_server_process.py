"""The program `calico-goldmane` as a process: start, health, metrics, signals, bad settings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from flows.client import Aggregator
from flows.place import Place
from flows.query import FlowQuery
from flows.record import Flow
from flows.sending import Sender
from libcalico.process import tasks
from tests.flows.test_client import DB, WEB, flow
from tests.support.patience import HANG, until, wait_for
from tests.support.ports import free_ports

PROGRAM = [sys.executable, "-m", "flows.server.main"]


@contextmanager
def started(**environ: str) -> Iterator[subprocess.Popen[str]]:
    """The process, ended by SIGTERM."""
    process = subprocess.Popen(PROGRAM, env=os.environ | environ, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


def page(port: int, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=HANG) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def recent(number: int) -> list[Flow]:
    start = int(time.time()) // 15 * 15 - 30
    return [flow(WEB, DB, port=1000 + port, start=start) for port in range(number)]


@pytest.mark.asyncio
async def test_a_process_that_serves_until_it_is_told_to_end() -> None:
    port, health = free_ports(2)
    settings = {"PORT": str(port), "HEALTH_PORT": str(health), "GOLDMANE_WITHOUT_TLS": "true"}
    with started(**settings) as process:
        wait_for(lambda: "ready" in page(health, "readiness"), "it is ready")
        place = Place(f"127.0.0.1:{port}")
        sender = Sender(place, "n1")
        async with tasks.beside(sender.run(), name="sender"):
            sender.offer(recent(7))
            await until(lambda: sender.counters.received == 7, "every receipt")
        async with Aggregator(place) as goldmane:
            assert (await goldmane.list(FlowQuery())).total == 7
        assert "alive" in page(health, "liveness")
        assert "goldmane_aggr_received_flows_total 7" in page(health, "metrics")
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANG) == 0


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "SERVER_CERT_PATH"),
        ({"GOLDMANE_WITHOUT_TLS": "true", "PORT": "x"}, "PORT: 'x' is not valid"),
        (
            {"GOLDMANE_WITHOUT_TLS": "true", "GOLDMANE_EXPORT_FILE": "/none/flows.json"},
            "GOLDMANE_EXPORT_FILE: /none/flows.json",
        ),
    ],
)
def test_what_it_cannot_do_is_one_line(environ: dict[str, str], said: str) -> None:
    done = subprocess.run(
        PROGRAM, env=os.environ | environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_named() -> None:
    port, one, other = free_ports(3)
    settings = {"PORT": str(port), "GOLDMANE_WITHOUT_TLS": "true"}
    with started(**settings, HEALTH_PORT=str(one)):
        wait_for(lambda: "ready" in page(one, "readiness"), "the first is ready")
        done = subprocess.run(
            PROGRAM,
            env=os.environ | settings | {"HEALTH_PORT": str(other)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert f"cannot listen on [::]:{port}" in done.stderr


def test_help_names_every_variable() -> None:
    done = subprocess.run([*PROGRAM, "--help"], capture_output=True, text=True, check=True)
    for name in ("PORT", "CA_CERT_PATH", "GOLDMANE_ASKERS", "GOLDMANE_OTLP_ENDPOINT"):
        assert name in done.stdout
