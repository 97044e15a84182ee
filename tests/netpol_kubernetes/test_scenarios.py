"""The scenarios of tests/netpol through a real kube-apiserver, on iptables-nft and on nftables.

The same YAML and the same truth tables; here it is the API's, and nothing is converted on the way
to felix but by felix. A pod's label is the Pod's, which has another uid than anybody may guess.
"""

from __future__ import annotations

import time

import pytest

from tests.netpol.case import Case, expect
from tests.netpol.test_scenarios import PLAYED
from tests.netpol.world import documents, namespace_yaml
from tests.netpol_kubernetes.world import KubernetesWorld


@pytest.mark.promise("M-117", "F-67", "F-68")
@pytest.mark.parametrize("scenario", PLAYED, ids=[case.name for case in PLAYED])
def test_scenario(clean: KubernetesWorld, scenario: Case) -> None:
    begun = time.monotonic()
    clean.run(scenario)
    print(f"{time.monotonic() - begun:.2f} s; {'; '.join(clean.said)}")


@pytest.mark.promise("M-117", "F-12")
def test_a_namespace_that_is_not_known_is_closed(clean: KubernetesWorld) -> None:
    """Without the profile that opens a namespace its pods are shut in, whatever policies say."""
    clean.delete(documents(namespace_yaml("z")))
    clean.expect(expect("tcp:80", "no */* -> z/*", "no z/* -> */*"))
    clean.apply(documents(namespace_yaml("z")))
    clean.expect(expect("tcp:80"))
