"""Pods that are there: which take part, how they are entered, and the marks of what is made."""

from __future__ import annotations

from typing import Any

import pytest

from calicoctl.connectivity import leftovers, via
from calicoctl.connectivity.model import ALLOWED, DENIED, Place
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model import WorkloadEndpoint
from libcalico.model.base.meta import Metadata
from libcalico.model.codec import resource_from_tree
from libcalico.model.resources.endpoint import WorkloadEndpointSpec
from tests.support.etcd import Etcd

POD = Place("n1", "web", "shop", "10.65.0.1")


def test_the_words_of_a_command() -> None:
    words = via.words_of("--via", "ssh {node} 'ip netns exec {namespace}.{pod}'", POD)
    assert words == ["ssh", "n1", "ip netns exec shop.web"]


@pytest.mark.parametrize("text", ["", "   ", "x {user}", "x {", "x 'y", "x {}", "x {0}"])
def test_a_command_that_is_none(text: str) -> None:
    with pytest.raises(InvalidValue, match="--via"):
        via.words_of("--via", text, POD)


def endpoint(node: str, pod: str, namespace: str, address: str = "10.65.0.1/32", **labels: str) -> (
    WorkloadEndpoint
):  # fmt: skip
    return WorkloadEndpoint(
        metadata=Metadata(name=f"{node}-{pod}", namespace=namespace, labels=labels),
        spec=WorkloadEndpointSpec(node=node, pod=pod, ipNetworks=[address] if address else []),
    )


def test_pods_that_take_part() -> None:
    endpoints = [
        endpoint("n2", "c", "a", app="x"),
        endpoint("n1", "b", "a", app="x"),
        endpoint("n1", "a", "a", app="x"),
        endpoint("n1", "d", "b", app="y"),
        endpoint("n1", "without", "a", address=""),
    ]

    def names(namespaces: tuple[str, ...] = (), selector: str = "", most: int = 9) -> list[str]:
        return [one.pod for one in via.places_of(endpoints, namespaces, selector, most)]

    assert names() == ["a", "b", "d", "c"]
    assert names(most=1) == ["a", "c"]
    assert names(("b",)) == ["d"]
    assert names(selector="app == 'x' && projectcalico.org/namespace == 'a'") == ["a", "b", "c"]
    with pytest.raises(InvalidValue):
        names(selector="app ==")


def test_policies_deny_the_two_ports_of_the_test_and_nothing_else() -> None:
    for phase, ports in ((DENIED, [8790, 8791]), (ALLOWED, [8791])):
        trees = via.policy_trees(phase, "all()", 8790, leftovers.expiry())
        made: list[Any] = [resource_from_tree(tree) for tree in trees]
        tier, policy = made
        assert tier.spec.defaultAction == "Pass"
        (rule,) = policy.spec.ingress
        assert (rule.action, rule.destination.ports) == ("Deny", ports)


@pytest.mark.asyncio
async def test_leftovers_of_another_test_are_left_until_their_time(etcd: Etcd) -> None:
    async with etcd.connect() as store:
        policies = via.Policies(store, "all()", 8790)
        await policies.enter(DENIED)
        with pytest.raises(MuslinError, match="another test that may still run"):
            await via.forget(store, expired_only=True)
        gone = await via.forget(store)
        assert len(gone) == 2
        assert await via.forget(store, expired_only=True) == []
        await policies.enter(DENIED)
        await policies.leave()
        assert await via.forget(store) == []


@pytest.mark.asyncio
async def test_what_is_expired_goes_with_the_next_test(
    etcd: Etcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with etcd.connect() as store:
        long_ago = leftovers.expiry(-10.0)
        monkeypatch.setattr(leftovers, "expiry", lambda: long_ago)
        await via.Policies(store, "all()", 8790).enter(ALLOWED)
        assert len(await via.forget(store, expired_only=True)) == 2
        monkeypatch.undo()
    assert leftovers.expired("2020-01-01T00:00:00Z")
    assert leftovers.expired("no time")
    assert not leftovers.expired(leftovers.expiry(60))


@pytest.mark.asyncio
async def test_a_server_that_cannot_start_is_told() -> None:
    stage = via.ViaStage("sh -c 'echo {pod} is gone; exit 3' ", "")
    assert await stage.serve([POD], 8790) == {POD: "sh: web is gone"}
    assert "No such file" in (await via.ViaStage("/no/such", "").serve([POD], 8790))[POD]
    await stage.stop()
