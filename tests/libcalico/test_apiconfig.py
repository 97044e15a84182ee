"""Where the datastore is: environment, file, precedence, contradictions."""

from __future__ import annotations

from pathlib import Path

import pytest

from libcalico import apiconfig, paths
from libcalico.apiconfig import DatastoreConfig, from_environment, from_file, load
from libcalico.errors import InvalidValue, MuslinError

HEAD = "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata: {}\nspec:\n"


def test_the_environment() -> None:
    config = from_environment(
        {
            "ETCD_ENDPOINTS": "http://a:2379, https://b:2379",
            "CALICO_ETCD_USERNAME": "u",
            "ETCD_PASSWORD": "secret",
        }
    )
    assert config.datastore_type == "etcdv3"
    assert config.endpoints == ("http://a:2379", "https://b:2379")
    assert (config.username, config.password) == ("u", "secret")
    assert "secret" not in repr(config)
    config.check()
    assert from_environment({}).datastore_type == "kubernetes"


def test_a_file_is_the_only_source(tmp_path: Path) -> None:
    file = tmp_path / "c.cfg"
    file.write_text(HEAD + "  etcdEndpoints: http://x:1\n  k8sInsecureSkipTLSVerify: true\n")
    config = load(file, {"ETCD_ENDPOINTS": "http://y:1", "ETCD_USERNAME": "u"})
    assert config.endpoints == ("http://x:1",)
    assert config.username == ""
    assert config.k8s_insecure == "true"


def test_the_default_file_may_be_missing_another_may_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "CALICOCTL_CONFIG", tmp_path / "default.cfg")
    assert load(None, {"ETCD_ENDPOINTS": "http://y:1"}).endpoints == ("http://y:1",)
    with pytest.raises(MuslinError, match="Error reading config file"):
        load(tmp_path / "other.cfg", {})


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ("[]", "kind"),
        ("apiVersion: projectcalico.org/v3\nkind: Other\n", "kind"),
        ("apiVersion: v1\nkind: CalicoAPIConfig\n", "apiVersion"),
        (HEAD + "  etcdEndpoint: x\n", "spec.etcdEndpoint"),
        (HEAD + "  etcdEndpoints: [a]\n", "spec.etcdEndpoints"),
        (HEAD + "  {}\nmore: 1\n", "more"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, content: str, field: str) -> None:
    file = tmp_path / "c.cfg"
    file.write_text(content)
    with pytest.raises(InvalidValue) as problem:
        from_file(file)
    assert problem.value.field == field
    file.write_text("a: [")
    with pytest.raises(MuslinError, match="YAML"):
        from_file(file)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"datastore_type": "mysql"}, "datastoreType"),
        ({"etcd_endpoints": ""}, "etcdEndpoints"),
        ({"etcd_endpoints": "a:2379"}, "etcdEndpoints"),
        ({"discovery_srv": "x"}, "etcdDiscoverySrv"),
        ({"key_file": "k"}, "etcdKeyFile"),
        ({"key": "k", "cert": "c", "ca_file": "f"}, "etcdKeyFile"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, str], field: str) -> None:
    settings = {"datastore_type": apiconfig.ETCD, "etcd_endpoints": "http://a:1", **changes}
    with pytest.raises(InvalidValue) as problem:
        DatastoreConfig(**settings).check()  # type: ignore[arg-type]
    assert problem.value.field == field
