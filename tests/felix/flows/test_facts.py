"""What is remembered for a moment, and what there is no time for."""

from __future__ import annotations

from ipaddress import ip_address

from felix.calc.graph import Calculator
from felix.flows.facts import AT_LEAST, KNOWN_FOR, SHARE, CalculatedFacts
from felix.flows.joiner import Lost
from felix.flows.services import ServiceTable
from flows.record import EndKind
from linux.tracking.connections import Key
from tests.felix.policy_objects import namespace, pod, pod_key

A = ip_address("10.0.0.1").packed


class Clock:
    now = 100.0
    worked = 0.0
    each = 0.0

    def time(self) -> float:
        return self.now

    def work(self) -> float:
        self.worked += self.each
        return self.worked


def facts(clock: Clock) -> tuple[Calculator, CalculatedFacts, Lost]:
    calc, lost = Calculator("me"), Lost()
    calc.in_sync = True
    for key, value in (namespace("default"), pod("b", "10.0.0.2")):
        calc.update(key, value)
    calc.policy.flush()
    return calc, CalculatedFacts(calc, ServiceTable(), lost, clock.time, clock.work), lost


def test_a_new_pod_is_known_at_once_and_another_name_within_a_second() -> None:
    clock = Clock()
    calc, known, _ = facts(clock)
    assert known.known(A).end.kind is EndKind.NETWORK
    calc.update(*pod("a", "10.0.0.1"))
    calc.policy.flush()
    known.changed()
    assert known.known(A).end.name == "a"
    calc.update(pod("a", "10.0.0.1")[0], None)
    calc.update(*pod("c", "10.0.0.1"))
    calc.policy.flush()
    known.changed()
    assert known.known(A).end.name == "a"
    clock.now += KNOWN_FOR
    assert known.known(A).end.name == "c"


def test_walks_have_their_share_of_the_time() -> None:
    clock = Clock()
    _, known, lost = facts(clock)
    clock.each = SHARE

    def walk(port: int) -> bool:
        which = Key(6, A, ip_address("10.0.0.2").packed, 1, port)
        return bool(known.pending(pod_key("b"), which, ingress=True))

    assert all(walk(port) for port in range(AT_LEAST)), "some there is always time for"
    assert not walk(1000)
    assert lost.pending == 1
    assert walk(0), "what was calculated costs nothing"
    clock.now += 1.0
    assert walk(1000)
    assert lost.pending == 1
