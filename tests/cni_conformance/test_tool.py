"""`cnitool`: TOOL-*, and the lines of a document's reader on a real node."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cni import cnitool
from libcalico.errors import InvalidValue
from tests.cni.executable import plugin
from tests.cni.installer import REFERENCE
from tests.cni.world import node_world, pod_namespace
from tests.cni_conformance.recorder import Recorder, put


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path)


def tool(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The console script."""
    program = Path(sys.executable).with_name("cnitool")
    return subprocess.run(
        [program, *arguments], env=environ, capture_output=True, text=True, check=False
    )


@pytest.mark.cni("TOOL-01")
@pytest.mark.cni("TOOL-02")
@pytest.mark.cni("TOOL-03")
@pytest.mark.promise("M-88")
@pytest.mark.promise("M-109")
@pytest.mark.asyncio
async def test_the_documents_session(tmp_path: Path) -> None:
    """A reader's lines, with our plugin, felix, and the reference tuning behind it."""
    calico = {"type": "calico", "ipam": {"type": "calico-ipam"}, "policy": {"type": "k8s"}}
    tuning = {"type": "tuning", "capabilities": {"mac": True}}
    net = {"cniVersion": "0.4.0", "name": "mynet", "plugins": [calico, tuning]}
    put(tmp_path, "10-mynet.conflist", **net)
    mac = "02:00:00:00:be:ef"
    cache = f"--cache-dir={tmp_path / 'cache'}"
    with node_world(tmp_path) as node, pod_namespace("tool") as pod:
        environ = {
            "PATH": os.environ["PATH"],
            "NETCONFPATH": str(tmp_path),
            "CNI_PATH": f"{plugin().parent}:{REFERENCE}",
            "CNI_IFNAME": "test",
            "CNI_CONTAINERID": "testing",
            "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=tool",
            "CAP_ARGS": json.dumps({"mac": mac}),
            "CNI_CALICO_SOCKET": str(node.settings.socket),
            "CNI_CALICO_PENDING": str(node.settings.pending),
        }

        async def line(verb: str, *more: str) -> tuple[int, str, str]:
            arguments = (verb, "mynet", *more, str(pod.path), cache)
            done = await asyncio.to_thread(tool, *arguments, **environ)
            return done.returncode, done.stdout, done.stderr

        async with node.felix() as felix, node.daemon(felix_socket=felix.socket):
            status, printed, told = await line("add")
            assert (status, told) == (0, "")
            assert printed.startswith('{\n    "cniVersion": "0.4.0",\n    "interfaces": [\n')
            result = json.loads(printed)
            assert result["dns"] == {}
            assert result["interfaces"][1]["name"] == "test"
            address = result["ips"][0]["address"].partition("/")[0]
            assert address in pod.run("ip", "-4", "addr", "show", "dev", "test")
            assert mac in pod.run("ip", "link", "show", "dev", "test")
            digest = hashlib.sha512(os.path.abspath(pod.path).encode()).hexdigest()
            (entry,) = (tmp_path / "cache/results").iterdir()
            assert entry.name == f"mynet-cnitool-{digest[:20]}-test"
            assert await line("check") == (0, "", "")
            pod.run("ip", "addr", "flush", "dev", "test")
            status, printed, told = await line("check")
            assert (status, printed) == (1, "")
            assert told.startswith('plugin type="calico" failed (check): ')
            assert await line("del", "-i", "test") == (0, "", "")
            assert await line("del") == (0, "", "")
            node.assert_clean()


@pytest.mark.cni("TOOL-01")
def test_the_tools_variables(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    put(recorder.net, "1.conflist", name="n", cniVersion="1.0.0", plugins=[{"type": "first"}])
    environ = {"NETCONFPATH": str(recorder.net), "CNI_PATH": str(recorder.folder / "bin")}
    cache = recorder.folder / "cache"
    monkeypatch.chdir(recorder.folder)
    cnitool.run("add", "n", "relative", environ, cache)
    assert recorder.environ("ADD", "first")["CNI_NETNS"] == str(recorder.folder / "relative")
    assert recorder.environ("ADD", "first")["CNI_IFNAME"] == "eth0"
    cnitool.run("add", "n", "x", environ | {"CNI_ARGS": "A=b;C=d", "CNI_IFNAME": "net1"}, cache)
    assert recorder.environ("ADD", "first")["CNI_ARGS"] == "A=b;C=d"
    assert recorder.environ("ADD", "first")["CNI_IFNAME"] == "net1"
    for wrong in ({"CNI_ARGS": "A"}, {"CNI_ARGS": "A=b=c"}, {"CAP_ARGS": "[1]"}, {"CAP_ARGS": "x"}):
        with pytest.raises(InvalidValue, match=next(iter(wrong))):
            cnitool.run("add", "n", "x", environ | wrong, cache)
    for arguments in (("add", "n"), ("update", "n", "x"), ()):
        done = tool(*arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert "usage: cnitool" in done.stderr


@pytest.mark.cni("TOOL-04")
@pytest.mark.promise("M-88")
def test_gc_and_status_need_no_namespace_and_gc_passes_no_list(recorder: Recorder) -> None:
    put(recorder.net, "1.conflist", name="n", cniVersion="1.1.0", plugins=[{"type": "first"}])
    environ = {"NETCONFPATH": str(recorder.net), "CNI_PATH": str(recorder.folder / "bin")}
    cache = recorder.folder / "cache"
    cnitool.run("add", "n", "x", environ, cache)
    cnitool.run("gc", "n", "", environ, cache)
    cnitool.run("status", "n", "", environ, cache)
    assert recorder.calls() == ["ADD first", "DEL first", "GC first", "STATUS first"]
    assert recorder.given("GC", "first").keys() == {"type", "name", "cniVersion"}
