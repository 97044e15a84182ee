"""The Containerfile, executed: the same images as those of the recipe, and both start.

Built by buildah on a base image that is made here (tests/image/base.py): no registry. What the
Containerfile says of an image is compared in the fast tier too.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from manifests.image import build
from manifests.image.contents import TARGETS
from manifests.image.wheels import ROOT
from tests.felix.world import NODE, make_world
from tests.image import base
from tests.image.conftest import FULL, parts
from tests.image.container import Bundle, started
from tests.k8s import binaries
from tests.support.apiserver import ApiServer
from tests.support.etcd import Etcd, free_ports
from tests.support.patience import wait_for

CONTAINERFILE = ROOT / "manifests" / "image" / "Containerfile"
PATIENCE = 180.0
executed = pytest.mark.skipif(
    not FULL or bool(base.missing()),
    reason=base.missing() or "builds images with buildah: named by path only",
)
Described = tuple[bytes, int, int, int, str]


@dataclass(frozen=True, slots=True)
class Built:
    """An image: its configuration, what each of its files is, and where they lie."""

    config: dict[str, Any]
    files: dict[str, Described]
    root: Path


def unpacked(archive: bytes, root: Path) -> Built:
    config, layers = parts(archive)
    root.mkdir(mode=0o755, parents=True)
    files: dict[str, Described] = {}
    for layer in layers:
        packed = ["--gzip"] if layer.startswith(b"\x1f\x8b") else []
        subprocess.run(["tar", *packed, "-xpC", root], input=layer, check=True)
        with tarfile.open(fileobj=io.BytesIO(layer)) as opened:
            for one in opened:
                files[one.name.strip("./")] = described(opened, one)
    files.pop("", None)
    return Built(config, files, root)


def described(opened: tarfile.TarFile, one: tarfile.TarInfo) -> Described:
    """Kind, permissions, owners, content: all but the time."""
    content = one.linkname
    if one.isreg():
        read = opened.extractfile(one)
        assert read is not None
        content = hashlib.sha256(read.read()).hexdigest()
    return (one.type, one.mode & 0o7777, one.uid, one.gid, content)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree as it is now: others may change it while images are built."""
    root = tmp_path_factory.mktemp("sources")
    command = ["git", "-C", str(ROOT), "ls-files", "-zco", "--exclude-standard"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
    return root


@pytest.fixture(scope="module")
def recipes(
    fetched: None, sources: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Built]:
    """Both images as `./run build image` makes them."""
    at = tmp_path_factory.mktemp("recipe")
    return {
        name: unpacked(build.image(target, root=sources).archive, at / name)
        for name, target in TARGETS.items()
    }


@pytest.fixture(scope="module")
def executions(
    sources: Path, recipes: dict[str, Built], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Built]]:
    """Both images as buildah makes them."""
    # What lies in a checkout and is no source: it must not come along (.dockerignore).
    for path in (".git/HEAD", ".venv/bin/python", "cni/_bin/calico", "build/node.tar"):
        (sources / path).parent.mkdir(parents=True, exist_ok=True)
        (sources / path).write_text("what was built here\n")
    at = tmp_path_factory.mktemp("buildah")
    buildah = ["buildah", f"--root={at / 'store'}", f"--runroot={at / 'run'}"]
    buildah += ["--storage-driver", "overlay"]
    made = {}
    try:
        container = run(*buildah, "from", "scratch").strip()
        run(*buildah, "add", container, str(base.archive()), "/")
        run(*buildah, "commit", "--rm", container, "localhost/base")
        common = [
            "--layers",
            "--isolation=chroot",
            "--pull=never",
            "--build-arg=BASE=localhost/base",
        ]
        for name in TARGETS:
            output = at / f"{name}.tar"
            options = [*common, *base.machine(at), f"--target={name}", f"--file={CONTAINERFILE}"]
            run(*buildah, "bud", *options, f"--tag=oci-archive:{output}", str(sources))
            made[name] = unpacked(output.read_bytes(), at / name)
        yield made
    finally:
        for words in (("rm", "--all"), ("rmi", "--all", "--force"), ("umount", "--all")):
            subprocess.run([*buildah, *words], capture_output=True, check=False)
        subprocess.run(["umount", at / "store" / "overlay"], capture_output=True, check=False)
        shutil.rmtree(at, ignore_errors=True)


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def said(built: dict[str, Any]) -> dict[str, Any]:
    """What a runtime reads of an image's configuration; buildah adds a label of its own."""
    config = {"User": "0:0", "WorkingDir": "/"} | built["config"]
    labels = {k: v for k, v in config["Labels"].items() if not k.startswith("io.buildah.")}
    return {**config, "Labels": labels, "machine": (built["os"], built["architecture"])}


@pytest.mark.parametrize("name", TARGETS)
def test_the_containerfile_says_of_an_image_what_the_recipe_says(name: str) -> None:
    """Labels, variables, entry point and user are written twice: they must agree."""
    _, stage = CONTAINERFILE.read_text().split(f"FROM scratch AS {name}\n")
    stage = stage.partition("\nFROM ")[0].replace(" \\\n", " ")
    lines = dict(line.split(" ", 1) for line in stage.splitlines() if line)
    config = build.settings(TARGETS[name])
    assert json.loads(lines["ENTRYPOINT"]) == config.entrypoint
    assert json.loads(lines["CMD"]) == config.command
    assert lines["USER"] == config.user
    assert dict(one.split("=", 1) for one in lines["ENV"].split()) == config.environment
    assert dict(one.split("=", 1) for one in lines["LABEL"].split()) == config.labels


@executed
@pytest.mark.parametrize("name", TARGETS)
def test_both_ways_give_the_same_files_and_settings(
    name: str, recipes: dict[str, Built], executions: dict[str, Built]
) -> None:
    """Programs, versions, byte code, owners, permissions, the bill of materials: all of it.

    Where only Debian's packages differ, apt's lists of this machine are older than its archive's.
    """
    ours, theirs = recipes[name], executions[name]
    assert sorted(theirs.files.keys() ^ ours.files.keys()) == []
    assert [one for one in ours.files if ours.files[one] != theirs.files[one]] == []
    assert said(theirs.config) == said(ours.config)
    assert len(ours.files) > 2000


@pytest.fixture(params=["recipe", "containerfile"])
def way(
    request: pytest.FixtureRequest, recipes: dict[str, Built], executions: dict[str, Built]
) -> dict[str, Built]:
    """The images of one of the ways."""
    return recipes if request.param == "recipe" else executions


@executed
def test_a_node_starts_in_a_container(way: dict[str, Built], tmp_path: Path) -> None:
    """Its entry point as it is: all agents come up with the capabilities of the manifest."""
    image = way["node"]
    with make_world(tmp_path) as world:
        world.etcd.start()
        world.write_cluster()
        environment = {
            "NODENAME": NODE,
            "DATASTORE_TYPE": "etcdv3",
            "ETCD_ENDPOINTS": world.etcd.endpoint,
            "FELIX_HEALTHENABLED": "true",
        }
        network = Path("/run/netns", world.node.name)
        bundle = Bundle(image.config, image.root, environment=environment, network=network)
        with started(bundle, tmp_path / "node") as container:
            pod = world.add_pod("a", "cali0a", "10.65.0.1")

            def ready() -> bool:
                assert container.alive, container.log()
                return container.run("calico-node", "-felix-ready", "-bird-ready") == 0

            wait_for(ready, "felix and bgp are ready", limit=PATIENCE)
            wait_for(lambda: world.route(f"{pod.address}/32"), "the pod's route", limit=PATIENCE)
            assert pod.reaches("10.99.7.1", 3)


@executed
def test_the_installer_starts_in_a_container(way: dict[str, Built], tmp_path: Path) -> None:
    image = way["node"]
    mounts = {"/host/opt/cni/bin": tmp_path / "bin", "/host/etc/cni/net.d": tmp_path / "net.d"}
    for folder in mounts.values():
        folder.mkdir()
    network = {"name": "k8s-pod-network", "cniVersion": "0.3.1", "plugins": [{"type": "calico"}]}
    environment = {"SLEEP": "false", "CNI_NETWORK_CONFIG": json.dumps(network)}
    environment["CNI_CONF_NAME"] = "10-calico.conflist"
    bundle = Bundle(image.config, image.root, ["/install-cni.sh"], environment, mounts)
    with started(bundle, tmp_path / "installer") as container:
        assert container.process.wait(PATIENCE) == 0, container.log()
    assert (
        json.loads((tmp_path / "net.d/10-calico.conflist").read_text())["name"] == network["name"]
    )
    put = {path.name for path in (tmp_path / "bin").iterdir()}
    assert {"calico", "calico-ipam", "portmap", "loopback"} <= put


@executed
@pytest.mark.skipif(bool(binaries.missing()), reason=binaries.missing() or "there are programs")
def test_the_controllers_start_in_a_container(way: dict[str, Built], tmp_path: Path) -> None:
    """As a user without rights; they reach the datastore and the API, and begin their work."""
    image = way["controllers"]
    api, etcd = ApiServer(tmp_path / "api"), Etcd(tmp_path / "etcd")
    try:
        api.start()
        etcd.start()
        files = tmp_path / "files"
        files.mkdir(mode=0o755)
        access = {
            "clusters": [{"name": "c", "cluster": {"server": api.url}}],
            "users": [{"name": "u", "user": {"token": "admin-token"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        access["clusters"][0]["cluster"]["certificate-authority"] = "/files/ca.pem"  # type: ignore[index]
        (files / "ca.pem").write_bytes(api.ca)
        (files / "kubeconfig").write_text(json.dumps(access))
        (port,) = free_ports(1)
        environment = {
            "KUBECONFIG": "/files/kubeconfig",
            "DATASTORE_TYPE": "etcdv3",
            "ETCD_ENDPOINTS": etcd.endpoint,
        }
        command = [*image.config["config"]["Cmd"], f"--health-port={port}"]
        command += ["--status-file=/tmp/status.json"]
        here = Path("/proc", str(os.getpid()), "ns/net")
        mounts = {"/files": files}
        bundle = Bundle(image.config, image.root, command, environment, mounts, here)
        with started(bundle, tmp_path / "controllers") as container:

            def ready() -> bool:
                assert container.alive, container.log()
                asked = ("check-status", "-r", "-f", "/tmp/status.json")
                return container.run("calico-kube-controllers", *asked) == 0

            wait_for(ready, "the controllers are ready", limit=PATIENCE)
            stored = " ".join(etcd.keys())
            assert "kubecontrollersconfigurations/default" in stored
            owner = Path("/proc", str(container.pid)).stat()
            assert (owner.st_uid, owner.st_gid) == (65532, 65532)
    finally:
        etcd.stop()
        api.stop()
