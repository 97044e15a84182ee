"""Record what kube-proxy writes: `python -m tests.felix.foreign`, as root, rewrites the dumps.

The programs of `./run k8s binaries` must be there. Each mode has a namespace of its own.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from tests.felix.foreign import HERE
from tests.support.apiserver import ApiServer
from tests.support.kube_proxy import RANGES, KubeProxy, write_services
from tests.support.netns import Namespace, network_namespace
from tests.support.patience import wait_for

NODE, NODE6 = "10.99.7.1", "2001:db8:7::1"


def record(mode: str) -> None:
    """One mode's dumps."""
    with (
        network_namespace("record") as space,
        space.entered(),
        tempfile.TemporaryDirectory() as folder,
    ):
        for words in (
            "link add eth0 type veth peer name out",
            f"addr add {NODE}/24 dev eth0",
            f"addr add {NODE6}/64 dev eth0 nodad",
            "link set eth0 up",
            "link set out up",
            "route add default via 10.99.7.2",
        ):
            space.run("ip", *words.split())
        at = Path(folder)
        (at / "run").mkdir()
        api = ApiServer(at / "api", [f"--service-cluster-ip-range={RANGES}"]).start()
        proxy = KubeProxy(api, space, at / "run", "node1", (NODE, NODE6), "10.65.0.0/16,fd65::/48")
        try:
            write_services(api)
            proxy.start(mode)
            wait_for(lambda: _complete(space, mode), proxy.log())
            for name, text in dump(space, mode):
                (HERE / name).write_text(text)
        finally:
            proxy.stop()
            api.stop()


def _complete(space: Namespace, mode: str) -> bool:
    """Whether both families are written; each is one transaction."""
    text = "".join(text for _, text in dump(space, mode))
    return " 10.65.0.1:8080" in text and " [fd65::1]:8080" in text


def dump(space: Namespace, mode: str) -> list[tuple[str, str]]:
    """What is in the kernel now, by the name of its file."""
    if mode == "nftables":
        return [("kube-proxy.nft", space.run("nft", "list", "ruleset"))]
    return [
        (f"kube-proxy.{version}", trimmed(space.run(f"{tool}-nft-save", "-c")))
        for version, tool in (("v4", "iptables"), ("v6", "ip6tables"))
    ]


def trimmed(text: str) -> str:
    """Without comment lines and accounting objects."""
    text = re.sub(r" -m nfacct --nfacct-name +\S+", "", text)
    return "".join(line for line in text.splitlines(keepends=True) if line[0] != "#")


if __name__ == "__main__":
    for each in ("iptables", "nftables"):
        record(each)
