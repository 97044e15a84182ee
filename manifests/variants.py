"""What is rendered from the chart: the flat files, and the kustomize bases and overlays.

A flat file is for `kubectl apply -f`. A mode changes how nodes reach each other; it is one
kustomize component (`modes/`), written by hand, that fits both datastores, and one set of values
for Helm: a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from manifests import chart

HERE = Path(__file__).parent
CRDS = HERE / "crds"
VALUES: Mapping[str, Mapping[str, Any]] = {
    "etcd": {"datastore": "etcd"},
    "kubernetes": {"datastore": "kubernetes"},
}
"""The chart's values for each datastore."""

POLICY_ONLY: Mapping[str, Any] = {
    "backend": "none",
    "clusterType": "k8s",
    "pool": {"none": True},
    "cni": {"ipam": "host-local"},
}
MODES: Mapping[str, Mapping[str, Any]] = {
    "bgp": {"backend": "bird", "pool": {"ipip": "Never", "vxlan": "Never"}},
    "ipip": {"backend": "bird", "pool": {"ipip": "Always", "vxlan": "Never"}},
    "cross-subnet": {"backend": "bird", "pool": {"ipip": "CrossSubnet", "vxlan": "Never"}},
    "vxlan": {
        "backend": "vxlan",
        "clusterType": "k8s",
        "pool": {"ipip": "Never", "vxlan": "Always"},
    },
    "policy-only": POLICY_ONLY,
}
"""The chart's values for each mode. (`route-reflector` adds objects and changes none.)"""

CANAL: Mapping[str, Any] = {
    **POLICY_ONLY,
    "datastore": "kubernetes",
    # flannel's own plugin gave addresses of the same range before: host-local keeps them under the
    # network's name, so ours is flannel's.
    "cni": {"ipam": "host-local", "confName": "10-canal.conflist", "network": "cbr0"},
}
"""The chart's values for canal.yaml."""

HEADS = {
    "calico-etcd.yaml": """\
# Muslin with etcd as its datastore. Set etcd_endpoints below, fill the Secret where etcd speaks TLS
# (`./run manifests secret`), then: kubectl apply -f calico-etcd.yaml
""",
    "calico.yaml": """\
# Muslin with its data in the Kubernetes API: kubectl apply -f calico.yaml
""",
    "canal.yaml": """\
# Muslin's policy beside flannel, which routes between the nodes: apply flannel's manifest first,
# then: kubectl apply -f canal.yaml
""",
}
RENDERED = "# Rendered from manifests/helm/muslin by `./run manifests render`: change it there.\n"


def crds() -> str:
    """All custom resource definitions as one YAML stream; empty where there are none."""
    return "".join(
        f"---\n{path.read_text().removeprefix('---').lstrip()}"
        for path in sorted(CRDS.glob("*.yaml"))
        if path.name != "kustomization.yaml"
    )


def files(images: Mapping[str, str] | None = None) -> dict[str, str]:
    """Every rendered file by its path below this folder. `images`: other names than the chart's."""
    more = {"images": dict(images)} if images else {}
    etcd = chart.render({**VALUES["etcd"], **more})
    kubernetes = chart.render({**VALUES["kubernetes"], **more})
    canal = chart.render({**CANAL, **more})
    found = {
        "calico-etcd.yaml": _headed("calico-etcd.yaml", etcd),
        "calico.yaml": _headed("calico.yaml", kubernetes, crds()),
        "canal.yaml": _headed("canal.yaml", canal, crds()),
        "base/etcd/muslin.yaml": RENDERED + etcd,
        "base/kubernetes/muslin.yaml": RENDERED + kubernetes,
        "base/etcd/kustomization.yaml": _kustomization(["muslin.yaml"]),
        "base/kubernetes/kustomization.yaml": _kustomization(["../../crds", "muslin.yaml"]),
        "crds/kustomization.yaml": _kustomization(
            sorted(path.name for path in CRDS.glob("*.yaml") if path.name != "kustomization.yaml")
        ),
    }
    for store in VALUES:
        for mode in sorted(MODES):
            found[f"overlays/{store}/{mode}/kustomization.yaml"] = _overlay(store, mode)
    found["overlays/kubernetes/route-reflector/kustomization.yaml"] = _overlay(
        "kubernetes", "route-reflector"
    )
    return found


def _headed(name: str, text: str, before: str = "") -> str:
    return HEADS[name] + RENDERED + before + ("---\n" if before else "") + text


def _overlay(store: str, mode: str) -> str:
    return _kustomization([f"../../../base/{store}"], [f"../../../modes/{mode}"])


def _kustomization(resources: list[str], components: list[str] | None = None) -> str:
    document: dict[str, Any] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": resources,
    }
    if components:
        document["components"] = components
    return RENDERED + yaml.safe_dump(document, sort_keys=False)
