"""INS-11 to INS-13: beside the plugins and the networks of others."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cni.client import NetworkError
from cni.install import default_conflist
from cni.install.binaries import RECORD
from cni.install.files import Folder
from cni.install.list_versions import settle_version
from cni.request.result import SUPPORTED_VERSIONS
from tests.cni.installer import (
    FIRST_GENERATION,
    LIST,
    PEM,
    TEMPLATE,
    Host,
)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.cni("INS-11")
def test_the_version_is_one_that_every_plugin_speaks(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    host.run("--chain=")
    assert host.written()["cniVersions"] == ["1.0.0", "1.1.0"]
    assert host.written()["cniVersion"] == "1.0.0", "what runtimes before 1.1.0 read"
    host.run()
    assert "cniVersions" not in host.written(), "Debian's portmap does not speak 1.1.0"
    newest = json.dumps(LIST | {"cniVersion": "1.1.0"})
    host.run(CNI_NETWORK_CONFIG=newest)
    assert host.written()["cniVersion"] == "1.0.0"
    assert "cniVersion 1.1.0 becomes 1.0.0" in caplog.text
    alone = json.dumps(LIST | {"cniVersion": "1.1.0", "plugins": LIST["plugins"][:1]})
    host.run(CNI_NETWORK_CONFIG=alone)
    assert host.written()["cniVersion"] == "1.1.0"
    old = ["0.2.0", "0.3.0", "0.3.1"]
    everything = list(SUPPORTED_VERSIONS)
    chain = default_conflist(chained=["portmap"])
    assert settle_version(chain, {"calico": everything, "portmap": old})["cniVersion"] == "0.3.1"
    unknown = settle_version(chain, {"calico": everything}, offer_newest=True)
    assert unknown == chain
    with pytest.raises(NetworkError, match="no version in common"):
        settle_version(chain, {"calico": everything, "portmap": ["9.9.9"]})
    offered = chain | {"cniVersions": ["0.4.0", "1.1.0"]}
    spoken = {"calico": everything, "portmap": [*old, "0.4.0", "1.0.0"]}
    assert settle_version(offered, spoken)["cniVersions"] == ["0.4.0"]


@pytest.mark.cni("INS-12")
def test_uninstalling_removes_what_is_ours(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in PEM.items():
        (host.secrets / name).write_text(text)
    host.run(CNI_NETWORK_CONFIG=FIRST_GENERATION)
    (host.net / "99-other.conf").write_text("{}")
    (host.net / "calico-tls/own").write_text("kept")
    gone: list[str] = []
    remove = Folder.remove

    def removing(self: Folder, name: str) -> bool:
        gone.append(name)
        return remove(self, name)

    monkeypatch.setattr(Folder, "remove", removing)
    for _ in range(2):
        host.run("--uninstall")
    assert gone[0] == "10-calico.conf"
    assert sorted(os.listdir(host.net)) == ["99-other.conf", "calico-tls"]
    assert os.listdir(host.net / "calico-tls") == ["own"]
    assert os.listdir(host.bin) == []


@pytest.mark.cni("INS-12")
def test_a_plugin_that_only_we_brought_goes_with_us(host: Host) -> None:
    """What was there before stays, and so does what somebody put in our plugin's place."""
    for name in ("bridge", "tuning"):
        (host.image / name).write_bytes(name.encode())
        (host.image / name).chmod(0o755)
    (host.bin / "host-local").write_bytes(b"the administrator's")
    host.run("--binaries-only", SKIP_CNI_BINARIES="tuning")
    (host.image / "portmap").write_bytes(b"a newer one")
    host.run("--binaries-only")
    assert (host.bin / "portmap").read_bytes() == b"a newer one"
    (host.bin / "bridge").write_bytes(b"a package's")
    host.run("--binaries-only", UPDATE_CNI_BINARIES="false")
    assert (host.bin / "tuning").exists()
    host.run("--uninstall")
    assert sorted(os.listdir(host.bin)) == ["bridge", "host-local"]
    assert (host.bin / "bridge").read_bytes() == b"a package's"
    # A package that came between two installations keeps its plugin too.
    host.run("--binaries-only")
    (host.bin / "portmap").write_bytes(b"a package's")
    host.run("--binaries-only")
    host.run("--uninstall")
    assert sorted(os.listdir(host.bin)) == ["bridge", "host-local", "portmap"]


@pytest.mark.cni("INS-12")
def test_a_package_that_replaced_every_plugin_of_ours_keeps_them(host: Host) -> None:
    """Nothing is left to be recorded: what was, does not come back with our next installation."""
    host.run("--binaries-only")
    ours = {path.name for path in host.bin.iterdir()} - {"calico", "calico-ipam", RECORD}
    assert ours
    for name in ours:
        (host.bin / name).write_bytes(b"a package's")
    host.run("--binaries-only")
    host.run("--uninstall")
    assert {path.name for path in host.bin.iterdir()} == ours


@pytest.mark.cni("INS-12")
def test_killed_before_a_plugin_was_placed_it_is_still_ours(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first installation, and at an upgrade."""
    replace = Folder.replace

    def killed(self: Folder, name: str, content: bytes, mode: int) -> bool:
        if name == "portmap":
            raise KeyboardInterrupt
        return replace(self, name, content, mode)

    def run_killed(content: bytes) -> None:
        (host.image / "portmap").write_bytes(content)
        with monkeypatch.context() as patch:
            patch.setattr(Folder, "replace", killed)
            host.run("--binaries-only")

    with pytest.raises(KeyboardInterrupt):
        run_killed(b"the first")
    host.run("--binaries-only")
    with pytest.raises(KeyboardInterrupt):
        run_killed(b"the second")
    assert (host.bin / "portmap").read_bytes() == b"the first"
    host.run("--uninstall")
    assert os.listdir(host.bin) == []


@pytest.mark.cni("INS-13")
@pytest.mark.cni("INS-06")
def test_another_network_in_front_or_of_the_same_name_is_said_aloud(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    (host.net / "05-flannel.conflist").write_text('{"name":"cbr0","plugins":[{"type":"flannel"}]}')
    (host.net / "20-mine.conf").write_text('{"name":"k8s-pod-network","type":"bridge"}')
    (host.net / "30-bad.conf").write_text("junk")
    host.run(CNI_NETWORK_CONFIG=TEMPLATE)
    for text in (
        "05-flannel.conflist sorts before 10-calico.conflist",
        "20-mine.conf holds a network of the same name, k8s-pod-network",
        "30-bad.conf cannot be read",
    ):
        assert text in caplog.text
    assert len(host.visible()) == 4, "nothing of others is touched"
