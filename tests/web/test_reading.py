"""One reading of a real etcd holds all that was stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from calicoctl.session import Options
from libcalico.errors import DatastoreUnavailable
from libcalico.process import paths
from tests.support.etcd import Etcd
from tests.support.ports import free_ports
from tests.web import world
from web.facts.reading import Source, read
from web.views.health import health


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Options:
    """Settings that come by the environment."""
    monkeypatch.setattr(paths, "CALICOCTL_CONFIG", tmp_path / "none.cfg")
    return Options()


def test_everything_is_read(
    etcd: Etcd, options: Options, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in etcd.environment().items():
        monkeypatch.setenv(name, value)
    world.store(etcd)
    etcd.put("/calico/resources/v3/projectcalico.org/ippools/broken", "{")
    folder = world.write_status(tmp_path / "n2")
    facts = read(Source(options, {"n2": folder}))
    assert facts.nodes == ["n1", "n2", "n3"]
    assert set(facts.statuses) == {"n1"}
    assert set(facts.words) == {"n2"}
    assert {pool.name for pool in facts.snapshot.pools} == {"pods", "small"}
    assert any("broken" in one for one in facts.unreadable)
    again = read(Source(options, {}), facts)
    assert again.topology is facts.topology
    etcd.delete("/calico/resources/v3/projectcalico.org/bgppeers/tor")
    assert read(Source(options, {}), again).topology != facts.topology
    told = " ".join(one.text for one in health(facts).findings)
    assert "leaked" in told
    assert "port 179 refuses" in told


def test_without_a_datastore_it_says_so(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    monkeypatch.setenv("DATASTORE_TYPE", "etcdv3")
    monkeypatch.setenv("ETCD_ENDPOINTS", f"http://127.0.0.1:{port}")
    with pytest.raises(DatastoreUnavailable):
        read(Source(options, {}))
