"""A restart with nothing to do asks the API for no change, as the API's own audit log tells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from libcalico.datastore.interface import ABSENT, Put
from libcalico.model.keys import ResourceKey
from tests.controllers.fresh import versions
from tests.controllers.scrape import in_sync, metric, with_metrics
from tests.controllers.test_endpoint_labels import endpoint
from tests.controllers.test_load_balancers import service, told
from tests.controllers.test_mirrors import DEFAULT_DENY, policy
from tests.controllers.test_nodes import NODES, put_node
from tests.controllers.test_process import Running, start, wait
from tests.ipam.world import put_pool
from tests.support.apiserver import ApiServer
from tests.support.audit import Audit, Request, by_kind
from tests.support.etcd import Etcd, free_ports

__all__ = ["start"]

ASKED = "projectcalico.org/loadBalancerIPs"
COMPARED = {"RECONCILER_PERIOD": "1s"}
"""Everything is compared again each second."""


async def something_of_everything(cluster: ApiServer, stored: Etcd, port: int) -> None:
    """Work for every controller."""
    for space in ("quiet", "lb"):
        cluster.namespace(space)
    policy(cluster, "quiet", "deny", DEFAULT_DENY)
    cluster.ensure("/api/v1/namespaces/quiet/serviceaccounts", {"metadata": {"name": "till"}})
    cluster.ensure(NODES, {"metadata": {"name": "q1", "labels": {"rack": "a"}}})
    pods = "/api/v1/namespaces/quiet/pods"
    spec = {"nodeName": "q1", "containers": [{"name": "c", "image": "i"}]}
    cluster.ensure(pods, {"metadata": {"name": "web", "labels": {"app": "v1"}}, "spec": spec})
    status = {"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}}
    patch = "application/merge-patch+json"
    cluster.call("PATCH", f"{pods}/web/status", status, content=patch)
    async with stored.connect() as store:
        await store.commit([with_metrics(port)])
        await put_pool(store, "services", "10.9.0.0/24", 28, allowedUses=["LoadBalancer"])
        await put_node(store, "q1", "q1")
        there = endpoint("web", "q1", "10.0.0.1", "quiet")
        key = ResourceKey("WorkloadEndpoint", there.metadata.name, "quiet")
        await store.commit([Put(key, there, ABSENT)])
    service(cluster, "web")


@pytest.mark.asyncio
async def test_after_a_restart_nothing_is_written_by_the_audit_log(
    cluster: ApiServer, stored: Etcd, start: Callable[..., Running], audit: Audit
) -> None:
    (port,) = free_ports(1)
    await something_of_everything(cluster, stored, port)
    first = start("first", **COMPARED)
    wait(lambda: in_sync(port) and told(cluster, "web"), first.log.read_text)
    done = {part for part, count in metric(port, "writes_total").items() if count}
    parts = {"policy", "namespace", "serviceaccount", "workloadendpoint", "node", "loadbalancer"}
    assert done == parts, "each had something to write"
    assert first.stop() == 0
    before = versions(stored)
    audit.requests()

    second = start("second", **COMPARED)
    wait(lambda: in_sync(port), second.log.read_text)
    await asyncio.sleep(4.0)
    # Each second everything waits for a moment, to be compared.
    wait(lambda: in_sync(port), second.log.read_text)
    # The heartbeat of the lease is the one write that may be.
    asked = [one for one in audit.requests() if one.user.endswith(":calico-kube-controllers")]
    written = [one for one in asked if one.writes and one.resource != "leases"]
    assert asked
    assert not written, by_kind(written)
    assert versions(stored) == before
    assert not any(metric(port, "writes_total").values())

    # The same log tells when something is to be written.
    patch: dict[str, Any] = {"metadata": {"annotations": {ASKED: '["10.9.0.77"]'}}}
    content = "application/merge-patch+json"
    cluster.call("PATCH", "/api/v1/namespaces/lb/services/web", patch, content=content)
    wait(lambda: told(cluster, "web") == ["10.9.0.77"], second.log.read_text)
    wrote: list[Request] = []

    def heard() -> bool:
        wrote.extend(one for one in audit.requests() if one.writes and one.resource != "leases")
        return bool(wrote)

    wait(heard, second.log.read_text)
    assert {(one.verb, one.resource) for one in wrote} == {("patch", "services/status")}
    second.stop()
    cluster.delete("/api/v1/namespaces/lb/services/web")
    cluster.call("DELETE", f"{NODES}/q1")
