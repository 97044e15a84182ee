"""Where the datastore is: environment, file, precedence, contradictions."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path

import pytest

from libcalico import apiconfig
from libcalico.apiconfig import DatastoreConfig, from_environment, from_file, load, of_node
from libcalico.datastore import connect
from libcalico.errors import InvalidValue, MuslinError
from libcalico.process import paths

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


@pytest.mark.parametrize("name", ["DATASTORE_TYPE", "CALICO_ETCD_USERNAME", "KUBECONFIG"])
def test_a_node_takes_the_environment_alone_or_the_file_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "default.cfg"
    monkeypatch.setattr(paths, "CALICOCTL_CONFIG", file)
    told = {"ETCD_ENDPOINTS": "http://y:1"}
    assert of_node({}) == from_environment({})
    file.write_text(HEAD + "  etcdEndpoints: http://x:1\n  etcdUsername: u\n")
    assert (of_node(told).endpoints, of_node(told).username) == (("http://y:1",), "")
    assert of_node({name: "v"}) == from_environment({name: "v"})
    assert (of_node({}).endpoints, of_node({}).username) == (("http://x:1",), "u")
    assert load(None, told).endpoints == ("http://x:1",)  # calicoctl has the other rule


def test_every_program_of_a_node_has_the_one_rule() -> None:
    """Who reads the environment or the file by another way is named."""
    root = Path(apiconfig.__file__).parent.parent
    others = []
    for package in ("node", "felix", "bgp", "cni"):
        for path in sorted((root / package).rglob("*.py")):
            text = path.read_text()
            if "apiconfig" in text and ("from_environment(" in text or "load(None" in text):
                others.append(str(path.relative_to(root)))
    readers = [Path("felix/agent.py"), Path("bgp/serving.py"), Path("cni/main.py")]
    assert all("apiconfig.of_node(" in (root / each).read_text() for each in readers)
    assert others == []


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ("[]", "kind"),
        ("apiVersion: projectcalico.org/v3\nkind: Other\n", "kind"),
        ("apiVersion: v2\nkind: CalicoAPIConfig\n", "apiVersion"),
        ("apiVersion: v1\nkind: Other\n", "apiVersion"),
        (HEAD + "  - a\n", "spec"),
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
        ({"read_key_file": "k"}, "etcdReadKeyFile"),
        ({"read_endpoints": "http://b:1,b:2"}, "etcdReadEndpoints"),
        ({"key": "k", "cert": "c", "ca_file": "f"}, "etcdKeyFile"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, str], field: str) -> None:
    settings = {"datastore_type": apiconfig.ETCD, "etcd_endpoints": "http://a:1", **changes}
    with pytest.raises(InvalidValue) as problem:
        DatastoreConfig(**settings).check()  # type: ignore[arg-type]
    assert problem.value.field == field


def test_reads_through_a_proxy_have_their_own_identity_else_the_main_one() -> None:
    main = DatastoreConfig(
        etcd_endpoints="https://a:1",
        read_endpoints="https://p:1, https://q:1",
        username="node",
        password="own",
        ca_file="ca",
        cert_file="cert",
        key_file="key",
    )
    assert main.proxies == ("https://p:1", "https://q:1")
    same = main.through("https://p:1")
    assert (same.endpoints, same.proxies) == (("https://p:1",), ())
    assert (same.username, same.password) == ("", "")
    assert (same.ca_file, same.cert_file, same.key_file) == ("ca", "cert", "key")
    assert same.proxied, "a proxy ends connections that ping more often"
    files = {"read_ca_file": "r-ca", "read_cert_file": "r-cert", "read_key_file": "r-key"}
    other = replace(main, **files).through("https://p:1")  # type: ignore[arg-type]
    assert (other.ca_file, other.cert_file, other.key_file) == ("r-ca", "r-cert", "r-key")
    inline = DatastoreConfig(ca="A", cert="C", key="K", read_cert_file="r", read_key_file="r")
    mixed = inline.through("https://p:1")
    assert (mixed.ca, mixed.cert, mixed.key, mixed.cert_file) == ("A", "", "", "r")


FIRST_GENERATION = """\
apiVersion: v1
kind: calicoApiConfig
metadata:
spec:
  datastoreType: "etcdv2"
  etcdEndpoints: "https://192.0.2.1:2379,https://192.0.2.2:2379,https://192.0.2.3:2379"
  etcdKeyFile: /etc/calico/calico.key
  etcdCertFile: /etc/calico/calico.crt
  etcdCACertFile: /etc/calico/ca.crt
"""


def test_a_file_of_the_first_generation(tmp_path: Path) -> None:
    file = tmp_path / "c.cfg"
    file.write_text(FIRST_GENERATION)
    config = load(file, {})
    config.check()
    assert config.datastore_type == apiconfig.ETCD
    assert config.endpoints == tuple(f"https://192.0.2.{n}:2379" for n in (1, 2, 3))
    assert config.key_file == "/etc/calico/calico.key"
    assert config.cert_file == "/etc/calico/calico.crt"
    assert config.ca_file == "/etc/calico/ca.crt"
    (notice,) = config.notices
    assert "etcdv2" in notice
    file.write_text(FIRST_GENERATION.replace('"etcdv2"', "etcdv3"))
    assert load(file, {}).notices == ()


ALL_KEYS = {
    "DATASTORE_TYPE": "datastoreType",
    "ETCD_ENDPOINTS": "etcdEndpoints",
    "ETCD_DISCOVERY_SRV": "etcdDiscoverySrv",
    "ETCD_USERNAME": "etcdUsername",
    "ETCD_PASSWORD": "etcdPassword",
    "ETCD_KEY_FILE": "etcdKeyFile",
    "ETCD_CERT_FILE": "etcdCertFile",
    "ETCD_CA_CERT_FILE": "etcdCACertFile",
    "ETCD_READ_ENDPOINTS": "etcdReadEndpoints",
    "ETCD_READ_KEY_FILE": "etcdReadKeyFile",
    "ETCD_READ_CERT_FILE": "etcdReadCertFile",
    "ETCD_READ_CA_CERT_FILE": "etcdReadCACertFile",
    "KUBECONFIG": "kubeconfig",
    "K8S_API_ENDPOINT": "k8sAPIEndpoint",
    "K8S_KEY_FILE": "k8sKeyFile",
    "K8S_CERT_FILE": "k8sCertFile",
    "K8S_CA_FILE": "k8sCAFile",
    "K8S_INSECURE_SKIP_TLS_VERIFY": "k8sInsecureSkipTLSVerify",
    "K8S_DISABLE_NODE_POLL": "k8sDisableNodePoll",
    "USE_POD_CIDR": "usePodCIDR",
    "K8S_CLIENT_QPS": "k8sClientQPS",
    "K8S_CLIENT_BURST": "k8sClientBurst",
    "K8S_CURRENT_CONTEXT": "k8sCurrentContext",
    "CALICO_API_GROUP": "calicoAPIGroup",
}


@pytest.mark.parametrize("prefix", ["", "CALICO_"])
def test_every_key_counts_in_the_environment_and_in_a_file(tmp_path: Path, prefix: str) -> None:
    values = {name: f"v{number}" for number, name in enumerate(ALL_KEYS)}
    by_environment = from_environment({f"{prefix}{name}": text for name, text in values.items()})
    file = tmp_path / "c.cfg"
    file.write_text(
        HEAD + "".join(f"  {ALL_KEYS[name]}: {text}\n" for name, text in values.items())
    )
    by_file = from_file(file)
    assert dataclasses.replace(by_environment, notices=()) == dataclasses.replace(
        by_file, notices=()
    )
    assert sorted(values.values()) == sorted(
        str(text)
        for name, text in dataclasses.asdict(by_file).items()
        if text and name not in ("timeout", "keepalive", "keepalive_timeout", "idle", "notices")
    )


def test_secrets_where_others_see_them_give_a_notice(tmp_path: Path) -> None:
    secret = {"ETCD_ENDPOINTS": "http://a:1", "ETCD_USERNAME": "u", "ETCD_PASSWORD": "geheim"}
    (notice,) = from_environment(secret).notices
    assert "ETCD_PASSWORD" in notice
    assert "geheim" not in notice
    assert from_environment({"ETCD_ENDPOINTS": "http://a:1"}).notices == ()
    file = tmp_path / "c.cfg"
    file.write_text(HEAD + "  etcdPassword: geheim\n")
    file.chmod(0o644)
    (notice,) = from_file(file).notices
    assert str(file) in notice
    assert "chmod 600" in notice
    file.chmod(0o600)
    assert from_file(file).notices == ()


@pytest.mark.asyncio
async def test_notices_are_logged_and_what_is_not_served_is_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environ = {"ETCD_ENDPOINTS": "http://a:1", "ETCD_USERNAME": "u", "ETCD_PASSWORD": "geheim"}
    await (await connect(from_environment(environ))).close()
    assert "ETCD_PASSWORD" in caplog.text
    assert "geheim" not in caplog.text
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    kubernetes = from_environment({})
    assert kubernetes.datastore_type == "kubernetes"
    with pytest.raises(MuslinError, match=r"no Kubernetes API: set KUBECONFIG.*ETCD_ENDPOINTS"):
        await connect(kubernetes)
    with pytest.raises(InvalidValue, match=r"CALICO_API_GROUP.*must be crd.projectcalico.org/v1"):
        await connect(replace(kubernetes, api_group="projectcalico.org/v3"))
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text("{}")
    with pytest.raises(MuslinError, match="current-context"):
        await connect(kubernetes)
    with pytest.raises(InvalidValue, match=r"etcdDiscoverySrv.*not served.*etcdEndpoints"):
        await connect(DatastoreConfig(datastore_type="etcdv3", discovery_srv="example.org"))


def test_a_default_file_says_which_variables_it_passes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "calicoctl.cfg"
    file.write_text(HEAD + "  datastoreType: etcdv3\n  etcdEndpoints: http://x:1\n")
    monkeypatch.setattr(paths, "CALICOCTL_CONFIG", file)
    other = {"ETCD_ENDPOINTS": "http://y:1", "ETCD_USERNAME": "u"}
    config = load(None, other)
    assert config.endpoints == ("http://x:1",)
    assert config.notices == (
        f"{file} exists, so the environment is not asked: ignored are ETCD_ENDPOINTS",
    )
    # What names the same datastore is not worth a word, nor is a file that was named by hand.
    assert load(None, {"CALICO_ETCD_ENDPOINTS": "http://x:1"}).notices == ()
    assert load(file, other).notices == ()
