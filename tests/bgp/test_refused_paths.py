"""What is refused of a peer is counted and named at a cost that does not grow with it."""

from __future__ import annotations

import time
from ipaddress import ip_network

from hypothesis import given
from hypothesis import strategies as st

from bgp.routes.bestpath import Candidate
from bgp.routes.rib import Rib
from bgp.speaker.interface import Announced, Attributes, Family, IPNetwork, PathsReceived, Withdrawn
from tests.bgp.make import source
from tests.support.patience import HANG

NETS = [ip_network(f"10.65.{number}.0/24") for number in range(6)]
PEER = source(2)


ATTRIBUTES = {
    "good": Attributes(),
    "fault": Attributes(med=1),
    "loop": Attributes(as_path=(64512,), as_path_length=1),
}


def said(
    nets: list[IPNetwork], gone: list[IPNetwork] | None = None, kind: str = "good"
) -> PathsReceived:
    attributes = ATTRIBUTES[kind]
    announced = tuple(Announced(net, PEER.peer) for net in nets)
    return PathsReceived(
        PEER.peer, attributes, announced, tuple(Withdrawn(net) for net in gone or ())
    )


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["fault", "loop", "good", "gone", "rules", "end"]),
            st.sampled_from(NETS),
        ),
        max_size=40,
    )
)
def test_counts_and_names_follow_every_change(steps: list[tuple[str, IPNetwork]]) -> None:
    """Compared with a plain table: paths come, change, go, and the rules change."""
    bad: set[IPNetwork] = set()

    def judge(prefix: IPNetwork, path: Candidate) -> Candidate | str:
        if path.attributes.as_path:
            return "AS loop: 64512 is in the path"
        return f"not ours, {prefix}" if path.attributes.med or prefix in bad else path

    rib, model, looped = Rib(judge), dict[IPNetwork, str](), 0
    for what, net in steps:
        looped += what == "loop" and model.get(net) != "loop"
        if what in ATTRIBUTES:
            rib.update(said([net], kind=what), PEER)
            model[net] = what
        elif what == "gone":
            rib.update(said([], [net]), PEER)
            model.pop(net, None)
        elif what == "end":
            rib.drop(PEER.peer, Family.IPV4)
            model.clear()
        else:
            bad ^= {net}
            rib.judge_again()
        loops = {each for each, kind in model.items() if kind == "loop"}
        faults = {each for each, kind in model.items() if kind == "fault" or each in bad} - loops
        assert rib.refused(PEER.peer) == (len(faults), len(loops))
        assert rib.faults(PEER.peer, 99) == {each: f"not ours, {each}" for each in faults}
        assert len(rib.faults(PEER.peer, 2)) == min(2, len(faults))
        assert rib.rejected == looped


def test_of_a_prefix_with_several_refused_paths_every_reason_is_named() -> None:
    """With ADD-PATH: whichever came last."""
    for first, second in ((1, 2), (2, 1)):
        rib = Rib(lambda prefix, path: f"reason {path.path_id}")
        for path_id in (first, second):
            announced = (Announced(NETS[0], PEER.peer, path_id),)
            rib.update(PathsReceived(PEER.peer, Attributes(), announced), PEER)
        assert rib.refused(PEER.peer) == (2, 0)
        assert rib.faults(PEER.peer, 20) == {NETS[0]: "reason 1; reason 2"}


def test_telling_of_many_costs_no_more_than_of_few() -> None:
    """50,000 refused paths, told a thousand times, as when the status is written often."""
    rib = Rib(lambda prefix, path: "not ours")
    nets = [ip_network((10 << 24 | number << 8, 24)) for number in range(50_000)]
    rib.update(said(nets), PEER)
    started = time.process_time()
    for _ in range(1000):
        assert rib.refused(PEER.peer) == (50_000, 0)
        assert len(rib.faults(PEER.peer, 20)) == 20
    assert time.process_time() - started < HANG
