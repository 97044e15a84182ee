"""What a short command imports on the Kubernetes datastore (as tests/calicoctl/test_start.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apiserver import kdd
from tests.calicoctl.test_start import HEAVY, POOL, SET, imported
from tests.support.apiserver import ApiServer, kubeconfig

NEEDED = {"ssl"}
"""The API is reached by TLS."""
MORE_THAN_PYTHON = {"version": 225, "get nodes": 239, "ipam show": 239, "apply -f one.yaml": 255}
"""Modules beside those of `python -c ''`, 24 of them to read the kubeconfig.

A step up needs a reason."""


@pytest.fixture
def store(api: ApiServer) -> Iterator[ApiServer]:
    """Empty before and after."""
    kdd.install(api)
    kdd.clean(api)
    yield api
    api.delete(f"{kdd.CRD}/globalnetworksets")
    kdd.clean(api)


@pytest.mark.parametrize("words", MORE_THAN_PYTHON)
def test_a_short_command_imports_little(words: str, store: ApiServer, tmp_path: Path) -> None:
    api = store
    kdd.node(api, "short-commands", "192.0.2.1")
    (tmp_path / "kubeconfig").write_text(kubeconfig(api))
    environ = {"DATASTORE_TYPE": "kubernetes", "KUBECONFIG": str(tmp_path / "kubeconfig")}
    (tmp_path / "pool.yaml").write_text(POOL)
    (tmp_path / "one.yaml").write_text(SET)
    imported("apply -f pool.yaml", environ, tmp_path)
    modules = imported(words, environ, tmp_path)
    assert not (HEAVY - NEEDED) & {one.partition(".")[0] for one in modules}
    assert len(modules) <= MORE_THAN_PYTHON[words], sorted(modules)
