"""Helm renders from the chart what the flat files say: to the byte, and with other values too."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests import chart, variants
from tests.manifests.helm_program import HELM
from tests.manifests.rendered import Tree, by_name

VALUES: dict[str, Mapping[str, Any]] = {
    **variants.VALUES,
    "canal": variants.CANAL,
    "everything": {
        "pool": {"cidr": "10.244.0.0/16"},
        "imagePullSecrets": [{"name": "registry"}],
        "cni": {"criSocket": "/run/crio/crio.sock", "mtu": "1440"},
        "bgp": {"passwordSecrets": ["one", "two"]},
        "goldmane": {
            "enabled": True,
            "clusterIP": "10.96.0.71",
            "address": "10.96.0.71:7443",
            "askers": "admin,web",
        },
        "etcd": {
            "endpoints": "https://a:2379,https://b:2379",
            "ca": "YQ==",
            "readEndpoints": "https://10.96.0.70:23790",
            "proxy": {"replicas": 2, "clusterIP": "10.96.0.70", "secret": "proxies"},
        },
    },
    **{f"mode-{name}": values for name, values in variants.MODES.items()},
}
FAST = ("etcd", "everything")
CHOSEN = list(VALUES) if "MUSLIN_FULL_SIZE" in os.environ else FAST
pytestmark = pytest.mark.skipif(bool(HELM.missing()), reason=HELM.missing_told() or "-")


def helm(*arguments: str, home: Path) -> str:
    environ = {"PATH": os.environ["PATH"], "HOME": str(home)}
    done = subprocess.run(
        [str(HELM.folder() / "helm"), *arguments],
        capture_output=True, text=True, check=False, env=environ,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def templated(values: Mapping[str, Any], folder: Path, *more: str) -> dict[str, Tree]:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(dict(values)))
    where = ["template", "muslin", str(chart.CHART), "--namespace", "kube-system"]
    return by_name(helm(*where, "--values", str(file), *more, home=folder))


@pytest.mark.promise("F-107")
@pytest.mark.parametrize("name", CHOSEN)
def test_helm_says_the_same(name: str, tmp_path: Path) -> None:
    assert templated(VALUES[name], tmp_path) == by_name(chart.render(VALUES[name]))


@pytest.mark.promise("F-107")
def test_the_chart_is_one_that_helm_takes(tmp_path: Path) -> None:
    said = helm("lint", "--strict", str(chart.CHART), home=tmp_path)
    assert "0 chart(s) failed" in said


def test_the_chart_brings_the_custom_resources(tmp_path: Path) -> None:
    found = templated(variants.VALUES["kubernetes"], tmp_path, "--include-crds")
    kinds = [one for one in found if one.startswith("CustomResourceDefinition/")]
    assert sorted(kinds) == sorted(
        f"CustomResourceDefinition/{one['metadata']['name']}"
        for one in by_name(variants.crds()).values()
    )
