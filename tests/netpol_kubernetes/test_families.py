"""The families of Cyclonus through a real kube-apiserver, on iptables-nft and on nftables.

What Kubernetes' words say of the objects is judged without packets in tests/cyclonus.
"""

from __future__ import annotations

import pytest

from tests.cyclonus import calico
from tests.cyclonus.cluster import histories
from tests.cyclonus.test_families import TITLES, by_title
from tests.cyclonus.world import Runner


@pytest.mark.promise("M-117", "F-67", "F-68")
@pytest.mark.parametrize("title", TITLES)
def test_packets_agree(runner: Runner, title: str) -> None:
    for number, cluster in enumerate(histories(by_title(runner)[title])):
        runner.become(cluster)
        runner.expect(calico.matrices(cluster, runner.addresses), f"{title} step {number}")
