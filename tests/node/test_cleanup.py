"""`calico-node cleanup --force` under agents that live: done, and it says that they write again."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from libcalico import paths
from libcalico.errors import MuslinError
from node import cleanup
from tests.support.netns import network_namespace


def test_forced_under_living_agents_it_says_that_they_write_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    monkeypatch.setattr(paths, "RUN", run)
    monkeypatch.setattr(paths, "LIB", tmp_path / "lib")
    monkeypatch.setattr(cleanup, "AGENTS", {run / "node.sock": "calico-felix"})
    said: list[str] = []
    listening = socket.socket(socket.AF_UNIX)
    with listening, network_namespace("clean") as space, space.entered():
        listening.bind(str(run / "node.sock"))
        listening.listen()
        with pytest.raises(MuslinError, match=r"calico-felix runs: .*use --force"):
            asyncio.run(cleanup.clean({}, keep_cni=True, say=said.append))
        assert said == []
        asyncio.run(cleanup.clean({}, force=True, keep_cni=True, say=said.append))
    assert said[-1] == (
        "still running, will write everything again: calico-felix; end that, then clean up again"
    )
