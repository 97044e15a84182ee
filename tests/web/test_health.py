"""What needs an eye."""

from __future__ import annotations

from dataclasses import replace

from libcalico.model.resources.cluster import ClusterInformationSpec
from tests.web import world
from web.facts.facts import EventLine
from web.views.health import MOST, Health, Severity, health


def texts(shown: Health) -> str:
    """All of it."""
    return "\n".join(f"{one.subject} {one.text} | {one.fix}" for one in shown.findings)


def test_every_planted_fault_is_told_with_a_remedy() -> None:
    shown = health(world.facts())
    told = texts(shown)
    assert "n2 session with 10.99.0.254 (10.99.0.254) is down: refused: 10.99.0.254 port" in told
    assert "n3 session with n1 (10.99.0.1) is down: one-sided" in told
    assert "10.65.0.1 allocated but not in use: leaked" in told
    assert "of a node that is no Node" in told
    assert "small pool 10.66.0.0/30 is 100% used" in told
    assert "n2 calico-felix: NetworkPolicy(shop/old): no such field" in told
    assert all(one.fix for one in shown.findings)
    severities = [one.severity for one in shown.findings]
    assert severities == sorted(severities, reverse=True)


def test_what_was_not_looked_at_is_said() -> None:
    shown = health(world.facts())
    assert any("2 of 3 nodes" in one for one in shown.unknown)
    assert any("Events" in one for one in shown.unknown)


def test_a_locked_datastore_a_dead_process_and_what_cannot_be_read() -> None:
    facts = world.facts()
    word = facts.words["n2"]
    dead = replace(word, cni=replace(word.cni, running=False))
    shown = health(
        replace(
            facts,
            cluster=ClusterInformationSpec(datastoreReady=False),
            words={"n2": dead},
            unreadable=("IPPool(x) cannot be read: spec.cidr",),
            events=(EventLine("10:00", "CalicoBGP", "Node n1", "Session", "down", 3),),
        )
    )
    told = texts(shown)
    assert "datastore is locked" in told
    assert "n2 calico-cni does not run. calico-cni was last seen" in told
    assert "IPPool(x) cannot be read: spec.cidr" in told
    assert shown.events == (("10:00", "CalicoBGP", "Node n1", "Session", "down (3 times)"),)


def test_a_cluster_without_faults_has_no_finding() -> None:
    empty = replace(world.facts(), topology=type(world.facts().topology)((), ()))
    quiet = health(type(empty)())
    assert quiet.findings == ()
    assert (quiet.count(Severity.PROBLEM), quiet.more) == (0, 0)


def test_a_flood_is_cut_and_counted() -> None:
    many = tuple(f"X({number}) cannot be read: y" for number in range(MOST + 7))
    shown = health(replace(type(world.facts())(), unreadable=many))
    assert (len(shown.findings), shown.more) == (MOST, 7)
