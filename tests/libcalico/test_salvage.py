"""A resource of policy that cannot be decoded closes what it was meant to close."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcalico.datastore.interface import Selection
from libcalico.datastore.syncer import Syncer
from libcalico.errors import InvalidValue
from libcalico.model import ResourceKey, Rule
from libcalico.model.codec import decode_value
from libcalico.model.salvage import KINDS_OF_POLICY, salvage
from libcalico.model.validation.validate import problems
from tests.support.etcd import Etcd
from tests.support.patience import patient

NP = ResourceKey("NetworkPolicy", "p", "shop")
GNP = ResourceKey("GlobalNetworkPolicy", "p")


def raw(spec: Any, **metadata: Any) -> bytes:
    return json.dumps({"metadata": {"name": "p", **metadata}, "spec": spec}).encode()


@pytest.mark.parametrize("key", [NP, GNP], ids=str)
@pytest.mark.parametrize("bytes_", [b"", b"{", b"\xff", b"[]", b"7", raw([]), raw("x")])
def test_what_is_no_policy_at_all_selects_everybody_and_has_a_rule_to_deny(
    key: ResourceKey, bytes_: bytes
) -> None:
    resource: Any = salvage(key, bytes_)
    assert (resource.metadata.name, resource.metadata.namespace) == ("p", key.namespace)
    assert resource.spec.selector == ""
    assert resource.spec.types == ["Ingress", "Egress"]
    assert resource.spec.ingress[0] == resource.spec.egress[0] == Rule()
    assert problems(resource)


def test_what_is_readable_keeps_its_meaning() -> None:
    good = {"action": "Allow", "protocol": "TCP", "destination": {"ports": [80]}}
    bad = {"action": "Deny", "destination": {"ports": [{}]}}
    spec = {"tier": "t", "order": 5, "selector": "a == 'b'", "ingress": [good, bad]}
    resource: Any = salvage(GNP, raw(spec, labels={"k": "v"}))
    assert (resource.spec.tier, resource.spec.order, resource.spec.selector) == ("t", 5, "a == 'b'")
    assert [rule.action for rule in resource.spec.ingress] == ["Allow", ""]
    assert resource.metadata.labels["k"] == "v"
    assert [one.field for one in problems(resource)] == ["spec.ingress[1].action"]


@pytest.mark.parametrize("field", ["selector", "namespaceSelector", "tier"])
def test_an_unreadable_selector_is_no_selector(field: str) -> None:
    resource: Any = salvage(GNP, raw({field: 7, "types": ["Egress"]}))
    assert [one.field for one in problems(resource)] == [f"spec.{field}"]


@pytest.mark.parametrize("spec", [{"order": "first"}, {"types": "Ingress"}, {"doNotTrack": 3}])
def test_where_the_place_or_direction_is_lost_both_directions_begin_with_a_denial(
    spec: dict[str, Any],
) -> None:
    allow = [{"action": "Allow"}]
    resource: Any = salvage(GNP, raw({"ingress": allow, "egress": allow} | spec))
    for rules in (resource.spec.ingress, resource.spec.egress):
        assert [rule.action for rule in rules] == ["", "Allow"]
    assert resource.spec.types == ["Ingress", "Egress"]


def test_parameters_of_felix_that_can_be_read_stay_in_force() -> None:
    key = ResourceKey("FelixConfiguration", "default")
    spec = {"healthPort": "x", "iptablesFilterDenyAction": "Reject", "new": 1, "ipv6Support": None}
    resource: Any = salvage(key, raw(spec))
    assert resource.spec.set_fields() == {"iptablesFilterDenyAction": "Reject"}
    assert salvage(key, b"{").spec.set_fields() == {}  # type: ignore[union-attr]


def test_sets_keep_their_networks_and_profiles_their_labels() -> None:
    key = ResourceKey("GlobalNetworkSet", "p")
    resource: Any = salvage(key, raw({"nets": ["10.0.0.0/8", 7]}, labels={"role": "db", "n": 1}))
    assert resource.spec.nets == ["10.0.0.0/8", "?"]
    assert resource.metadata.labels == {"role": "db"}
    assert [one.field for one in problems(resource)] == ["spec.nets[1]"]
    profile: Any = salvage(
        ResourceKey("Profile", "p"), raw({"labelsToApply": {"a": "b", "c": 1}, "ingress": [7]})
    )
    assert profile.spec.labelsToApply["a"] == "b"
    assert profile.spec.ingress == [Rule()]
    assert problems(profile)


def test_the_name_is_found_as_in_a_good_policy() -> None:
    old: Any = salvage(ResourceKey("GlobalNetworkPolicy", "default.p"), b"{")
    assert old.metadata.name == "p"


def test_other_kinds_are_not_salvaged() -> None:
    assert salvage(ResourceKey("IPPool", "p"), b"{") is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
MEMBERS = ["tier", "order", "ingress", "egress", "selector", "types", "nets", "labelsToApply"]


@given(
    st.sampled_from(sorted(KINDS_OF_POLICY)),
    st.dictionaries(st.sampled_from(MEMBERS), JSON, max_size=4) | JSON,
)
def test_whatever_cannot_be_decoded_is_salvaged_with_a_problem(kind: str, spec: Any) -> None:
    key = ResourceKey(kind, "p", "shop" if kind in ("NetworkPolicy", "NetworkSet") else "")
    text = raw(spec)
    try:
        decode_value(key, text)
    except InvalidValue:
        resource = salvage(key, text)
        assert resource is not None
        assert problems(resource)


async def _watched(etcd: Etcd, path: str, text: bytes) -> list[Any]:
    updates: list[Any] = []
    async with etcd.connect() as store:
        syncer = Syncer(store, [Selection("GlobalNetworkPolicy")])
        async for batch in syncer.batches():
            updates += batch.updates
            if batch.in_sync and not updates:
                etcd.put(path, text)
            if updates:
                break
    return updates


def test_a_broken_policy_reaches_felix_as_an_object_never_as_a_deletion(etcd: Etcd) -> None:
    path = "/calico/resources/v3/projectcalico.org/globalnetworkpolicies/deny"
    text = b'{"metadata":{"name":"deny"},"spec":{"selector":"has(a)","ingress":[{"action":7}]}}'
    for _ in ("watched", "listed"):
        [update] = asyncio.run(asyncio.wait_for(_watched(etcd, path, text), patient(20)))
        assert update.entry is not None
        assert "spec.ingress[0].action: 7 is not valid" in update.entry.broken
        assert update.entry.value.spec.selector == "has(a)"
        assert [rule.action for rule in update.entry.value.spec.ingress] == [""]


@pytest.mark.parametrize(
    "spec", [{"profiles": "open"}, {"profiles": ["open", 3]}, {"ports": "http"}, {"ports": [3]}]
)
def test_a_host_endpoint_that_cannot_be_read_is_closed_by_a_profile_that_nobody_has(
    spec: Any,
) -> None:
    key = ResourceKey("HostEndpoint", "h")
    place = {"node": "me", "interfaceName": "eth0", "expectedIPs": ["10.0.0.1"]}
    resource: Any = salvage(key, raw({**place, **spec}))
    assert (resource.spec.node, resource.spec.interfaceName) == ("me", "eth0")
    assert resource.spec.expectedIPs == ["10.0.0.1"]
    assert "?" in resource.spec.profiles
    assert problems(resource)


@pytest.mark.parametrize("spec", ["x", {"order": "first"}, {"defaultAction": 7, "order": 5}])
def test_a_tier_that_cannot_be_read_is_there_and_denies_at_its_end(spec: Any) -> None:
    resource: Any = salvage(ResourceKey("Tier", "t"), raw(spec))
    assert resource.metadata.name == "p"
    assert resource.spec.defaultAction == "?"
    assert [one.field for one in problems(resource)] == ["spec.defaultAction"]


@pytest.mark.parametrize("key", [NP, GNP])
def test_what_nests_without_end_is_salvaged_as_what_has_no_text(key: ResourceKey) -> None:
    """Whoever may write a policy could end felix with it."""
    deep = b'{"metadata":{"name":"p"},"spec":{"order":' + b'{"a":' * 100_000
    with pytest.raises(InvalidValue):
        decode_value(key, deep)
    assert salvage(key, deep) == salvage(key, b"no JSON")
