"""Labels of pods reach their endpoints (ELB-1)."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.addresses.pods import Pods
from controllers.endpoints.endpoint_labels import EndpointLabels, PodFacts, facts_of, relabelled
from controllers.mirror.objects import Pod
from libcalico import names
from libcalico.datastore.interface import ABSENT, Datastore, Put
from libcalico.kubernetes.names import Name
from libcalico.model import Metadata, WorkloadEndpoint, WorkloadEndpointSpec
from libcalico.model.codec import encode_value
from libcalico.model.keys import ResourceKey
from tests.controllers.running import running
from tests.ipam.memory import MemoryStore
from tests.support.apiserver import ApiServer
from tests.support.etcd import Etcd
from tests.support.patience import until

OWN = "projectcalico.org/"
labels = st.dictionaries(st.sampled_from(["a", "b", OWN + "namespace"]), st.just("x"), max_size=3)


def endpoint(pod: str, node: str, address: str, space: str = "s", **known: str) -> WorkloadEndpoint:
    name = names.workload_endpoint_name(node, "k8s", pod, "eth0")
    return WorkloadEndpoint(
        metadata=Metadata(name=name, namespace=space, labels=known),
        spec=WorkloadEndpointSpec(
            orchestrator="k8s",
            node=node,
            pod=pod,
            endpoint="eth0",
            containerID="c1",
            ipNetworks=[f"{address}/32"],
            interfaceName="cali1",
        ),
    )


@given(labels, labels, st.sampled_from(["", "till", "a" * 63]))
def test_an_endpoint_gets_its_pods_labels_and_then_nothing(
    before: dict[str, str], wanted: dict[str, str], account: str
) -> None:
    there = endpoint("web", "n1", "10.0.0.1", **before)
    facts = PodFacts("n1", account, wanted, ("10.0.0.1",))
    fresh = relabelled(there, facts)
    assert fresh is not None
    found = fresh.metadata.labels
    assert {key: found[key] for key in wanted if not key.startswith(OWN)} == {
        key: value for key, value in wanted.items() if not key.startswith(OWN)
    }
    assert found[OWN + "namespace"] == "s", "no pod names its own namespace"
    assert (OWN + "serviceaccount" in found) == (account == "till")
    assert fresh.spec.ipNetworks == there.spec.ipNetworks
    assert relabelled(fresh, facts) is None, "ELB-1"


@pytest.mark.parametrize(
    "facts",
    [
        PodFacts("n2", "", {"a": "b"}, ("10.0.0.1",)),
        PodFacts("n1", "", {"a": "b"}, ("10.0.0.9",)),
        PodFacts("n1", "", {"a": "b"}, ()),
    ],
    ids=["another node", "another address", "no address yet"],
)
def test_the_endpoint_of_another_pod_of_the_name_is_left(facts: PodFacts) -> None:
    assert relabelled(endpoint("web", "n1", "10.0.0.1"), facts) is None


@pytest.mark.asyncio
async def test_a_label_that_changes_reaches_the_endpoint(cluster: ApiServer, stored: Etcd) -> None:
    cluster.namespace("lab")
    pods = "/api/v1/namespaces/lab/pods"
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}
    document: dict[str, Any] = {"metadata": {"name": "web", "labels": {"app": "v1"}}, "spec": spec}
    cluster.ensure(pods, document)
    status = {"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}}
    patch = "application/merge-patch+json"
    cluster.call("PATCH", f"{pods}/web/status", status, content=patch)
    there = endpoint("web", "n1", "10.0.0.1", "lab", app="v1")
    key = ResourceKey("WorkloadEndpoint", there.metadata.name, "lab")
    async with stored.connect() as store:
        await store.commit([Put(key, there, ABSENT)])
        client = cluster.client()
        part = EndpointLabels(client, store)

        async def app(value: str) -> bool:
            entry = await store.get(key)
            return entry is not None and entry.value.metadata.labels.get("app") == value

        async with running(part):
            await until(lambda: part.in_sync and part.writes == 1)
            change = {"metadata": {"labels": {"app": "v2"}}}
            cluster.call("PATCH", f"{pods}/web", change, content=patch)
            await until(lambda: part.writes == 2)
            assert await app("v2")
            # Deleted, it is its node's to remove.
            cluster.call("DELETE", f"{pods}/web?gracePeriodSeconds=0")
            await until(lambda: ("lab", "web") not in part._pods)
            assert await app("v2")
        again = EndpointLabels(client, store)
        async with running(again):
            await until(lambda: again.in_sync)
            assert again.writes == 0
        await client.close()


def pod(spec: dict[str, Any], *addresses: str, **labels: str) -> Pod:
    """A pod as the API server sends it."""
    document = {
        "metadata": {"name": "web", "namespace": "s", "labels": labels},
        "spec": spec,
        "status": {"podIPs": [{"ip": one} for one in addresses]},
    }
    return msgspec.json.decode(json.dumps(document), type=Pod)


@pytest.mark.parametrize(
    ("spec", "addresses", "has"),
    [
        ({"nodeName": "n1"}, ("10.0.0.1",), True),
        ({"nodeName": "n1", "hostNetwork": False}, ("10.0.0.1",), True),
        ({"nodeName": "n1", "hostNetwork": True}, ("10.0.0.1",), False),
        ({}, ("10.0.0.1",), False),
        ({"nodeName": "n1"}, (), False),
    ],
)
def test_which_pods_have_an_endpoint_of_ours(
    spec: dict[str, Any], addresses: tuple[str, ...], has: bool
) -> None:
    facts = facts_of(pod(spec, *addresses, app="v1"))
    assert facts == (PodFacts("n1", "", {"app": "v1"}, addresses) if has else None)


@pytest.mark.asyncio
async def test_a_pod_that_changes_is_written_once_and_one_without_address_never() -> None:
    store = MemoryStore()
    there = endpoint("web", "n1", "10.0.0.1", app="v1")
    key = ResourceKey("WorkloadEndpoint", there.metadata.name, "s")
    await store.commit([Put(key, there, ABSENT)])
    name, nothing = Name("s", "web"), cast(Any, None)
    part = EndpointLabels(nothing, cast(Datastore, store), pods=Pods(nothing))
    part._endpoints.begin()
    raw = encode_value(key, there)
    part._endpoints.apply_rows([(f"s/{there.metadata.name}", raw, store.revision)])
    part._endpoints.end()
    assert len(part.queue) == 0, "no pod is known yet"
    part.put(name, pod({"nodeName": "n1"}, "10.0.0.1", app="v2"))
    assert len(part.queue) == 1
    assert await part._settle(name)
    assert store.entries[key].value.metadata.labels["app"] == "v2"
    assert (part.writes, part.failures) == (1, 0)
    part.put(name, pod({"nodeName": "n1"}, app="v3"))
    assert await part._settle(name)
    assert store.entries[key].value.metadata.labels["app"] == "v2"
    assert part.writes == 1
