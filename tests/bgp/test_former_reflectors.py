"""Nodes that reflect no more: how long they count, and that no route is missing meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bgp.agent.saved_decisions import SavedDecisions
from bgp.cluster.view import ClusterView
from bgp.decide.former_reflectors import FormerReflectors
from bgp.decide.make_before_break import LIMIT
from bgp.peering import reflectors
from libcalico.model.keys import ResourceKey
from tests.bgp import make
from tests.bgp.agents import Cluster, affinity, node, resource
from tests.size import examples
from tests.support.patience import until

POOL = resource("IPPool", "pool", {"cidr": "10.65.0.0/16"})
NUMBERS = (1, 2, 3, 4)
NODES = [node(number) for number in NUMBERS]
BLOCKS = [affinity(f"n{number}", f"10.65.{number}.0/26") for number in NUMBERS]
NO_MESH = resource("BGPConfiguration", "default", {"nodeToNodeMeshEnabled": False})
BY_LABEL = resource("BGPPeer", "rr", {"peerSelector": "rr == 'yes'"})
MESH = [(ResourceKey("BGPConfiguration", "default"), None), *NODES, (BY_LABEL[0], None)]


def by_hand(*numbers: int, cluster: str = "") -> list[tuple[Any, Any]]:
    """These nodes reflect, and no others."""
    chosen = [
        node(number, routeReflectorClusterID=cluster or f"1.0.0.{number}", labels={"rr": "yes"})
        for number in numbers
    ]
    return [NO_MESH, BY_LABEL, *(each for each in NODES if each[0] not in dict(chosen)), *chosen]


AUTOMATIC = resource(
    "BGPConfiguration",
    "default",
    {},
    annotations={"muslin/automatic-reflectors": "above=3 count=1"},
)


def losses(cluster: Cluster) -> list[tuple[str, Any]]:
    """The routes that a node loses from now on."""
    lost: list[tuple[str, Any]] = []
    for name, agent in cluster.agents.items():

        def publish(changes: Any, name: str = name, agent: Any = agent) -> None:
            lost.extend((name, prefix) for prefix, path in changes if path is None)
            type(agent.publisher).publish(agent.publisher, changes)

        agent.routing._publish = publish
    return lost


@pytest.mark.asyncio
@pytest.mark.promise("PAIN-15")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (by_hand(3), MESH),
        ([AUTOMATIC], MESH[:1]),
        (by_hand(1), by_hand(2)),
        (by_hand(1, 2), by_hand(3)),
        (by_hand(4), [*MESH, AUTOMATIC]),
        (by_hand(1), by_hand(2, cluster="1.0.0.1")),
        (by_hand(1, 2, cluster="1.0.0.1"), by_hand(3, 4, cluster="1.0.0.1")),
    ],
    ids=[
        *("to the mesh", "automatic, to the mesh", "another", "one for two", "to automatic"),
        *("another of the same cluster", "two others of the same cluster"),
    ],
)
async def test_what_a_former_reflector_passes_on_stays(
    before: list[tuple[Any, Any]], after: list[tuple[Any, Any]]
) -> None:
    """The nodes hear of the change one after the other; each table stays whole throughout."""
    cluster = Cluster()
    for number in NUMBERS:
        cluster.add(f"n{number}")
    await cluster.say(POOL, *NODES, *BLOCKS, *before)
    lost = losses(cluster)
    agents = cluster.agents
    for name, agent in agents.items():
        cluster.agents = {name: agent}
        await cluster.say(*after)
    cluster.agents = agents
    assert lost == []
    assert all(agent.view.former for agent in agents.values())
    for name, agent in agents.items():
        agent.decisions.former._former = {
            each: (own, 0.0) for each, (own, _) in agent.decisions.former._former.items()
        }
        agent._timer.set()
        await until(lambda agent=agent: not agent.view.former)  # type: ignore[misc]
        own = f"10.65.{name[1:]}.0/26"
        others = {f"10.65.{number}.0/26": [f"10.0.0.{number}"] for number in NUMBERS}
        assert cluster.table(name) == {net: hop for net, hop in others.items() if net != own}
    await asyncio.sleep(0)
    assert lost == []
    await cluster.stop()


@pytest.mark.asyncio
@pytest.mark.promise("PAIN-15")
@pytest.mark.parametrize("first", ["joins", "hears of it"])
async def test_a_second_reflector_of_a_cluster_loses_no_route(first: str) -> None:
    """RFL-6: it refuses what the first one reflected only when it had time for its sessions."""
    cluster = Cluster()
    for number in NUMBERS:
        cluster.add(f"n{number}")
    await cluster.say(POOL, *NODES, *BLOCKS, *by_hand(1))
    lost, agents = losses(cluster), cluster.agents
    order = ["n2", "n1", "n3", "n4"] if first == "joins" else ["n4", "n3", "n1", "n2"]
    both, second = by_hand(1, 2, cluster="1.0.0.1"), by_hand(2, cluster="1.0.0.1")
    for settings_then in (both, second):
        for name in order:
            cluster.agents = {name: agents[name]}
            await cluster.say(*settings_then)
    cluster.agents = agents
    assert lost == []
    assert agents["n2"].view.fresh == {"n2"}
    await cluster.stop()


@pytest.mark.asyncio
@pytest.mark.promise("PAIN-15")
@pytest.mark.parametrize("order", [(1, 2, 3, 4), (4, 3, 2, 1), (2, 1, 4, 3), (3, 4, 1, 2)])
@pytest.mark.parametrize(
    "joining",
    [{3: "2.0.0.2", 4: "2.0.0.2"}, {2: "1.0.0.1"}, {2: "2.0.0.2", 3: "1.0.0.1"}],
    ids=["its new one", "its former one", "both"],
)
async def test_a_reflector_with_another_cluster_id_loses_no_route(
    joining: dict[int, str], order: tuple[int, ...]
) -> None:
    """RFL-6: others join its cluster meanwhile, also where they hear of its id before itself."""
    cluster = Cluster()
    for number in NUMBERS:
        cluster.add(f"n{number}")
    await cluster.say(POOL, *NODES, *BLOCKS, *by_hand(1))
    lost, agents = losses(cluster), cluster.agents
    reflect = [
        node(number, routeReflectorClusterID=own, labels={"rr": "yes"})
        for number, own in {1: "2.0.0.2", **joining}.items()
    ]
    for number in order:
        cluster.agents = {f"n{number}": agents[f"n{number}"]}
        await cluster.say(*reflect)
    cluster.agents = agents
    assert lost == []
    await cluster.say((BLOCKS[3][0], None))
    assert all("10.65.4.0/26" not in cluster.table(name) for name in ("n1", "n2", "n3"))
    await cluster.stop()


@pytest.mark.asyncio
@pytest.mark.parametrize("when", ["before the restart", "meanwhile"])
async def test_a_restart_knows_former_reflectors(tmp_path: Path, when: str) -> None:
    """RFL-5: also of an agent that was not there when they ceased to reflect."""
    memory = tmp_path / "last.json"
    cluster = Cluster()
    cluster.add("n2", memory=SavedDecisions(memory))
    await cluster.say(POOL, *BLOCKS, *by_hand(1))
    if when == "before the restart":
        await cluster.say(*MESH)
    await cluster.stop()
    cluster = Cluster()
    again = cluster.add("n2", memory=SavedDecisions(memory))
    await cluster.say(POOL, *BLOCKS, *MESH)
    assert again.view.former == {"n1": "1.0.0.1"}
    assert (remaining := again.decisions.former.next_check()) is not None
    assert remaining <= asyncio.get_running_loop().time() + LIMIT
    await cluster.stop()


@pytest.mark.asyncio
async def test_a_reflector_that_joined_does_so_after_a_restart(tmp_path: Path) -> None:
    """RFL-6: its sessions are no more up than before, and it still counts as a client."""
    memory = tmp_path / "last.json"
    cluster = Cluster()
    cluster.add("n2", memory=SavedDecisions(memory))
    await cluster.say(POOL, *BLOCKS, *by_hand(1))
    await cluster.say(*by_hand(1, 2, cluster="1.0.0.1"))
    await cluster.stop()
    cluster = Cluster()
    again = cluster.add("n2", memory=SavedDecisions(memory))
    await cluster.say(POOL, *BLOCKS, *by_hand(1, 2, cluster="1.0.0.1"))
    assert again.view.fresh == {"n2"}
    await cluster.stop()


numbers = st.sampled_from([1, 2, 3])
steps = st.tuples(st.sampled_from(["reflects", "is plain", "goes"]), numbers, st.integers(0, 60))


@given(st.lists(steps, max_size=15))
@settings(max_examples=examples(200))
def test_each_counts_for_so_long_after_it_was_chosen(history: list[tuple[str, int, int]]) -> None:
    """RFL-5, RFL-6."""
    view, former, now = ClusterView("n9"), FormerReflectors(limit=100), 0.0
    last: dict[str, tuple[str, float]] = {}
    """Of each node: the cluster id that it had last, and until when."""
    begun: dict[str, float] = {}
    """Of each reflector: since when."""
    for step, (verb, number, wait) in enumerate(history):
        now += wait
        name, own = f"n{number}", f"1.0.0.{number}"
        before = reflectors.chosen(view).keys()
        last |= {name: (own, now) for name, own in reflectors.chosen(view).items()}
        if verb == "goes":
            view.apply(ResourceKey("Node", name), None)
        else:
            more = {"routeReflectorClusterID": own} if verb == "reflects" else {}
            make.node(view, number, **more)
        former.follow(view, now)
        after = reflectors.chosen(view).keys()
        began = -100.0 if step == 0 else now  # the start knows no before
        begun = {name: begun.get(name, began) if name in before else began for name in after}
        last = {name: one for name, one in last.items() if name in view.nodes}
        wanted = {name: own for name, (own, since) in last.items() if since + 100 > now}
        chosen = reflectors.chosen(view)
        assert reflectors.cluster_ids(view) == wanted | chosen
        lingering = [last[name][1] + 100 for name in wanted.keys() - chosen.keys()]
        joining = {name: since + 100 for name, since in begun.items() if since + 100 > now}
        assert view.fresh == joining.keys()
        assert former.next_check() == min([*lingering, *joining.values()], default=None)
