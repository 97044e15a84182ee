"""The library that every runtime has inside: libcni itself, one verb a call, on our own list."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from libcalico.process import paths
from tests.cri.world import World

NET, CACHE = "/run/cri/net.d", "/run/cri/cache"
FIRST_GENERATION = {
    "name": "k8s-pod-network",
    "cniVersion": "0.1.0",
    "type": "calico",
    "ipam": {"type": "calico-ipam"},
    "log_level": "info",
}


@dataclass
class Library:
    """libcni on the node; `given` is the list's name and folder."""

    node: World
    program: Path
    folder: str = NET
    network: str = "k8s-pod-network"
    made: list[str] = field(default_factory=list)

    def ask(
        self, verb: str, name: str = "", container: str = "", **more: Any
    ) -> subprocess.CompletedProcess[str]:
        """One call."""
        args = [["IgnoreUnknown", "1"], ["K8S_POD_NAMESPACE", "default"], ["K8S_POD_NAME", name]]
        order = {
            "dir": self.folder,
            "network": self.network,
            "bin": [str(paths.CNI_BIN)],
            "cache": CACHE,
            "container": container,
            "netns": f"/run/netns/{name}" if name else "",
            "ifname": "eth0",
            "args": args,
            **more,
        }
        command = [str(self.program), verb]
        return self.node.node.run(
            command, stdin=json.dumps(order).encode(), check=False, timeout=120
        )

    def told(self, verb: str, *about: str, **more: Any) -> Any:
        """One call that succeeds; what the library gives back."""
        done = self.ask(verb, *about, **more)
        assert (done.returncode, done.stderr) == (0, ""), (verb, done)
        return json.loads(done.stdout) if done.stdout else None

    def refused(self, verb: str, *about: str) -> str:
        """One call that fails; the library's words."""
        done = self.ask(verb, *about)
        assert done.returncode == 1, done
        return done.stderr

    def pod(self, name: str) -> tuple[str, str]:
        """A namespace; name and container id."""
        self.node.node.run(["ip", "netns", "add", name])
        self.made.append(name)
        return name, secrets.token_hex(32)

    def close(self) -> None:
        """Remove the namespaces."""
        for name in self.made:
            self.node.node.run(["ip", "netns", "delete", name])


@pytest.fixture
def library(node: World, driver: Path) -> Iterator[Library]:
    """Our own list as the installer writes it, offering 1.1.0."""
    node.reinstall("--configuration-only", f"--net-dir={NET}", "--chain=")
    made = Library(node, driver)
    try:
        yield made
    finally:
        made.close()
        node.assert_clean()


def links(node: World, pod: str) -> list[str]:
    found = json.loads(node.node.run(["ip", "-n", pod, "-j", "link"]).stdout)
    return [link["ifname"] for link in found]


@pytest.mark.promise("M-17")
@pytest.mark.promise("F-2")
def test_a_pod_by_the_library(node: World, library: Library) -> None:
    library.told("validate")
    library.told("status")
    assert library.told("version") == "1.1.0"
    name, container = library.pod("lib-1")
    result = library.told("add", name, container)
    assert result["cniVersion"] == "1.1.0"
    assert node.endpoints()["lib-1"]["ipNetworks"] == [result["ips"][0]["address"]]
    library.told("check", name, container)
    # CHECK is real: what is broken is told, and adding it again mends nothing unseen.
    node.node.run(["ip", "-n", name, "link", "set", "eth0", "down"])
    assert "eth0" in library.refused("check", name, container)
    node.node.run(["ip", "-n", name, "link", "set", "eth0", "up"])
    library.told("del", name, container)
    library.told("del", name, container)
    assert links(node, name) == ["lo"]
    assert node.endpoints() == {}


@pytest.mark.promise("F-4")
def test_what_is_not_valid_any_more_is_collected(node: World, library: Library) -> None:
    kept, lost = library.pod("lib-kept"), library.pod("lib-lost")
    library.told("add", *kept)
    library.told("add", *lost)
    # The library has forgotten one pod, so only GC of the plugin can know of it.
    for path in node.node.path(CACHE).rglob(f"*{lost[1]}*"):
        path.unlink()
    valid = [{"containerID": kept[1], "ifname": "eth0"}]
    library.told("gc", valid=valid)
    assert list(node.endpoints()) == ["lib-kept"]
    library.told("check", *kept)
    # And this one it remembers: it sends DEL itself.
    library.told("gc", valid=[])
    assert node.endpoints() == {}


def test_a_configuration_of_the_first_generation(node: World, library: Library) -> None:
    node.node.path("/run/cri/old").mkdir(exist_ok=True)
    node.node.path("/run/cri/old/10-calico.conf").write_text(json.dumps(FIRST_GENERATION))
    old = Library(node, library.program, "/run/cri/old")
    name, container = library.pod("lib-old")
    result = old.told("add", name, container)
    assert node.endpoints()["lib-old"]["ipNetworks"] == [result["ip4"]["ip"]]
    assert "does not support the CHECK command" in old.refused("check", name, container)
    old.told("del", name, container)


def test_a_failure_reads_as_we_said_it(node: World, library: Library) -> None:
    name, container = library.pod("lib-away")
    with node.daemon_away():
        said = library.refused("add", name, container)
        assert "the daemon calico-cni on this node does not answer" in said
        assert "the daemon calico-cni on this node does not answer" in library.refused("status")
        # A runtime takes a DEL on the disk for done; what the plugin says aside is for a log.
        done = library.ask("del", name, container)
        assert done.returncode == 0
        assert "DEL queued" in done.stderr
    assert links(node, name) == ["lo"]
