"""Whatever stands in a variable or a configuration file: a typed error that names it, or a value.

In this process, without a datastore: every program's readers of settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bgp import idle
from bgp import serving as bgp
from bgp.bird import birdctl
from calicoctl import documents
from cni.install import configuration
from cni.install import settings as installer
from cni.server import daemon
from controllers import settings as controllers
from felix.config.parameters import PARAMETERS
from felix.config.resolve import read_file, resolve
from felix.main import node_name as felix_node_name
from flows.server import settings as goldmane
from libcalico import apiconfig, datastore
from libcalico.errors import InvalidValue, MuslinError
from libcalico.kubernetes import access
from node import probes
from node.identity import kubernetes as node_kubernetes
from node.settings import environment
from node.settings.variables import VARIABLES
from node.start.startup import name_of
from tests.size import examples

NASTY = (
    "http://<ETCD_IP>:<ETCD_PORT>",
    "http://[::1",
    "http://[::1]]:2379",
    "http://[::1]x:2379",
    "http://[fe80::1%25eth0]:2379",
    "http://[zz]:2379",
    "http://10.0.0.1:99999",
    "http://10.0.0.1:-1",
    "http://10.0.0.1:0",
    "http://10.0.0.1:",
    "http://10.0.0.1:\u00b2",
    "http://:2379",
    "http://user:secret@h:2379",
    "http://h:2379/path?query#fragment",
    "http://h\u2100:2379",
    "http://" + "a" * 300,
    "https://",
    "://",
    "ftp://h:1",
    "h:2379",
    "http://a:1,http://[::1",
    "\u00b2",
    "\u0663",
    "9" * 5000,
    "1" * 400 + "h",
    "-1",
    "0",
    "65536",
    "1e999",
    "nan",
    "inf",
    "0x",
    "1_000",
    "10.0.0.1/33",
    "10.0.0.1/-1",
    "::/129",
    "300.1.1.1",
    "a" * 5000,
    "\udcff",
    "\udcff:1",
    "../../..",
    "/" * 5000,
    "{",
    "[" * 3000,
    "(" * 3000,
    "*",
    "\\",
    "a\nb",
    "\t",
    "true,false",
    "\U0001f600",
    "${NODENAME}",
    "interface=(",
    "interface=" + "(a*)*" * 50,
    "can-reach=\udcff",
    "cidr=10.0.0.0/99",
)
"""The first one is a placeholder of our own manifest."""
Environment = Mapping[str, str]


def of_store(environ: Environment) -> None:
    """What every program does first. Nothing is dialled yet."""

    async def opened() -> None:
        store = await datastore.connect(apiconfig.from_environment(environ), quiet=True)
        await store.close()

    asyncio.run(opened())


STORE = tuple(
    one.metadata["env"]
    for one in fields(apiconfig.DatastoreConfig)
    if one.metadata and one.metadata["env"]
)
IN_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
NODE = tuple(name for one in VARIABLES for name in one.each() if "*" not in name)


def in_cluster(environ: Environment) -> None:
    access.find(apiconfig.from_environment({}), {**IN_POD, **environ}, Path("/nonexistent"))


def of_node(environ: Environment) -> None:
    environment.settings(environ)
    environment.node_name(environ, "", "host")


def of_bgp(environ: Environment) -> None:
    bgp.settings(environ)
    bgp.health_port(environ)
    birdctl.directory(environ)
    idle.backend(environ)


def of_installer(environ: Environment) -> None:
    chosen = installer.settings_from(environ, Path("/nonexistent"))
    configuration.plan(chosen, environ)


def of_felix(environ: Environment) -> None:
    resolve("n", environ=environ)


def of_probes(environ: Environment) -> None:
    probes.ports(environ)


def of_controllers(environ: Environment) -> None:
    controllers.effective(controllers.default().spec, environ)


def of_goldmane(environ: Environment) -> None:
    goldmane.read({"SERVER_CERT_PATH": "c", "SERVER_KEY_PATH": "k", "CA_CERT_PATH": "a", **environ})


READERS: dict[str, tuple[tuple[str, ...], Callable[[Environment], object]]] = {
    "datastore": (STORE, of_store),
    "in a pod": (tuple(IN_POD), in_cluster),
    "calico-node": (NODE, of_node),
    "probes": (("FELIX_HEALTHPORT", "CALICO_BGP_HEALTH_PORT"), of_probes),
    "calico-bgp": (
        (
            "CALICO_BGP_HOLD_TIME",
            "CALICO_BGP_MAX_PREFIXES",
            "CALICO_BGP_HEALTH_PORT",
            "CALICO_ROUTER_ID",
            "CALICO_BIRD_CTL_DIR",
            "CALICO_NETWORKING_BACKEND",
        ),
        of_bgp,
    ),
    "calico-cni": (
        ("CALICO_CNI_HEALTHPORT", "CALICO_NODENAME_FILE", "CALICO_CNI_CRI_SOCKET"),
        daemon.settings_from,
    ),
    "install-cni": (tuple(one.name for one in installer.VARIABLES), of_installer),
    "calico-felix": (tuple(f"FELIX_{one.name.upper()}" for one in PARAMETERS), of_felix),
    "kube-controllers": (
        (
            "ENABLED_CONTROLLERS",
            "RECONCILER_PERIOD",
            "COMPACTION_PERIOD",
            "HEALTH_ENABLED",
            "LOG_LEVEL",
            "SYNC_NODE_LABELS",
            "AUTO_HOST_ENDPOINTS",
            *controllers.WORKERS.values(),
        ),
        of_controllers,
    ),
    "calico-goldmane": (
        (
            "PORT",
            "HEALTH_ENABLED",
            "HEALTH_PORT",
            "PROMETHEUS_PORT",
            "GOLDMANE_MOST_ROWS",
            "GOLDMANE_ASKERS",
            "GOLDMANE_DELIVERERS",
            "GOLDMANE_EXPORT_FILE",
            "GOLDMANE_EXPORT_BYTES",
            "GOLDMANE_EXPORT_FILES",
            "GOLDMANE_OTLP_ENDPOINT",
            "GOLDMANE_WITHOUT_TLS",
            "AGGREGATION_WINDOW",
            "PUSH_URL",
        ),
        of_goldmane,
    ),
}
CASES = [(reader, name) for reader, (found, _) in READERS.items() for name in dict.fromkeys(found)]
ANY = st.text(
    st.one_of(
        st.characters(exclude_characters="\0", exclude_categories=["Cs"]),
        st.sampled_from("\udc80\udcff:/[]@%.,0123456789-"),
    ),
    max_size=40,
)


def typed(work: Callable[[], object]) -> str:
    """Do it; the text of a typed error, which is one line, or nothing. Others are raised."""
    try:
        work()
    except MuslinError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("reader", "name"), CASES)
def test_a_nasty_value_of_a_variable(reader: str, name: str) -> None:
    read = READERS[reader][1]
    for value in NASTY:
        said = typed(lambda value=value: read({name: value}))  # type: ignore[misc]
        assert name not in ("ETCD_ENDPOINTS", "K8S_API_ENDPOINT") or "secret" not in said


@given(data=st.data())
@settings(max_examples=examples(600), deadline=None)
def test_any_text_in_any_variable(data: st.DataObject) -> None:
    reader, name = data.draw(st.sampled_from(CASES))
    value = data.draw(ANY | ANY.map(lambda text: f"http://{text}"))
    typed(lambda: READERS[reader][1]({name: value}))


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("http://<ETCD_IP>:<ETCD_PORT>", "HOST is a name"),
        ("http://[::1", "IPv6 address in brackets"),
        ("http://10.0.0.1:99999", "PORT 1 to 65535"),
        ("http://10.0.0.1:x", "PORT 1 to 65535"),
        ("http://a:1,http://b:0", "no port"),
        ("http://root:hidden@10.0.0.1:2379", "settings of their own"),
    ],
)
def test_an_endpoint_is_refused_by_variable_value_and_rule(value: str, rule: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        of_store({"ETCD_ENDPOINTS": value})
    assert str(caught.value).startswith("ETCD_ENDPOINTS: '")
    assert rule in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "value",
    ["http://10.0.0.1:2379", "https://etcd", "http://[::1]:1/", "http://a_b.c-d.:2379,https://e"],
)
def test_endpoints_that_are_good(value: str) -> None:
    apiconfig.from_environment({"ETCD_ENDPOINTS": value}).check()


HEAD = "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nspec:\n"
KUBECONFIG = """\
current-context: c
contexts: [{{name: c, context: {{cluster: k}}}}]
clusters: [{{name: k, cluster: {{server: {server}}}}}]
"""
FILES = (
    b"",
    b"\xff\xfe\x00",
    b"\x00",
    b"[" * 100_000,
    b"- " * 50_000,
    b"a: &a [*a]",
    b"a: 2001-99-99",
    b"a: !!int x",
    b"a: !!timestamp x",
    b"a: !!binary x",
    b"? {a: b}\n: c",
    b"a: 1\na: 2",
    b"- 1",
    b"3",
    b"a: " + b"9" * 5000,
    b"[global]\n[global]\na = 1\na = 2\n =x",
    b"  continued\n\tx",
    b'{"name": "x", "plugins": 1}',
    b'{"plugins": [1]}',
    HEAD.encode() + b"  etcdEndpoints: 'http://[::1'\n",
    HEAD.encode() + b"  etcdEndpoints: http://<ETCD_IP>:<ETCD_PORT>\n",
    HEAD.encode() + b'  etcdKeyFile: "a\\0b"\n  etcdEndpoints: http://h\n',
    HEAD.encode() + b'  datastoreType: kubernetes\n  kubeconfig: "a\\0b"\n',
    *(KUBECONFIG.format(server=f'"{one}"').encode(errors="replace") for one in NASTY[:20]),
)


def api_file(path: Path) -> None:
    config = apiconfig.from_file(path)

    async def opened() -> None:
        store = await datastore.connect(config, quiet=True)
        await store.close()

    asyncio.run(opened())


def kubeconfig(path: Path) -> None:
    access.find(apiconfig.from_environment({"KUBECONFIG": str(path)}), {})


def felix_file(path: Path) -> None:
    resolve("n", environ={}, file_text=read_file(path))


def template(path: Path) -> None:
    of_installer({"CNI_NETWORK_CONFIG_FILE": str(path)})


def node_file(path: Path) -> None:
    environ = {"CALICO_NODENAME_FILE": str(path)}
    name_of(environ)


def cni_node_file(path: Path) -> None:
    environ = {"CALICO_NODENAME_FILE": str(path)}
    daemon.read_node_name(daemon.settings_from(environ), environ)


def felix_node_file(path: Path) -> None:
    felix_node_name({}, path)


def bgp_node_file(path: Path) -> None:
    bgp.written_name(path)


def cluster_file(path: Path) -> None:
    node_kubernetes.pod_subnets(path.read_text(errors="replace"))


def resources(path: Path) -> None:
    documents.load_files(str(path))


@pytest.mark.parametrize(
    "read",
    [
        api_file,
        kubeconfig,
        felix_file,
        template,
        node_file,
        cni_node_file,
        felix_node_file,
        bgp_node_file,
        cluster_file,
        resources,
    ],
)
def test_a_nasty_file(read: Callable[[Path], None], tmp_path: Path) -> None:
    file = tmp_path / "file"
    for content in FILES:
        file.write_bytes(content)
        typed(lambda: read(file))


@given(content=st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
@settings(max_examples=examples(300), deadline=None)
def test_any_bytes_in_any_file(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / "any"
    file.write_bytes(content)
    for read in (api_file, kubeconfig, felix_file, template, node_file, resources):
        typed(lambda read=read: read(file))  # type: ignore[misc]
