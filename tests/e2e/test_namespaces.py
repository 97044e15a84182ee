"""Namespaces of the lab become profiles through calicoctl, before the first pod of theirs."""

from __future__ import annotations

import subprocess
import sys

from lab import namespaces, pods
from lab.cluster import Lab
from lab.demo import look
from tests.e2e.test_settings import POOL

PROFILES = f"{look.RESOURCES}/profiles/"


def test_a_namespace_is_two_profiles(small: Lab) -> None:
    command = [sys.executable, "-m", "lab", "namespace", "add", "shop", "--lab", small.name]
    labels = ["--label", "team=blue", "--account-label", "trusted=yes"]
    done = subprocess.run([*command, *labels], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "kind: Namespace" in done.stdout
    found = look.etcd(small, PROFILES)
    spec = found[f"{PROFILES}kns.shop"]["spec"]
    assert spec["ingress"] == spec["egress"] == [{"action": "Allow"}]
    assert spec["labelsToApply"] == {
        "pcns.kubernetes.io/metadata.name": "shop",
        "pcns.projectcalico.org/name": "shop",
        "pcns.team": "blue",
    }
    spec = found[f"{PROFILES}ksa.shop.default"]["spec"]
    assert spec["labelsToApply"] == {
        "pcsa.projectcalico.org/name": "default",
        "pcsa.trusted": "yes",
    }


def test_a_pod_brings_its_namespace_once(small: Lab) -> None:
    small.nodes[0].run(["calicoctl", "apply", "-f", "-"], stdin=POOL)
    namespaces.add(small, "old", {"kept": "yes"})
    made = [pods.add(small, "one", "node1", namespace=name) for name in ("old", "new")]
    found = look.etcd(small, PROFILES)
    assert found[f"{PROFILES}kns.old"]["spec"]["labelsToApply"]["pcns.kept"] == "yes"
    assert f"{PROFILES}kns.new" in found
    assert f"{PROFILES}ksa.new.default" in found
    for pod in made:
        pods.remove(small, pod)
