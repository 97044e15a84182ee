"""An offer comes before what the datastore tells of it, where the store can wait."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from felix.agent import Agent, Paths
from felix.offers import Offers
from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore.capabilities import Deferring
from libcalico.datastore.etcd.store import EtcdDatastore
from libcalico.datastore.kubernetes.store import KubernetesDatastore
from libcalico.local.node_api import Offer


def test_felix_says_of_each_offer_that_news_may_wait() -> None:
    offers, said = Offers("n1", cast("Any", None)), list[int]()
    offers.on_offer = lambda: said.append(1)
    other = {"kind": "WorkloadEndpoint", "metadata": {"name": "x"}, "spec": {"node": "n2"}}
    for count in (1, 2):
        offers.offer(cast("Any", None), Offer("default", "x", json.dumps(other)))
        assert len(said) == count


def test_felix_holds_the_store_that_it_follows_if_that_can_wait(tmp_path: Path) -> None:
    agent = Agent("n1", {}, Paths(tmp_path / "sock", tmp_path / "cfg", tmp_path / "status"))
    before = agent.server.offers.on_offer
    agent.echoes_wait(cast("Any", object()))
    assert agent.server.offers.on_offer is before
    agent.server.offers.on_offer()
    etcd = EtcdDatastore(DatastoreConfig(datastore_type="etcdv3", etcd_endpoints="http://[::1]:1"))
    agent.echoes_wait(etcd)
    assert agent.server.offers.on_offer == etcd.hold
    agent.server.offers.on_offer()  # before anything is followed


def test_the_kubernetes_store_tells_at_once() -> None:
    assert not issubclass(KubernetesDatastore, Deferring)
