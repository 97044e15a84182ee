"""`calico-node -felix-live ...`: the probes of Calico's manifests ask our agents."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from libcalico.process.health import HealthServer, Reporter
from node import probes
from tests.support import unhurried

PROGRAM = unhurried.command("node.main", "node.probes:LIMIT")


@asynccontextmanager
async def agents(*, felix: bool, bird: bool) -> AsyncIterator[dict[str, str]]:
    """Two health servers; yields the environment that names their ports."""
    async with (
        HealthServer("localhost", 0, [Reporter("dataplane", ready=felix)], metrics=False) as one,
        HealthServer("localhost", 0, [Reporter("sessions", ready=bird)], metrics=False) as two,
    ):
        yield {"FELIX_HEALTHPORT": str(one.port), "CALICO_BGP_HEALTH_PORT": str(two.port)}


def ask(environ: dict[str, str], *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True, text=True, check=False, env={**os.environ, **environ},
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("felix", "bird", "arguments", "backend", "status", "told"),
    [
        (True, True, ("-felix-live", "-felix-ready", "-bird-ready", "-bird6-ready"), "bird", 0, ""),
        (False, True, ("-felix-live", "-bird-live"), "bird", 0, ""),
        (False, True, ("--felix-ready", "--bird-ready"), "bird", 1, "not ready: felix: 503"),
        (True, False, ("-felix-ready", "-bird-ready"), "bird", 1, "not ready: bird: 503"),
        (True, False, ("-felix-ready", "-bird-ready", "--threshold-time=30s"), "vxlan", 0, ""),
    ],
)
def test_answers(
    felix: bool, bird: bool, arguments: tuple[str, ...], backend: str, status: int, told: str
) -> None:
    async def body() -> tuple[int, str]:
        async with agents(felix=felix, bird=bird) as environ:
            environ["CALICO_NETWORKING_BACKEND"] = backend
            return await asyncio.to_thread(ask, environ, *arguments)

    found, said = asyncio.run(body())
    assert (found, told in said) == (status, True), said


def test_nobody_there_is_said() -> None:
    found, said = ask({"FELIX_HEALTHPORT": "1"}, "-felix-live")
    assert found == 1
    assert "calico-node is not live: felix: http://localhost:1/liveness:" in said


def test_other_commands_are_no_probes() -> None:
    assert not probes.asked(["run", "--only", "felix"])
    assert probes.asked(["--bird6-live"]) == [("bird6", "live")]
