"""INS-*: what the installer leaves, when, and under which name."""

from __future__ import annotations

import ctypes
import json
import os
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cni.client import NetworkError
from cni.install.binaries import RECORD
from cni.install.credentials import ASKING, NoCredential
from cni.install.files import Folder
from cni.install.settings import VARIABLES
from cni.install.template import TemplateError
from libcalico.errors import InvalidValue
from tests.cni.executable import BASE, Daemon, accept, call, config
from tests.cni.installer import (
    FIRST_GENERATION,
    PEM,
    REFERENCE,
    TEMPLATE,
    TOKEN,
    Host,
    mode,
)

OPAQUE = {"CNI_CONF_NAME": "05-x.conflist", "CNI_OLD_CONF_NAME": "99-old.conf"}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.cni("INS-01")
@pytest.mark.promise("M-21")
def test_executables_are_replaced_under_running_calls(host: Host, tmp_path: Path) -> None:
    """Into both mounted directories, twice and again, while ADDs run out of them."""
    second = host.host / "secondary-bin-dir"
    second.mkdir()
    host.run("--binaries-only")
    names = ["calico", "calico-ipam", "host-local", "portmap"]
    for folder in (host.bin, second):
        there = sorted(os.listdir(folder))
        assert there == [RECORD, *names], "neither `install` nor anything unfinished"
        assert {mode(folder / name) for name in names} == {0o755}
    assert not list(host.net.iterdir())
    stop, failed = threading.Event(), []

    def keep_installing() -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            for name in ("portmap", "host-local"):
                content = (REFERENCE / name).read_bytes() + b"\0" * (turn % 2)
                (host.image / name).write_bytes(content)
            try:
                host.run("--binaries-only")
            except BaseException as error:
                failed.append(error)

    thread = threading.Thread(target=keep_installing)
    thread.start()
    with Daemon(tmp_path / "cni.sock", accept):
        env = BASE | {"CNI_CALICO_SOCKET": str(tmp_path / "cni.sock")}
        for _ in range(30):
            assert call(host.bin / "calico-ipam", env, config()).status == 0
            assert call(second / "portmap", {"CNI_COMMAND": "VERSION"}, b"{}").status == 0
    stop.set()
    thread.join()
    assert not failed


@pytest.mark.cni("INS-01")
@pytest.mark.promise("ADV-3")
def test_what_is_skipped_and_kept_and_never_suid(host: Host) -> None:
    (host.bin / "calico").write_text("older")
    (host.bin / "calico").chmod(0o6755)
    skip = "portmap, calico-ipam"
    host.run("--binaries-only", SKIP_CNI_BINARIES=skip, UPDATE_CNI_BINARIES="false")
    assert sorted(os.listdir(host.bin)) == [RECORD, "calico", "host-local"]
    assert (host.bin / "calico").read_text() == "older"
    assert mode(host.bin / "calico") == 0o755, "kept, yet not SUID: another installer's fault"
    (host.bin / "calico").chmod(0o4755)
    (host.image / "portmap").chmod(0o6755)
    os.umask(old := os.umask(0))
    host.run("--binaries-only")
    os.umask(old)
    assert {mode(path) for path in host.bin.iterdir() if path.name != RECORD} == {0o755}
    assert (host.bin / "calico").read_bytes() != b"older"
    program = [sys.executable, "-m", "cni.install", *host.arguments()]
    before = host.tree()
    done = subprocess.run(program, capture_output=True, text=True, preexec_fn=pretend, check=False)
    assert (done.returncode, "never SUID" in done.stderr) == (1, True)
    assert host.tree() == before


def pretend() -> None:
    """Be what a SUID copy would be: somebody else's call with root's rights."""
    os.setresuid(65534, 0, 0)


@pytest.mark.cni("INS-02")
def test_the_configurations_name_mode_and_source(host: Host, tmp_path: Path) -> None:
    host.run(CNI_NETWORK_CONFIG=TEMPLATE)
    assert host.written()["name"] == "k8s-pod-network"
    (host.net / "99-old.conf").write_text("{}")
    (tmp_path / "template").write_text(TEMPLATE.replace("k8s-pod-network", "of-the-file"))
    file = {"CNI_NETWORK_CONFIG": TEMPLATE, "CNI_NETWORK_CONFIG_FILE": str(tmp_path / "template")}
    host.run(**file, **OPAQUE)
    assert host.written("05-x.conflist")["name"] == "of-the-file"
    assert host.visible() == ["05-x.conflist"], "the old name, and our own default, are gone"
    for name in ("a/b.conf", ".x.conf", "x.cfg"):
        with pytest.raises(InvalidValue, match="CNI_CONF_NAME"):
            host.run(CNI_NETWORK_CONFIG=TEMPLATE, CNI_CONF_NAME=name)
    with pytest.raises(InvalidValue, match="CNI_NETWORK_CONFIG_FILE"):
        host.run(CNI_NETWORK_CONFIG_FILE="/nowhere")


@pytest.mark.cni("INS-02")
@pytest.mark.promise("ADV-4")
def test_by_default_no_credential_lies_on_disk(host: Host) -> None:
    for name, text in PEM.items():
        (host.secrets / name).write_text(text)
    host.run()
    first, *rest = host.written()["plugins"]
    assert [one["type"] for one in rest] == ["portmap"], "the node has it; it has no bandwidth"
    assert "kubernetes" not in first
    assert first["policy"] == {"type": "k8s"}, "as Calico's, without its credentials"
    assert not [key for key in first if key.startswith("etcd_")]
    assert host.visible() == os.listdir(host.net) == ["10-calico.conflist"]
    assert not [name for name, (_, content) in host.tree().items() if TOKEN.encode() in content]


@pytest.mark.cni("INS-03")
def test_every_placeholder_is_filled_in(host: Host) -> None:
    names = [one.placeholder for one in VARIABLES if one.placeholder] + list(ASKING)
    assert len(names) == 19
    plugin = {"type": "calico", **{name: f"__{name}__" for name in names}}
    text = json.dumps({"name": "n", "cniVersion": "0.3.1", "plugins": [plugin]})
    (host.secrets / "etcd-ca").write_text("a CA")
    (host.secrets / "etcd-key").write_text("")
    host.run(CNI_NETWORK_CONFIG=text, KUBERNETES_NODE_NAME='no"de\\1')
    found = host.written()["plugins"][0]
    assert {key: value for key, value in found.items() if key != "type"} == {
        "ETCD_ENDPOINTS": "https://192.0.2.1:2379",
        "ETCD_DISCOVERY_SRV": "",
        "ETCD_KEY_FILE": "",
        "ETCD_CERT_FILE": "",
        "ETCD_CA_CERT_FILE": "/etc/cni/net.d/calico-tls/etcd-ca",
        "KUBERNETES_SERVICE_HOST": "10.233.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
        "SERVICEACCOUNT_TOKEN": TOKEN,
        "KUBECONFIG_FILEPATH": "/etc/cni/net.d/calico-kubeconfig",
        "KUBERNETES_NODE_NAME": 'no"de\\1',
        "CNI_MTU": "1500",
        "LOG_LEVEL": "info",
        "LOG_FILE_PATH": "/var/log/calico/cni/cni.log",
        "LOG_FILE_MAX_SIZE": "100",
        "LOG_FILE_MAX_AGE": "30",
        "LOG_FILE_MAX_COUNT": "10",
        "DATASTORE_TYPE": "kubernetes",
        "REQUIRE_MTU_FILE": "false",
        "CALICO_API_GROUP": "crd.projectcalico.org/v1",
    }
    assert os.listdir(host.net / "calico-tls") == ["etcd-ca"]
    host.run(CNI_NETWORK_CONFIG=text.replace("https", ""), CNI_NET_DIR="/opt/other/net.d")
    path = host.written()["plugins"][0]["KUBECONFIG_FILEPATH"]
    assert path == "/opt/other/net.d/calico-kubeconfig", "the host's own name of the directory"


@pytest.mark.cni("INS-03")
@pytest.mark.promise("M-151")
@pytest.mark.promise("M-163")
@pytest.mark.promise("M-209")
def test_the_first_generations_configmap(host: Host) -> None:
    """The files that a reader of the time expects, from the ConfigMap's text of the time."""
    for name, text in PEM.items():
        (host.secrets / name).write_text(text)
    (host.net / "10-calico.conflist").write_text('{"name": "a newer one"}')
    host.run(CNI_NETWORK_CONFIG=FIRST_GENERATION)
    assert sorted(os.listdir(host.net)) == ["10-calico.conf", "calico-kubeconfig", "calico-tls"]
    assert mode(host.net / "calico-tls") == 0o700
    for name, text in PEM.items():
        assert (host.net / "calico-tls" / name).read_text() == text
        assert mode(host.net / "calico-tls" / name) == 0o600
    found = host.written("10-calico.conf")
    assert found["mtu"] == 1500
    assert found["etcd_key_file"] == "/etc/cni/net.d/calico-tls/etcd-key"
    assert found["policy"]["k8s_api_root"] == "https://10.233.0.1:443"
    assert found["policy"]["k8s_auth_token"] == TOKEN
    assert mode(host.net / "calico-kubeconfig") == 0o600
    host.run(CNI_NETWORK_CONFIG=FIRST_GENERATION, KUBERNETES_SERVICE_HOST="fd00::1")
    root = host.written("10-calico.conf")["policy"]["k8s_api_root"]
    assert root == "https://[fd00::1]:443"
    (host.secrets / "etcd-key").write_text("")
    host.run(CNI_NETWORK_CONFIG=FIRST_GENERATION)
    assert host.written("10-calico.conf")["etcd_key_file"] == ""
    assert not (host.net / "calico-tls/etcd-key").exists(), "a withdrawn secret is withdrawn"


@pytest.mark.cni("INS-03")
def test_what_cannot_be_filled_in_is_named_and_changes_no_configuration(host: Host) -> None:
    host.run(CNI_NETWORK_CONFIG=TEMPLATE)
    before = host.tree()
    left_over = TEMPLATE.replace("__LOG_LEVEL__", "__LOG_LEVLE__, __MY_OWN__")
    with pytest.raises(TemplateError, match=r"__LOG_LEVLE__, __MY_OWN__: no such placeholder"):
        host.run(CNI_NETWORK_CONFIG=left_over)
    wrong: list[tuple[type[Exception], str, dict[str, str]]] = [
        (NoCredential, "KUBERNETES_SERVICE_HOST", {"KUBERNETES_SERVICE_HOST": ""}),
        (InvalidValue, "CNI_MTU: 'big'", {"CNI_MTU": "big"}),
        (InvalidValue, "SLEEP: 'maybe'", {"SLEEP": "maybe"}),
        (InvalidValue, "TEST_FILE_PERMISSION: '0644'", {"TEST_FILE_PERMISSION": "0644"}),
        (InvalidValue, "CNI_NET_DIR", {"CNI_NET_DIR": "relative"}),
        (NetworkError, "is not JSON", {"CNI_NETWORK_CONFIG": '{"name": __CNI_MTU__'}),
        (NetworkError, "no plugins", {"CNI_NETWORK_CONFIG": '{"name":"n","plugins":[]}'}),
        (NetworkError, "missing 'type'", {"CNI_NETWORK_CONFIG": '{"name":"n"}'}),
        (NetworkError, "no name", {"CNI_NETWORK_CONFIG": '{"type":"calico"}'}),
    ]
    for kind, text, environ in wrong:
        with pytest.raises(kind, match=text):
            host.run(**{"CNI_NETWORK_CONFIG": FIRST_GENERATION, **environ})
    (host.account / "token").unlink()
    (host.net / "calico-kubeconfig").rename(host.net / "kept")
    with pytest.raises(NoCredential, match="__KUBECONFIG_FILEPATH__ needs a service account's"):
        host.run(CNI_NETWORK_CONFIG=TEMPLATE)
    (host.net / "kept").rename(host.net / "calico-kubeconfig")
    host.run(CNI_NETWORK_CONFIG=TEMPLATE)
    assert host.tree() == before, "one that the operator put there serves too"


@pytest.mark.cni("INS-04")
@pytest.mark.cni("INS-05")
def test_a_watcher_sees_renames_in_the_directory_and_only_whole_files(host: Host) -> None:
    """What a runtime's watch reports: nothing it reads is ever written, only moved into place."""
    libc = ctypes.CDLL(None, use_errno=True)
    modify, moved_from, moved_to, created, closed = 2, 0x40, 0x80, 0x100, 8
    watch = libc.inotify_init1(os.O_NONBLOCK)
    everything = modify | moved_from | moved_to | created | closed
    assert libc.inotify_add_watch(watch, os.fsencode(host.net), everything) > 0
    for turn in range(6):
        host.run(CNI_NETWORK_CONFIG=TEMPLATE, LOG_LEVEL=str(turn))
        assert host.visible() == ["10-calico.conflist"]
    events: list[tuple[int, str]] = []
    try:
        while True:
            data = os.read(watch, 65536)
            while data:
                _, mask, _, length = struct.unpack_from("iIII", data)
                events.append((mask, data[16 : 16 + length].rstrip(b"\0").decode()))
                data = data[16 + length :]
    except BlockingIOError:
        pass
    finally:
        os.close(watch)
    arrived = [name for mask, name in events if mask & moved_to]
    assert arrived.count("10-calico.conflist") == 6
    assert arrived.count("calico-kubeconfig") == 1, "what is right already is left alone"
    left = [name for mask, name in events if mask & moved_from]
    assert len(left) == len(arrived), "all came from the same directory"
    others = {name for mask, name in events if mask & (modify | created | closed)}
    assert all(name.startswith(".") and name.endswith(".new") for name in others)


@pytest.mark.cni("INS-06")
@pytest.mark.promise("M-151")
def test_the_old_file_goes_once_the_new_one_is_there(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host.net / "10-calico.conf").write_text('{"name":"k8s-pod-network","type":"calico"}')
    seen: list[list[str]] = []
    remove = Folder.remove

    def removing(self: Folder, name: str) -> bool:
        seen.append(host.visible())
        return remove(self, name)

    monkeypatch.setattr(Folder, "remove", removing)
    host.run(CNI_NETWORK_CONFIG=TEMPLATE)
    assert ["10-calico.conf", "10-calico.conflist"] in seen
    assert all("10-calico.conf" in names for names in seen)
    assert host.visible() == ["10-calico.conflist"]


@pytest.mark.cni("INS-07")
def test_the_suffix_fits_the_content(host: Host) -> None:
    single = '{"name":"n","cniVersion":"0.3.1","type":"calico"}'
    host.run(CNI_NETWORK_CONFIG=single)
    assert host.visible() == ["10-calico.conf"]
    host.run(CNI_NETWORK_CONFIG=TEMPLATE)
    assert host.visible() == ["10-calico.conflist"]
    host.run(CNI_NETWORK_CONFIG=single, CNI_CONF_NAME="10-calico.json")
    assert host.visible() == ["10-calico.json"]
    for text, name in ((single, "x.conflist"), (TEMPLATE, "x.conf"), (TEMPLATE, "x.json")):
        with pytest.raises(InvalidValue, match=r"CNI_CONF_NAME.*the configuration is a"):
            host.run(CNI_NETWORK_CONFIG=text, CNI_CONF_NAME=name)
    assert host.visible() == ["10-calico.json"]
