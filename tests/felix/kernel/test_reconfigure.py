"""What chooses the parameters of a node is acted on when it is told."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from felix.agent import Agent, Paths
from libcalico.datastore.interface import Entry
from libcalico.datastore.syncer import SyncBatch, Update
from libcalico.model.codec import resource_from_tree
from libcalico.model.keys import ResourceKey


def said(kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> SyncBatch:
    """One object, of a datastore that has been read."""
    tree = {"kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}
    tree["apiVersion"] = "projectcalico.org/v3"
    key = ResourceKey(kind, name)
    return SyncBatch([Update(key, Entry(key, resource_from_tree(tree), 1, b""))], True)


def own(**labels: str) -> SyncBatch:
    """This node."""
    return said("Node", "n1", {"bgp": {"ipv4Address": "10.99.7.1/24"}}, labels=labels)


async def nothing() -> None:
    """No service is waited for."""


@pytest.mark.asyncio
async def test_a_label_that_chooses_parameters_is_acted_on_at_once(tmp_path: Path) -> None:
    """The Node says nothing else that is new, so nothing else asks for a turn of the data plane."""
    agent = Agent("n1", {}, Paths(tmp_path / "sock", tmp_path / "cfg", tmp_path / "status"))
    agent.services = cast("Any", SimpleNamespace(want=lambda _: None, first=nothing))
    turns: list[int] = []
    agent.dataplane.kick = lambda: turns.append(1)  # type: ignore[method-assign]
    await agent.apply_batch(own())
    spec = {"nodeSelector": "rack == 'a'", "routeRefreshInterval": "7s"}
    await agent.apply_batch(said("FelixConfiguration", "rack-a", spec))
    turns.clear()
    await agent.apply_batch(own(rack="a"))
    assert agent.config.route_refresh_interval == 7.0
    assert turns == [1]
    await agent.apply_batch(own(rack="a", other="b"))
    assert turns == [1]
    await agent.apply_batch(own())
    assert agent.config.route_refresh_interval != 7.0
    assert turns == [1, 1]
