"""The picture as a whole: after any history it is what a fresh computation gives."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bgp.cluster.view import PoolView
from bgp.decide.routing import BestPath, Routing
from bgp.routes.audiences import Manner, audiences
from bgp.routes.export_policy import Terms
from bgp.routes.local_routes import Kind
from bgp.routes.validity import Facts
from bgp.speaker.interface import Announced, Attributes, Family, IPAddress, PathsReceived, Withdrawn
from tests.bgp.make import claim, net, source, view_of

NETS = [net(f"10.65.{number}.0/26") for number in range(1, 4)] + [net("10.65.2.5/32")]
SOURCES = [source(2), source(3, client=True), source(99, internal=False)]
POOL = PoolView(net("10.65.0.0/16"), True)
SERVICE = net("10.65.3.0/26")


def told(*peers: tuple[IPAddress, Manner], cluster: str = "", drain: bool = False) -> Terms:
    return Terms(audiences(peers), (POOL,), cluster_id=cluster, draining=drain)


FOUR = (Family.IPV4,)
MANNERS = [Manner(FOUR, True), Manner(FOUR, True, client=True), Manner(FOUR, False)]
SESSIONS = [(each.peer, manner) for each, manner in zip(SOURCES, MANNERS, strict=True)]


class World:
    """A `Routing` with a felix that remembers, and the settings by number."""

    def __init__(self) -> None:
        self.felix: dict[Any, BestPath] = {}
        self.routing = Routing(self.felix, self.hear)
        self.view = view_of()

    def hear(self, changes: Any) -> None:
        for prefix, path in changes:
            if path is None:
                self.felix.pop(prefix, None)
            else:
                self.felix[prefix] = path

    def act(self, step: tuple[str, int, int]) -> None:
        verb, one, two = step
        origin, prefix = SOURCES[one % 3], NETS[two]
        if verb == "say":
            message = PathsReceived(
                origin.peer, Attributes(med=one), (Announced(prefix, origin.peer),)
            )
            self.routing.choose(self.routing.rib.update(message, origin))
        elif verb == "unsay":
            message = PathsReceived(origin.peer, Attributes(), (), (Withdrawn(prefix),))
            self.routing.choose(self.routing.rib.update(message, origin))
        elif verb == "have":
            own = {NETS[two]: Kind.BLOCK, SERVICE: Kind.SERVICE} if one % 2 else {}
            self.routing.have(own, frozenset({SERVICE}) if two % 2 else frozenset())
        elif verb == "agree":
            self.routing.agree(
                told(*SESSIONS[: one % 4], cluster="9.9.9.1" * (two % 2), drain=one > 3)
            )
        elif verb == "own":
            claim(self.view, f"n{one % 3 + 1}", str(prefix), "confirmed" if two % 2 else None)
            for network in self.view.touched:
                self.routing.judge_again(self.routing.rib.inside(network))
            self.view.touched.clear()
        elif verb == "facts":
            facts = Facts(self.view, (), frozenset(), frozenset()) if one % 2 else None
            self.routing.intake.facts = facts
            self.routing.judge_again()
        elif verb == "fix":
            self.routing.fix({net("10.9.9.9/32"): origin.peer} if one % 2 else {})

    def fresh(self) -> World:
        """The same state, computed at once."""
        other, mine = World(), self.routing
        other.view = self.view
        other.routing.intake.facts = mine.intake.facts
        for peer in SOURCES:
            for prefix in NETS:
                for entry in mine.rib._paths.get(prefix, ()):
                    raw = entry.raw
                    if raw.source.peer == peer.peer:
                        announced = (Announced(prefix, raw.next_hop),)
                        other.routing.rib.update(
                            PathsReceived(peer.peer, raw.attributes, announced), raw.source
                        )
        other.routing.fixed = dict(mine.fixed)
        other.routing.terms = mine.terms
        other.routing.have(mine.own, mine._kept_here)
        other.routing._kept_here = mine._kept_here
        other.routing.choose([*NETS, net("10.9.9.9/32")])
        return other


verbs = st.sampled_from(["say", "say", "say", "unsay", "have", "agree", "own", "facts", "fix"])
histories = st.lists(st.tuples(verbs, st.integers(0, 5), st.integers(0, 3)), max_size=25)


@given(histories)
def test_any_history_gives_what_a_fresh_computation_gives(
    history: list[tuple[str, int, int]],
) -> None:
    """RTG-1, RIB-3."""
    world = World()
    for step in history:
        world.act(step)
    fresh = world.fresh()
    assert world.felix == fresh.felix
    assert world.routing.offered == fresh.routing.offered
    assert world.routing.routes() == fresh.routing.routes()


def test_services_are_not_routed_to_other_nodes() -> None:
    """RTG-2: own services and whole ranges stay here; another's single address does not."""
    world = World()
    world.act(("say", 0, 2))
    world.act(("say", 0, 3))
    assert set(world.felix) == {NETS[2], NETS[3]}
    world.routing.have({}, frozenset({SERVICE}))
    assert set(world.felix) == {NETS[3]}
    world.routing.have({NETS[3]: Kind.SERVICE}, frozenset())
    assert set(world.felix) == {NETS[2]}


def test_reachable_by() -> None:
    world = World()
    world.act(("fix", 1, 0))
    assert world.felix[net("10.9.9.9/32")].next_hops == (str(SOURCES[1].peer),)
    assert world.felix[net("10.9.9.9/32")].origin == "external"
    world.act(("fix", 0, 0))
    assert world.felix == {}
