"""JON-1 to JON-3: every packet and connection counts once, in the flow that it belongs to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_address

from hypothesis import given, settings
from hypothesis import strategies as st

from felix.flows.ends import Known
from felix.flows.joiner import FORGOTTEN, SOON, Joiner
from flows.record import Action, End, EndKind, Flow, Hit, PolicyKind, Reporter, Service
from libcalico.model import ResourceKey
from linux.tracking import connections
from tests.felix.flows.packets import UDP, connection, key, packet
from tests.size import examples

A, B, C, OUT = "10.0.0.1", "10.0.0.2", "10.0.0.3", "192.0.2.1"
"""Two pods of this node, one of another, and an address outside."""
WEB = Service("web", "shop", "http", 80)


def _known(name: str, *labels: str, local: bool = False) -> Known:
    key = ResourceKey("WorkloadEndpoint", name, "shop") if local else None
    return Known(End(EndKind.WORKLOAD, name, "shop"), labels, key)


@dataclass
class World:
    """What the joiner asks about."""

    ends: dict[str, Known] = field(
        default_factory=lambda: {
            A: _known("a", "app=a", "tier=x", local=True),
            B: _known("b", "app=b", local=True),
            C: _known("c", "app=c"),
            OUT: Known(End(EndKind.NETWORK, "pub")),
        }
    )
    staged: str = "staged"
    foreign: frozenset[str] = frozenset()

    def known(self, address: bytes) -> Known:
        return self.ends[str(ip_address(address))]

    def judges(self, prefix: str, endpoint: ResourceKey) -> bool:
        return prefix not in self.foreign

    def enforced(self, prefixes: Sequence[str], endpoint: ResourceKey) -> tuple[Hit, ...]:
        return tuple(_hit(prefix) for prefix in prefixes)

    def pending(
        self, endpoint: ResourceKey, key: connections.Key, *, ingress: bool
    ) -> tuple[Hit, ...]:
        return (_hit(self.staged),)

    def service(self, address: bytes, port: int, protocol: int) -> Service:
        return WEB if (str(ip_address(address)), port) == ("10.96.0.1", 80) else Service()


def _hit(name: str) -> Hit:
    return Hit(PolicyKind.PROFILE, "", "", name, Action.UNSPECIFIED)


def flush(joiner: Joiner, now: float = 0.0, start: int = 0, end: int = 15) -> list[Flow]:
    for _ in joiner.all_counted(now):
        pass
    return [flow for batch in joiner.flushing(start, end) for flow in batch]


def by_reporter(flows: Sequence[Flow]) -> dict[Reporter, Flow]:
    found = {flow.key.reporter: flow for flow in flows}
    assert len(found) == len(flows)
    return found


def test_a_connection_of_two_pods_is_told_by_both_ends() -> None:
    joiner = Joiner(World())
    one = key(A, B, 80)
    joiner.hear(packet(A, B, 80), "APE0|gnp/out", 0.0, ingress=False)
    joiner.hear(packet(A, B, 80), "PPI2|gnp/first", 0.0, ingress=True)
    joiner.hear(packet(A, B, 80), "API1|np/shop/in", 0.0, ingress=True)
    joiner.counted(connection(one, 5, 500, 4, 4000))
    flows = by_reporter(flush(joiner))
    source, destination = flows[Reporter.SOURCE], flows[Reporter.DESTINATION]
    counts = source.counts
    assert (counts.packets_out, counts.bytes_out, counts.packets_in, counts.bytes_in) == (
        5, 500, 4, 4000,
    )  # fmt: skip
    counts = destination.counts
    assert (counts.packets_in, counts.bytes_in, counts.packets_out, counts.bytes_out) == (
        5, 500, 4, 4000,
    )  # fmt: skip
    assert (counts.started, counts.completed, counts.live) == (1, 0, 1)
    assert [hit.name for hit in destination.key.trace.enforced] == [
        "PPI2|gnp/first", "API1|np/shop/in",
    ]  # fmt: skip
    assert [hit.name for hit in destination.key.trace.pending] == ["staged"]
    assert (source.key.port, source.key.protocol, source.key.action) == (80, "tcp", Action.ALLOW)
    assert source.source_labels == ("app=a", "tier=x")
    # It is told of again while it lives, with what came since.
    joiner.counted(connection(one, 7, 700, 4, 4000))
    counts = by_reporter(flush(joiner, start=15, end=30))[Reporter.SOURCE].counts
    assert (counts.packets_out, counts.bytes_out, counts.packets_in) == (2, 200, 0)
    assert (counts.started, counts.completed, counts.live) == (0, 0, 1)
    joiner.ended(connection(one, 8, 800, 4, 4000))
    counts = by_reporter(flush(joiner))[Reporter.SOURCE].counts
    assert (counts.packets_out, counts.started, counts.completed, counts.live) == (1, 0, 1, 0)
    assert flush(joiner) == []
    assert len(joiner) == 0


def test_what_is_denied_is_counted_by_what_is_told() -> None:
    joiner = Joiner(World())
    for moment in (0.0, 1.0, 3.0):
        joiner.hear(packet(C, B, 80, length=60), "DPI|default", moment, ingress=True)
    (flow,) = flush(joiner, 5.0)
    counts = flow.counts
    assert flow.key.action is Action.DENY
    assert (counts.packets_in, counts.bytes_in, counts.packets_out) == (3, 180, 0)
    assert (counts.started, counts.completed, counts.live) == (1, 1, 0)
    joiner.hear(packet(C, B, 80), "DPI|default", 7.0, ingress=True)
    (flow,) = flush(joiner, 15.0)
    assert (flow.counts.packets_in, flow.counts.started) == (1, 0), "the same attempt goes on"
    assert flush(joiner, 7.0 + FORGOTTEN) == []
    joiner.hear(packet(C, B, 80), "DPI|default", 100.0, ingress=True)
    assert flush(joiner, 110.0)[0].counts.started == 1


def test_what_one_end_allows_and_the_other_denies_is_two_flows() -> None:
    joiner = Joiner(World())
    joiner.hear(packet(A, B, 80), "ARE0|kns.shop", 0.0, ingress=False)
    joiner.hear(packet(A, B, 80), "DPI0|np/shop/no", 0.0, ingress=True)
    flows = by_reporter(flush(joiner, SOON))
    assert flows[Reporter.SOURCE].key.action is Action.ALLOW
    assert flows[Reporter.DESTINATION].key.action is Action.DENY
    assert [each.counts.live for each in flows.values()] == [0, 0]


def test_the_service_is_the_one_that_was_addressed() -> None:
    joiner = Joiner(World())
    joiner.hear(packet(A, C, 8080), "APE0|gnp/out", 0.0, ingress=False)
    joiner.counted(connection(key(A, C, 8080), 1, 60, aimed=("10.96.0.1", 80)))
    (flow,) = flush(joiner)
    assert (flow.key.service, flow.key.port) == (WEB, 8080)


def test_other_endpoints_policies_and_foreign_packets_leave_nothing() -> None:
    joiner = Joiner(World(foreign=frozenset({"API0|gnp/host"})))
    joiner.hear(packet(C, OUT, 80), "API0|gnp/x", 0.0, ingress=True)
    joiner.hear(packet(A, B, 80), "API0|gnp/host", 0.0, ingress=True)
    joiner.hear(b"", "API0|gnp/x", 0.0, ingress=True)
    joiner.counted(connection(key(A, B, 80), 5, 500))
    assert flush(joiner, FORGOTTEN) == []
    assert len(joiner) == 0


def test_a_connection_that_the_kernel_has_no_more_is_over() -> None:
    joiner = Joiner(World())
    joiner.hear(packet(A, C, 53, protocol=UDP), "APE0|gnp/out", 0.0, ingress=False)
    joiner.counted(connection(key(A, C, 53, protocol=UDP), 1, 60))
    assert flush(joiner)[0].counts.live == 1
    assert flush(joiner)[0].counts.live == 1, "its end may be told of yet"
    (flow,) = flush(joiner)
    assert (flow.counts.live, flow.counts.completed) == (0, 1)


def test_an_end_that_is_told_of_late_starts_nothing_again() -> None:
    """The kernel lists no connection that has expired, and tells of its end some seconds later."""
    joiner = Joiner(World())
    joiner.hear(packet(A, C, 80), "APE0|x", 0.0, ingress=False)
    (flow,) = flush(joiner, 12.0)
    assert (flow.counts.started, flow.counts.completed, flow.counts.packets_out) == (1, 1, 1)
    joiner.ended(connection(key(A, C, 80), 5, 300, 4, 400))
    (flow,) = flush(joiner, 14.0)
    assert (flow.counts.started, flow.counts.completed, flow.counts.live) == (0, 0, 0)
    assert (flow.counts.packets_out, flow.counts.packets_in) == (4, 4)
    joiner.hear(packet(A, C, 81), "APE0|x", 20.0, ingress=False)
    joiner.counted(connection(key(A, C, 81), 1, 60))
    flush(joiner, 21.0)
    flush(joiner, 36.0)
    joiner.ended(connection(key(A, C, 81), 9, 540))
    (flow,) = flush(joiner, 51.0)
    assert (flow.counts.completed, flow.counts.packets_out) == (1, 8)


def test_labels_that_not_all_have_are_left_out() -> None:
    world = World()
    joiner = Joiner(world)
    joiner.hear(packet(A, C, 80, 1), "APE0|x", 0.0, ingress=False)
    joiner.counted(connection(key(A, C, 80, 1), 1, 60))
    world.ends[A] = _known("a", "app=a", "tier=y", local=True)
    joiner.hear(packet(A, C, 80, 2), "APE0|x", 0.0, ingress=False)
    joiner.counted(connection(key(A, C, 80, 2), 1, 60))
    (flow,) = flush(joiner)
    assert flow.source_labels == ("app=a",)
    assert flow.counts.started == 2


def test_a_live_connection_follows_its_pending_trace() -> None:
    world = World()
    joiner = Joiner(world)
    joiner.hear(packet(A, C, 80), "APE0|x", 0.0, ingress=False)
    joiner.counted(connection(key(A, C, 80), 1, 60))
    flush(joiner)
    world.staged = "other"
    for _ in joiner.reconsidered():
        pass
    joiner.counted(connection(key(A, C, 80), 3, 180))
    flows = {flow.key.trace.pending[0].name: flow.counts for flow in flush(joiner)}
    assert (flows["staged"].live, flows["staged"].completed) == (0, 1)
    assert (flows["other"].live, flows["other"].packets_out) == (1, 2)


def test_what_is_beyond_the_limits_is_counted() -> None:
    joiner = Joiner(World(), most=4)
    for port in range(10):
        joiner.hear(packet(C, B, 80, port), "DPI|default", 0.0, ingress=True)
    assert len(joiner) == 2, "what is denied leaves room"
    assert joiner.lost.connections == 0
    (flow,) = flush(joiner, 1.0)
    assert (flow.counts.packets_in, flow.counts.started) == (10, 10), "no denied packet is lost"
    for port in range(10):
        joiner.hear(packet(A, C, 80, port), "APE0|x", 1.0, ingress=False)
    assert (len(joiner), joiner.lost.connections) == (4, 8)
    assert sum(flow.counts.started for flow in flush(joiner, 10.0)) == 10
    for port in range(10):
        joiner.hear(packet(C, B, port, 9), "DPI|default", 100.0, ingress=True)
    flush(joiner, 200.0)
    assert joiner.lost.flows > 0
    assert joiner.flows <= 4


def test_without_the_kernels_counters_first_packets_count() -> None:
    joiner = Joiner(World())
    joiner.hear(packet(A, C, 80, length=60), "APE0|x", 0.0, ingress=False)
    bare = replace(connection(key(A, C, 80), 0, 0), packets=None, bytes=None)
    joiner.counted(bare)
    joiner.counted(bare)
    (flow,) = flush(joiner)
    assert (flow.counts.packets_out, flow.counts.bytes_out, flow.counts.live) == (1, 60, 1)


@dataclass
class _Truth:
    """One connection as it is: what the kernel has, and what flows must say in the end."""

    source: str
    destination: str
    source_port: int
    denied: frozenset[bool]
    there: int = 0
    back: int = 0
    told: int = 0
    over: bool = False

    @property
    def key(self) -> bytes:
        return key(self.source, self.destination, 80, self.source_port)

    @property
    def legs(self) -> list[bool]:
        """The ends of this node that meet the packet, in their order."""
        local = [
            ingress
            for ingress, end in ((False, self.source), (True, self.destination))
            if end in (A, B)
        ]
        if False in self.denied and False in local:
            return [False]
        return local

    @property
    def confirmed(self) -> bool:
        return not any(leg in self.denied for leg in self.legs)


PAIRS = st.sampled_from([(A, B), (A, C), (C, B), (B, A), (OUT, A), (A, OUT)])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "send", "list", "end", "flush", "retry"]), st.integers(0, 7)
    ),
    max_size=60,
)


@settings(max_examples=examples(300), deadline=None)
@given(
    plans=st.lists(st.tuples(PAIRS, st.frozensets(st.booleans())), min_size=8, max_size=8),
    steps=STEPS,
)
def test_every_packet_counts_once(
    plans: list[tuple[tuple[str, str], frozenset[bool]]], steps: list[tuple[str, int]]
) -> None:
    joiner = Joiner(World())
    truths: dict[int, _Truth] = {}
    flows: list[Flow] = []
    now = 0.0

    def tell(one: _Truth) -> None:
        one.told += 1
        for ingress in one.legs:
            letter = "D" if ingress in one.denied else "A"
            way = "I" if ingress else "E"
            sent = packet(one.source, one.destination, 80, one.source_port)
            joiner.hear(sent, f"PP{way}0|np/shop/first", now, ingress=ingress)
            joiner.hear(sent, f"{letter}P{way}0|np/shop/x", now, ingress=ingress)
        one.there += one.confirmed

    def seen(one: _Truth) -> connections.Connection:
        return connection(one.key, one.there, 60 * one.there, one.back, 40 * one.back)

    def listed() -> None:
        for one in truths.values():
            if one.confirmed and not one.over:
                joiner.counted(seen(one))
        for _ in joiner.all_counted(now):
            pass

    def live() -> int:
        held = [one for one in truths.values() if one.confirmed and not one.over]
        return sum(len(one.legs) for one in held)

    def flushed() -> None:
        listed()
        flows.extend(flow for batch in joiner.flushing(0, 15) for flow in batch)

    for what, number in steps:
        now += SOON
        one = truths.get(number)
        if what == "begin" and one is None:
            (source, destination), denied = plans[number]
            truths[number] = one = _Truth(source, destination, 1000 + number, denied)
            tell(one)
        elif what == "retry" and one is not None and not one.confirmed:
            tell(one)
        elif what == "send" and one is not None and one.confirmed and not one.over:
            one.there, one.back = one.there + 1 + number, one.back + number
        elif what == "end" and one is not None and one.confirmed and not one.over:
            one.over = True
            joiner.ended(seen(one))
        elif what == "list":
            listed()
        elif what == "flush":
            before = len(flows)
            flushed()
            assert sum(flow.counts.live for flow in flows[before:]) == live()
    for one in truths.values():
        if one.confirmed and not one.over:
            one.over = True
            joiner.ended(seen(one))
    now += FORGOTTEN
    flushed()
    assert len(joiner) == 0
    expected: Counter[tuple[str, str, Reporter, Action, str]] = Counter()
    for one in truths.values():
        for ingress in one.legs:
            out, into = ("in", "out") if ingress else ("out", "in")
            refused = ingress in one.denied
            which_flow = (
                World().ends[one.source].end.name,
                World().ends[one.destination].end.name,
                Reporter.DESTINATION if ingress else Reporter.SOURCE,
                Action.DENY if refused else Action.ALLOW,
            )
            expected[(*which_flow, out)] += one.there if one.confirmed else one.told
            expected[(*which_flow, into)] += one.back
            expected[(*which_flow, "started")] += 1
            expected[(*which_flow, "completed")] += 1
    got: Counter[tuple[str, str, Reporter, Action, str]] = Counter()
    for flow in flows:
        made = flow.key
        assert next(hit.name[0] for hit in made.trace.enforced) == "P"
        found = (made.source.name, made.destination.name, made.reporter, made.action)
        got[(*found, "in")] += flow.counts.packets_in
        got[(*found, "out")] += flow.counts.packets_out
        got[(*found, "started")] += flow.counts.started
        got[(*found, "completed")] += flow.counts.completed
    assert +got == +expected
