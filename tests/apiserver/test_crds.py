"""Our CustomResourceDefinitions in a real API server: CRD-1 and CRD-2 of `libcalico.crds`."""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections.abc import Iterator
from typing import Any, TypeVar

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from libcalico.crds.table import DEFINITIONS, GROUP
from libcalico.errors import InvalidValue
from libcalico.model.codec import resource_from_tree, shown_value
from libcalico.model.defaults import apply_defaults
from libcalico.model.validation.validate import problems
from tests.apiserver.crd_documents import body, mutated, path_of, valid_trees
from tests.libcalico.test_invalid_documents import REFUSED, TAKEN
from tests.support.apiserver import ApiRefused, ApiServer
from tests.support.crds import install, kubectl

FULL = "MUSLIN_FULL_SIZE" in os.environ
T = TypeVar("T")
EXAMPLES = 600 if FULL else 20
SHARE = 1 if FULL else 8

LEFT_TO_US = frozenset(
    [
        "bgpconfig-as-dotted",
        "bgpconfig-service",
        "bgpconfig-community-16-bits",
        "bgpconfig-advertisement-undefined",
        "bgpconfig-advertisement-cidr",
        "peer-selector",
        "peer-address",
        "peer-address-port",
        "peer-address-port-0",
        "peer-address-brackets",
        "peer-reachable-host",
        "peer-reachable-family",
        "filter-cidr",
        "filter-family",
        "filter-family-v6",
        "filter-length",
        "filter-community",
        "filter-community-zero",
        "hep-port-name",
        "NetworkPolicy-name",
        "NetworkPolicy-selector",
        "NetworkPolicy-selector-global",
        "NetworkPolicy-accounts",
        "NetworkPolicy-annotation-of-rule",
        "NetworkPolicy-net-bits",
        "NetworkPolicy-net-families",
        "NetworkPolicy-not-everything",
        "NetworkPolicy-not-everything-v6",
        "NetworkPolicy-net-version",
        "NetworkPolicy-port-range-alone",
        "NetworkPolicy-port-from-0",
        "NetworkPolicy-port-range",
        "NetworkPolicy-selector-of-rule",
        "NetworkPolicy-selector-not",
        "NetworkPolicy-namespaces",
        "NetworkPolicy-account",
        "GlobalNetworkPolicy-name",
        "GlobalNetworkPolicy-namespaces",
        "GlobalNetworkPolicy-namespaces-global",
        "StagedNetworkPolicy-name",
        "StagedKubernetesNetworkPolicy-end-port",
        "GlobalNetworkSet-label",
        "NetworkSet-label",
        "pool-host-bits",
        "pool-host-bits-v6",
        "pool-link-local",
        "pool-around-link-local",
        "pool-link-local-v6",
        "pool-selector",
        "pool-selector-global",
        "pool-spaces",
        "pool-spaces-tunnel",
        "felix-selector",
        "felix-pattern",
        "felix-pattern-lookahead",
        "felix-node-ports",
        "felix-table-ranges-many",
        "felix-region",
        "felix-log-filters",
        "felix-timeouts",
        "controllers-template-pattern",
        "controllers-template-label",
        "controllers-template-selector",
        "controllers-template-twice",
        "metadata-unknown",
        "affinity-deleted",
    ]
)
"""Refused by our validators alone: selectors, bits behind masks, and what CEL cannot afford."""

ELSEWHERE = {
    "filter-operator-alone": "spec.importV4[0].matchOperator",
    "NetworkPolicy-label": "metadata.labels",
    "NetworkPolicy-label-value": "metadata.labels",
    "NetworkPolicy-annotation": "metadata.annotations",
    "NetworkPolicy-service-wrong-side": "spec.ingress",
    "NetworkPolicy-service-egress": "spec.egress",
    "NetworkPolicy-http-egress": "spec.egress",
    "GlobalNetworkPolicy-pre-dnat-type": "spec.types",
    "GlobalNetworkPolicy-service-namespace": "spec.ingress",
    "felix-name": "name",
    "metadata-labels": "ObjectMeta.labels",
}
"""What the server's complaint names where that is not what ours does."""


@pytest.fixture
def crds(api: ApiServer) -> ApiServer:
    """The API server with every definition, and the namespaces of the documents."""
    if api.url in DEFINED:
        return api
    install(api)
    DEFINED.add(api.url)
    texts = [case.text for case in TAKEN] + [case.text for case in REFUSED]
    for tree in (*valid_trees(), *(yaml.safe_load(text) for text in texts)):
        name = (tree.get("metadata") or {}).get("namespace")
        if isinstance(name, str) and name:
            NAMESPACES.add(name)
    for name in sorted(NAMESPACES):
        # Some are names that Kubernetes refuses, too.
        with contextlib.suppress(ApiRefused):
            api.namespace(name)
    return api


NAMESPACES: set[str] = set()
DEFINED: set[str] = set()
"""The servers that have them: what is stored survives a restart."""


def complaint(api: ApiServer, tree: dict[str, Any]) -> str | None:
    """What the server says of a document it is asked to create; None for kinds it has not."""
    path = path_of(tree)
    if path is None:
        return None
    try:
        api.call("POST", f"{path}?dryRun=All&fieldValidation=Strict", body(tree))
    except ApiRefused as refused:
        return str(refused)
    return ""


def share(cases: list[T]) -> Iterator[T]:
    """All of them at full size, else some, others in each run."""
    return iter(cases if SHARE == 1 else random.sample(cases, len(cases) // SHARE))


def test_the_definitions_take_what_we_take_and_refuse_what_we_refuse(crds: ApiServer) -> None:
    for tree in share(valid_trees()):
        assert complaint(crds, tree) in ("", None), tree
    accepted = set()
    for case in share(REFUSED):
        tree = yaml.safe_load(case.text)
        found = complaint(crds, tree)
        if found is None:
            continue
        if case.id in LEFT_TO_US:
            accepted.add(case.id)
            continue
        assert found, case.id
        assert ELSEWHERE.get(case.id, case.path) in found, (case.id, found)
    if SHARE == 1:
        assert accepted == LEFT_TO_US


def test_what_the_validators_take_is_taken(crds: ApiServer) -> None:
    """CRD-1, over documents made of valid ones by changing some of their fields."""
    trees = [tree for tree in valid_trees() if path_of(tree) is not None]
    taken = [0]

    @settings(
        max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    @given(st.integers(0, len(trees) - 1), st.randoms(use_true_random=False))
    def holds(index: int, luck: random.Random) -> None:
        for _ in range(25):
            try:
                resource = apply_defaults(resource_from_tree(mutated(trees[index], luck)))
            except InvalidValue:
                continue
            if problems(resource):
                continue
            taken[0] += 1
            tree = json.loads(shown_value(resource))
            assert not complaint(crds, tree), tree
            break

    holds()
    assert taken[0] > EXAMPLES // 4


def test_kubectl_shows_what_an_operator_looks_for(crds: ApiServer) -> None:
    spec = {"cidr": "10.77.0.0/16", "ipipMode": "CrossSubnet", "natOutgoing": True}
    pools = f"/apis/{GROUP}/v1/ippools"
    crds.ensure(pools, {"metadata": {"name": "shown"}, "spec": spec, **_type("IPPool")})
    head, row = kubectl(crds, "get", "ippools.crd.projectcalico.org", "shown").splitlines()
    assert head.split()[:6] == ["NAME", "CIDR", "IPIP", "VXLAN", "NAT", "DISABLED"]
    assert row.split()[:4] == ["shown", "10.77.0.0/16", "CrossSubnet", "true"]
    assert "all()" in row
    policy = {"order": 10.5, "selector": "a == 'b'", "ingress": [{"action": "Allow"}]}
    policies = f"/apis/{GROUP}/v1/globalnetworkpolicies"
    crds.ensure(
        policies, {"metadata": {"name": "p"}, "spec": policy, **_type("GlobalNetworkPolicy")}
    )
    head, row = kubectl(crds, "get", "gnp", "p").splitlines()
    assert (head.split()[:4], row.split()[:6]) == (
        ["NAME", "TIER", "ORDER", "SELECTOR"],
        ["p", "default", "10.5", "a", "==", "'b'"],
    )
    for path, name in ((pools, "shown"), (policies, "p")):
        crds.delete(f"{path}/{name}")


def test_every_definition_has_a_table(crds: ApiServer) -> None:
    for one in DEFINITIONS:
        assert kubectl(crds, "get", one.name, "-A", "-o", "wide") is not None


def test_a_pool_keeps_its_range_and_its_blocks(crds: ApiServer) -> None:
    path = f"/apis/{GROUP}/v1/ippools"
    spec = {"cidr": "10.78.0.0/16", "blockSize": 26}
    crds.ensure(path, {"metadata": {"name": "fixed"}, "spec": spec, **_type("IPPool")})
    for change in ({"cidr": "10.79.0.0/16"}, {"blockSize": 27}):
        with pytest.raises(ApiRefused, match=f"spec.{next(iter(change))}.* cannot be changed"):
            crds.call(
                "PATCH",
                f"{path}/fixed",
                {"spec": change},
                content="application/merge-patch+json",
            )
    crds.delete(f"{path}/fixed")


def test_ipam_keeps_nulls_and_what_it_does_not_know(crds: ApiServer) -> None:
    spec = {
        "cidr": "10.77.0.0/30",
        "affinity": "host:n1",
        "allocations": [0, None, None, None],
        "unallocated": [1, 2, 3],
        "attributes": [{"handle_id": "h", "secondary": {"node": "n1"}}],
        "sequenceNumber": 7,
        "sequenceNumberForAllocation": {"0": 7},
        "strictAffinity": False,
        "ofTomorrow": {"a": 1},
    }
    path = f"/apis/{GROUP}/v1/ipamblocks"
    crds.ensure(path, {"metadata": {"name": "b"}, "spec": spec, **_type("IPAMBlock")})
    found = crds.call("GET", f"{path}/b")["spec"]
    assert found == spec
    crds.delete(f"{path}/b")


def test_defaults_are_those_that_calico_stores(crds: ApiServer) -> None:
    path = f"/apis/{GROUP}/v1/ippools"
    made = crds.call(
        "POST",
        f"{path}?dryRun=All",
        {"metadata": {"name": "d"}, "spec": {"cidr": "fd00::/64"}, **_type("IPPool")},
    )
    assert made["spec"] == {
        "cidr": "fd00::/64",
        "assignmentMode": "Automatic",
        "nodeSelector": "all()",
    }


def _type(kind: str) -> dict[str, str]:
    return {"apiVersion": f"{GROUP}/v1", "kind": kind}
