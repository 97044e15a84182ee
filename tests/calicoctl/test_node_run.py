"""`node run`: the container's command line flag by flag, and the programs that are run."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from calicoctl.main import run as calicoctl
from calicoctl.node import image, program, start
from calicoctl.node.image import RunSettings
from libcalico.apiconfig import DatastoreConfig
from libcalico.errors import InvalidValue, MuslinError
from libcalico.process import paths

STORE = {"ETCD_ENDPOINTS": "http://10.99.0.1:2379"}
PLAIN = RunSettings(name="node1", image="img:1")


def words(settings: RunSettings, store: dict[str, str] | None = None) -> list[str]:
    return image.command("docker", settings.image, settings, STORE if store is None else store)


def test_the_command_line_of_the_reference() -> None:
    assert shlex.join(words(PLAIN)) == (
        "docker run --net=host --privileged --name=calico-node -d --restart=always"
        " -e NODENAME=node1 -e CALICO_NETWORKING_BACKEND=bird -e CALICO_MANAGE_CNI=false"
        " -e ETCD_ENDPOINTS=http://10.99.0.1:2379"
        " -v /var/log/calico:/var/log/calico -v /var/run/calico:/var/run/calico"
        " -v /var/lib/calico:/var/lib/calico -v /lib/modules:/lib/modules -v /run:/run img:1"
    )


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"ip": "10.0.0.5/24"}, "-e IP=10.0.0.5/24"),
        ({"ip": "autodetect"}, "-e IP=autodetect"),
        ({"ip6": "2001:db8::5"}, "-e IP6=2001:db8::5"),
        ({"as_number": "64512"}, "-e AS=64512"),
        ({"as_number": "1.10"}, "-e AS=1.10"),
        ({"ip_method": "can-reach=10.0.0.1"}, "-e IP_AUTODETECTION_METHOD=can-reach=10.0.0.1"),
        ({"ip6_method": "interface=eth.*"}, "-e 'IP6_AUTODETECTION_METHOD=interface=eth.*'"),
        ({"log_dir": "/data/log"}, "-v /data/log:/var/log/calico"),
        ({"backend": "none"}, "-e CALICO_NETWORKING_BACKEND=none"),
        ({"backend": "vxlan"}, "-e CALICO_NETWORKING_BACKEND=vxlan"),
        ({"init_system": True}, "--name=calico-node --rm"),
        ({"no_default_ippools": True}, "-e NO_DEFAULT_POOLS=true"),
        ({"felix_config": "/data/felix.cfg"}, "-v /data/felix.cfg:/etc/calico/felix.cfg"),
    ],
)
def test_every_flag_has_its_effect(flags: dict[str, str], expected: str) -> None:
    settings = replace(PLAIN, **flags)  # type: ignore[arg-type]
    settings.check()
    assert expected in shlex.join(words(settings))


def test_certificates_are_mounted_and_the_password_stays_out_of_the_command_line() -> None:
    store = image.datastore_environment(
        DatastoreConfig(
            datastore_type="etcdv3",
            etcd_endpoints="https://10.99.0.1:2379",
            username="node",
            password="hunter2-canary",
            key_file="/etc/k.pem",
            cert_file="/etc/c.pem",
            ca_file="/etc/ca.pem",
            read_endpoints="https://10.99.0.7:2379",
            read_ca_file="/etc/r-ca.pem",
            read_cert_file="/etc/r-c.pem",
            read_key_file="/etc/r-k.pem",
        )
    )
    text = shlex.join(words(PLAIN, store))
    assert "-e ETCD_PASSWORD -e" in text
    assert "hunter2-canary" not in text
    assert "-e ETCD_READ_ENDPOINTS=https://10.99.0.7:2379" in text
    for variable, outside, inside in (
        ("ETCD_KEY_FILE", "/etc/k.pem", "/etc/calico/certs/key.pem"),
        ("ETCD_CERT_FILE", "/etc/c.pem", "/etc/calico/certs/cert.crt"),
        ("ETCD_CA_CERT_FILE", "/etc/ca.pem", "/etc/calico/certs/ca_cert.crt"),
        ("ETCD_READ_KEY_FILE", "/etc/r-k.pem", "/etc/calico/certs/read_key.pem"),
        ("ETCD_READ_CERT_FILE", "/etc/r-c.pem", "/etc/calico/certs/read_cert.crt"),
        ("ETCD_READ_CA_CERT_FILE", "/etc/r-ca.pem", "/etc/calico/certs/read_ca_cert.crt"),
    ):
        assert f"-e {variable}={inside}" in text
        assert f"-v {outside}:{inside}" in text


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"name": ""}, "--name"),
        ({"ip": "fd00::1"}, "--ip: 'fd00::1'"),
        ({"ip": "10.0.0"}, "--ip: '10.0.0'"),
        ({"ip6": "10.0.0.1"}, "--ip6: '10.0.0.1'"),
        ({"as_number": "4294967296"}, "--as: '4294967296'"),
        ({"backend": "gobgp"}, "--backend: 'gobgp' is not valid: allowed: bird, vxlan, none"),
        ({"ip_method": "kubernetes-internal-ip"}, "--ip-autodetection-method"),
        ({"ip_method": "can-reach="}, "--ip-autodetection-method"),
        ({"ip6_method": "first"}, "--ip6-autodetection-method"),
    ],
)
def test_wrong_flags_are_named(flags: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        replace(PLAIN, **flags).check()  # type: ignore[arg-type]
    assert named in str(caught.value)


def test_only_etcd_and_no_inline_keys() -> None:
    with pytest.raises(MuslinError, match="needs the datastore etcdv3, not kubernetes"):
        image.datastore_environment(DatastoreConfig(datastore_type="kubernetes"))
    inline = DatastoreConfig(
        datastore_type="etcdv3", etcd_endpoints="https://a:1", key="K", cert="C"
    )
    with pytest.raises(MuslinError, match="put them into files"):
        image.datastore_environment(inline)


def test_parameters_of_a_felix_cfg() -> None:
    assert start.felix_variables("[global]\nMetadataAddr = None\nlogseverityscreen=Info\n") == {
        "FELIX_METADATAADDR": "None",
        "FELIX_LOGSEVERITYSCREEN": "Info",
    }
    assert start.felix_variables("IpInIpMtu = 1400") == {"FELIX_IPINIPMTU": "1400"}
    with pytest.raises(InvalidValue, match="--felix-config"):
        start.felix_variables("[global\nx")


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose PATH is one empty folder, without calico-node."""
    for name in [one for one in os.environ if "ETCD" in one]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("ETCD_ENDPOINTS", "http://10.99.0.1:2379")
    monkeypatch.setenv("ETCD_PASSWORD", "hunter2-canary")
    monkeypatch.setattr(paths, "CALICOCTL_CONFIG", tmp_path / "none.cfg")
    monkeypatch.setattr(program, "find", lambda: None)
    monkeypatch.setattr(start, "prepare_machine", lambda: None)
    return tmp_path


def script(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_no_engine_and_no_calico_node(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert calicoctl(["node", "run"]) == 1
    assert (
        "neither docker nor podman is installed here, and no calico-node" in capsys.readouterr().err
    )


def test_dryrun_prints_and_runs_nothing(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script(bare, "podman", f"/bin/touch {bare}/ran")
    assert calicoctl(["node", "run", "--dryrun", "--name", "n1", "--node-image", "i:2"]) == 0
    out = capsys.readouterr().out
    assert "podman run --net=host --privileged --name=calico-node -d" in out
    assert out.count("i:2") == 1
    assert "podman stop calico-node" in out
    assert "hunter2-canary" not in out
    assert not (bare / "ran").exists()


def test_the_engine_is_run_and_gets_the_password_by_environment(
    bare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script(bare, "docker", f'echo "$@ $ETCD_PASSWORD" >> {bare}/log; echo 0123456789abcdef')
    assert calicoctl(["node", "run", "--name", "n1", "--node-image", "i:2"]) == 0
    removed, ran = (bare / "log").read_text().splitlines()
    assert removed.startswith("rm -f calico-node")
    assert ran.startswith("run --net=host")
    assert ran.endswith(" i:2 hunter2-canary")
    out = capsys.readouterr().out
    assert "hunter2-canary" not in out
    assert "is running: 0123456789ab" in out


def test_an_engine_that_fails_is_told(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script(bare, "docker", "echo no such image >&2; exit 125")
    assert calicoctl(["node", "run", "--name", "n1", "--node-image", "i:2"]) == 1
    assert "docker could not start i:2 (status 125): no such image" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="node run needs root")
def test_an_installed_calico_node_is_run_in_our_place(tmp_path: Path) -> None:
    script(tmp_path, "calico-node", 'echo "$0 $@ $NODENAME $IP $ETCD_ENDPOINTS $FELIX_IPINIPMTU"')
    (tmp_path / "felix.cfg").write_text("[global]\nIpInIpMtu = 1400\n")
    code = (
        "from calicoctl.node import program; import os, sys;"
        f"program.find = lambda: '{tmp_path}/calico-node';"
        "from calicoctl.main import run; sys.exit(run(sys.argv[1:]))"
    )
    arguments = [
        "node",
        "run",
        "--name=n1",
        "--ip=10.0.0.5",
        f"--felix-config={tmp_path}/felix.cfg",
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={"PATH": os.environ["PATH"], "ETCD_ENDPOINTS": "http://a:1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[1:] == ["run", "n1", "10.0.0.5", "http://a:1", "1400"]
    assert "10.0.0.5 is on no interface" in done.stderr


def test_the_machine_is_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, "modprobe", f'echo "$@" > {tmp_path}/modules')
    monkeypatch.setenv("PATH", str(tmp_path))
    for name, value in (
        ("net/ipv4/ip_forward", "0"),
        ("net/ipv6/conf/all/forwarding", "0"),
        ("net/netfilter/nf_conntrack_max", "2000000"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(value)
    start.prepare_machine(tmp_path)
    assert (tmp_path / "modules").read_text() == "-a xt_set ip6_tables\n"
    assert (tmp_path / "net/ipv4/ip_forward").read_text() == "1"
    assert (tmp_path / "net/ipv6/conf/all/forwarding").read_text() == "1"
    # A larger table is never made smaller.
    assert (tmp_path / "net/netfilter/nf_conntrack_max").read_text() == "2000000"


def test_checksystem_execs_calico_node(tmp_path: Path) -> None:
    script(tmp_path, "calico-node", 'echo "$@"; exit 1')
    code = (
        "from calicoctl.node import program; import sys;"
        f"program.find = lambda: '{tmp_path}/calico-node';"
        "from calicoctl.main import run; sys.exit(run(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "node", "checksystem", "-f", "/x", "--only", "mtu"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == "checksystem --output table --kernel-config /x --only mtu\n"
