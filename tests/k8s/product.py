"""Our own images and manifests, as a user puts them onto a cluster (docs/kubernetes.md)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from manifests import __main__ as command
from manifests.image import build, cache
from manifests.image.contents import TARGETS
from tests.k8s.api import ready_pods
from tests.k8s.cluster import Cluster
from tests.k8s.control_plane import ETCD, PODS
from tests.support.certificates import Pair

SYSTEM = "/api/v1/namespaces/kube-system"
DAEMONS = "/apis/apps/v1/namespaces/kube-system/daemonsets/calico-node"
CONTROLLERS = "/apis/apps/v1/namespaces/kube-system/deployments/calico-kube-controllers"
NODE_PODS = f"{SYSTEM}/pods?labelSelector=k8s-app%3Dcalico-node"
CONTROLLER_PODS = f"{SYSTEM}/pods?labelSelector=k8s-app%3Dcalico-kube-controllers"
AGENTS = ("calico-node", "calico-bgp", "calico-cni")


def images_missing() -> str:
    """Why building our images would take minutes and a network; empty when the parts are kept."""
    try:
        kept = any(cache.folder("image", "trees").iterdir())
    except cache.BuildError as error:
        return str(error)
    return "" if kept else "our images were never built here: ./run build image"


@dataclass(frozen=True)
class Images:
    """Our images as archives, and what they are called."""

    archives: dict[str, Path]
    names: dict[str, str]


def build_images(folder: Path, *, both: bool = True) -> Images:
    """Build them from the tree as it is; seconds, where their parts are kept.

    With `both` false the controllers run from the node's image, which has all programs.
    """
    archives: dict[str, Path] = {}
    names: dict[str, str] = {}
    for name, target in TARGETS.items():
        if not both and name != "node":
            names[name] = names["node"]
            continue
        made = build.image(target)
        archives[name] = folder / f"{name}.tar"
        archives[name].write_bytes(made.archive)
        names[name] = made.name
    return Images(archives, names)


def render(folder: Path, images: Images, file: str) -> str:
    """A manifest that names these images."""
    words = ["render", "--into", str(folder), "--node-image", images.names["node"]]
    assert command.main([*words, "--controllers-image", images.names["controllers"]]) == 0
    return (folder / file).read_text()


def pool(text: str) -> str:
    """A manifest with the range of pods that the cluster was given, uncommented and set."""
    wanted = rf'\1- name: CALICO_IPV4POOL_CIDR\n\1  value: "{PODS}"'
    text, count = re.subn(
        r'( +)# - name: CALICO_IPV4POOL_CIDR\n +#   value: "192.168.0.0/16"', wanted, text
    )
    assert count == 1, "the manifest has no line for the pool's range"
    return text


def client(made: Cluster, name: str) -> Pair:
    """A certificate with which the cluster's etcd may be used."""
    return made.credentials.authority.issue(name, names=(), usage="clientAuth")


def with_etcd(made: Cluster, text: str, folder: Path) -> str:
    """calico-etcd.yaml for the cluster's etcd: its address, and a client's certificate."""
    text, count = re.subn(r"(etcd_endpoints: ).*", rf'\1"{ETCD}"', text)
    assert count == 1
    path = folder / "filled.yaml"
    path.write_text(text)
    pair = client(made, "calico")
    files = [
        f"--key={pair.key}",
        f"--cert={pair.cert}",
        f"--ca={made.credentials.authority.cert}",
    ]
    assert command.main(["secret", *files, f"--into={path}"]) == 0
    return path.read_text()


def manifest_etcd(made: Cluster, images: Images, folder: Path) -> str:
    """calico-etcd.yaml as it is applied."""
    return with_etcd(made, pool(render(folder, images, "calico-etcd.yaml")), folder)


def manifest_kubernetes(made: Cluster, images: Images, folder: Path) -> str:
    """The same, of calico.yaml."""
    return pool(render(folder, images, "calico.yaml"))


MANIFEST: dict[str, Callable[[Cluster, Images, Path], str]] = {
    "etcd": manifest_etcd,
    "kubernetes": manifest_kubernetes,
}


def install(made: Cluster, text: str) -> float:
    """`kubectl apply` of a manifest; seconds until all of it is Ready."""
    made.api.apply(text)
    return wait_ready(made)


def wait_ready(made: Cluster, timeout: float = 600.0, *, ours: int | None = None) -> float:
    """Until the nodes and every pod of ours are Ready; `ours`: how many nodes have one, or all."""
    wanted = len(made.nodes) if ours is None else ours

    def ready() -> bool:
        said = made.conditions("Ready")
        return (
            all(said.get(name) == "True" for name in made.nodes)
            and len(ready_pods(made.api.items(NODE_PODS))) == wanted
            and len(ready_pods(made.api.items(CONTROLLER_PODS))) == 1
        )

    try:
        return made.api.wait("calico-node and the controllers are Ready", ready, timeout=timeout)
    except Exception as error:
        raise AssertionError(f"{error}\n{describe(made)}") from error


def describe(made: Cluster) -> str:
    """What there is to see of our pods, for a report of failure."""
    said = [made.api.kubectl("get", "pods", "-A", "-o", "wide", check=False).stdout]
    words = ["get", "events", "-A", "--sort-by=.lastTimestamp"]
    said.append("\n".join(made.api.kubectl(*words, check=False).stdout.splitlines()[-25:]))
    for app, containers in (
        ("calico-node", ("load-modules", "install-cni", *AGENTS)),
        ("calico-kube-controllers", ("calico-kube-controllers",)),
    ):
        for one in containers:
            chosen = ["logs", "-n", "kube-system", "-l", f"k8s-app={app}", "-c", one, "--tail=12"]
            answer = made.api.kubectl(*chosen, "--prefix", check=False)
            said.append(f"-- {one}\n{answer.stdout}{answer.stderr}")
    return "\n".join(said)
