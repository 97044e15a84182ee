"""Rules of others: kube-proxy's as it really writes them, and Docker's in the shape it gives them.

`kube-proxy.v4`, `kube-proxy.v6` and `kube-proxy.nft` are dumps of kube-proxy 1.36.3 with the
Services of `tests.support.kube_proxy`, made by `python -m tests.felix.foreign`; accounting objects
(nfacct), which are no rules, and comment lines are left out. `docker.v4` is written by hand after
Docker's public documentation of its chains, with Kubernetes' hint for other writers; there is no
Docker here to be recorded. tests/apiserver/test_kube_proxy.py has kube-proxy itself.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.netns import Namespace

HERE = Path(__file__).parent
QUIET = "KUBE-SEP-|KUBE-SVC-|DOCKER-ISOLATION-STAGE-2|KUBE-EXT-"
FAMILIES = (("v4", "iptables", "ip"), ("v6", "ip6tables", "ip6"))


def load_iptables(node: Namespace, kind: str) -> None:
    """kube-proxy's rules of both families and Docker's, into one kind of iptables."""
    for version, tool, _ in FAMILIES:
        docker = (HERE / "docker.v4").read_text()
        restore = f"{tool}-{kind}-restore"
        node.run(restore, "-c", input=(HERE / f"kube-proxy.{version}").read_text())
        node.run(restore, "-c", "--noflush", input=docker if version == "v4" else in_ipv6(docker))


def load_nftables(node: Namespace) -> None:
    """kube-proxy's tables of both families."""
    node.run("nft", "-f", "-", input=(HERE / "kube-proxy.nft").read_text())


def in_ipv6(text: str) -> str:
    """Docker's rules as they are for its networks of IPv6."""
    dotted = r"(\d+)\.(\d+)\.(\d+)\.(\d+)"

    def net(found: re.Match[str]) -> str:
        one, two, three, four, length = found.groups()
        if length == "32":
            return f"fd00:{one}:{two}:{three}:{four}::1/128"
        return f"fd00:{one}:{two}::/48"

    text = text.replace("127.0.0.0/8", "::1/128")
    text = re.sub(rf"--to-destination {dotted}:", r"--to-destination [fd00:\1:\2:\3:\4::1]:", text)
    return re.sub(rf"{dotted}/(\d+)", net, text)


def in_iptables(node: Namespace, kind: str) -> dict[str, list[str]]:
    """What is not felix's, of both families, in order; counters where nothing passes."""
    found: dict[str, list[str]] = {}
    for _, tool, _ in FAMILIES:
        table = ""
        for line in node.run(f"{tool}-{kind}-save", "-c").splitlines():
            if line.startswith("*"):
                table = f"{tool} {line}"
            elif line and line[0] in ":[" and "cali" not in line:
                quiet = re.search(rf"-A ({QUIET})", line) is not None
                kept = line if quiet else re.sub(r"\[\d+:\d+\]", "", line)
                found.setdefault(table, []).append(kept)
    return found


def in_nftables(node: Namespace) -> list[str]:
    """kube-proxy's own tables. Elements have no order: what stands in lists is sorted."""
    found = []
    for _, _, family in FAMILIES:
        text = node.run("nft", "-s", "list", "table", family, "kube-proxy")
        text = re.sub(r"elements = \{(.*?)\}", _sorted, text, flags=re.S)
        found += text.splitlines()
    return found


def _sorted(found: re.Match[str]) -> str:
    return ", ".join(sorted(part.strip() for part in found.group(1).split(",")))
