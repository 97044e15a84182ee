"""The client's side as the runtimes' common library has it: LIB-*, and what of others it shows."""

from __future__ import annotations

import base64
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cni.client import Attachment, Client, NetworkError, PluginFailed, load, parse
from cni.request.errors import CNIError, Code
from tests.cni_conformance.recorder import Recorder, put


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path)


ON = Attachment("c1", "/run/netns/x", "eth0", (("K", "v"), ("L", "w")), {"mac": "aa", "dns": {}})
ERROR = '{"cniVersion":"1.0.0","code":7,"msg":"no","details":"at all"}'


@pytest.mark.cni("LIB-01")
def test_add_runs_the_chain_in_order_and_stops_at_an_error(recorder: Recorder) -> None:
    network = recorder.network()
    result = recorder.client.add(network, ON)
    assert recorder.calls() == ["ADD first", "ADD second"]
    first, second = recorder.given("ADD", "first"), recorder.given("ADD", "second")
    assert (first["name"], first["cniVersion"], first["key"]) == ("mynet", "1.0.0", 1)
    assert first["runtimeConfig"] == {"mac": "aa"}, "declared true, and supplied"
    assert "prevResult" not in first
    assert "runtimeConfig" not in second
    known = {
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "eth0", "sandbox": "/run/netns/x"}],
        "ips": [{"interface": 0, "address": "10.1.2.3/32"}],
        "dns": {},
    }
    assert second["prevResult"] == known == result
    recorder.fail("ADD", "first", ERROR)
    with pytest.raises(
        PluginFailed, match=r'plugin type="first" failed \(add\): no; at all'
    ) as seen:
        recorder.client.add(network, ON)
    assert seen.value.error.code == 7
    assert recorder.calls() == ["ADD first"], "no DEL, no second"


@pytest.mark.cni("LIB-02")
def test_the_cache_file_is_the_librarys(recorder: Recorder) -> None:
    network = recorder.network()
    recorder.client.add(network, ON)
    folder = recorder.folder / "cache/results"
    (path,) = folder.iterdir()
    assert path.name == "mynet-c1-eth0"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    entry = json.loads(path.read_text())
    assert base64.b64decode(entry.pop("config")) == network.source
    assert entry.pop("result")["ips"] == [{"interface": 0, "address": "10.1.2.3/32"}]
    assert entry == {
        "kind": "cniCacheV1",
        "containerId": "c1",
        "ifName": "eth0",
        "networkName": "mynet",
        "netns": "/run/netns/x",
        "cniArgs": [["K", "v"], ["L", "w"]],
        "capabilityArgs": {"mac": "aa", "dns": {}},
    }


@pytest.mark.cni("LIB-03")
@pytest.mark.parametrize(("version", "previous"), [("0.3.1", False), ("0.4.0", True)])
def test_del_runs_in_reverse_with_what_is_remembered(
    recorder: Recorder, version: str, previous: bool
) -> None:
    network = recorder.network(version)
    recorder.client.add(network, ON)
    recorder.calls()
    path = recorder.folder / "cache/results/mynet-c1-eth0"
    recorder.fail("DEL", "second", ERROR)
    with pytest.raises(PluginFailed, match="delete"):
        recorder.client.delete(network, ON)
    assert recorder.calls() == ["DEL second"]
    assert path.exists()
    assert ("prevResult" in recorder.given("DEL", "second")) == previous
    (recorder.fails / "DEL-second").unlink()
    path.write_text("{half")
    recorder.client.delete(network, ON)
    assert recorder.calls() == ["DEL second", "DEL first"]
    assert "prevResult" not in recorder.given("DEL", "second"), "a broken cache is tolerated"
    assert not path.exists()
    recorder.client.delete(network, ON)


@pytest.mark.cni("LIB-04")
@pytest.mark.cni("CHK-10")
def test_check_needs_version_and_cache_and_can_be_disabled(recorder: Recorder) -> None:
    with pytest.raises(CNIError, match=r"configuration version '0.3.1' does not support CHECK"):
        recorder.client.check(recorder.network("0.3.1"), ON)
    with pytest.raises(CNIError, match="cached result"):
        recorder.client.check(recorder.network(), ON)
    for disabled in (True, "true", "True"):
        recorder.client.check(recorder.network(disableCheck=disabled), ON)
    assert recorder.calls() == []
    recorder.client.add(recorder.network(), ON)
    recorder.client.check(recorder.network(disableCheck="false"), ON)
    assert recorder.calls()[2:] == ["CHECK first", "CHECK second"]
    assert recorder.given("CHECK", "first")["prevResult"]["ips"]
    with pytest.raises(NetworkError, match="disableCheck: 'maybe' is neither true nor false"):
        recorder.network(disableCheck="maybe")


@pytest.mark.cni("LIB-05")
def test_gc_deletes_what_is_remembered_and_not_valid(recorder: Recorder) -> None:
    network = recorder.network("1.1.0")
    for container in ("c1", "c2", "c3"):
        recorder.client.add(network, Attachment(container, "/run/netns/x", "eth0"))
    recorder.client.add(parse(network.source.replace(b"mynet", b"other")), ON)
    recorder.calls()
    recorder.fail("DEL", "second", ERROR)
    recorder.fail("GC", "first", ERROR)
    with pytest.raises(CNIError) as seen:
        recorder.client.gc(network, {("c2", "eth0")})
    for text in ("stale attachment c1 eth0", "stale attachment c3 eth0", "failed (gc)"):
        assert text in str(seen.value)
    assert recorder.calls() == ["DEL second", "DEL second", "GC first", "GC second"]
    given = recorder.given("GC", "second")
    kept = [{"containerID": "c2", "ifname": "eth0"}]
    assert given["cni.dev/valid-attachments"] == given["cni.dev/attachments"] == kept
    for path in recorder.fails.iterdir():
        path.unlink()
    recorder.client.gc(recorder.network("1.0.0"), {("c2", "eth0")})
    assert recorder.calls() == ["DEL second", "DEL first"] * 2, "no GC before 1.1.0"
    names = [path.name for path in (recorder.folder / "cache/results").iterdir()]
    assert sorted(names) == ["mynet-c2-eth0", "other-c1-eth0"]
    recorder.client.gc(recorder.network("1.1.0", disableGC=True))
    assert recorder.calls() == []


@pytest.mark.cni("LIB-06")
@pytest.mark.cni("STA-08")
def test_status_stops_at_the_first_that_is_not_ready(recorder: Recorder) -> None:
    recorder.client.status(recorder.network("1.0.0"))
    assert recorder.calls() == []
    recorder.client.status(recorder.network("1.1.0"))
    assert recorder.calls() == ["STATUS first", "STATUS second"]
    recorder.fail("STATUS", "first", '{"code":50,"msg":"no daemon"}')
    with pytest.raises(PluginFailed, match="no daemon") as seen:
        recorder.client.status(recorder.network("1.1.0"))
    assert seen.value.error.code == Code.PLUGIN_NOT_AVAILABLE
    assert recorder.calls() == ["STATUS first"]


@pytest.mark.cni("LIB-07")
def test_the_environment_and_the_deadline(recorder: Recorder) -> None:
    recorder.client.add(recorder.network(), ON)
    found = recorder.environ("ADD", "first")
    assert found["MY"] == "own"
    assert {key: value for key, value in found.items() if key.startswith("CNI_")} == {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "c1",
        "CNI_NETNS": "/run/netns/x",
        "CNI_IFNAME": "eth0",
        "CNI_ARGS": "K=v;L=w",
        "CNI_PATH": str(recorder.folder / "bin"),
    }
    recorder.client.status(recorder.network("1.1.0"))
    empty = recorder.environ("STATUS", "first")
    assert (empty["CNI_CONTAINERID"], empty["CNI_NETNS"], empty["CNI_IFNAME"]) == ("", "", "")
    slow = recorder.folder / "bin/first"
    slow.write_text("#!/bin/sh\ntrap '' TERM\nexec sleep 100\n")
    hasty = Client(recorder.client.path, recorder.folder / "cache", timeout=0.2)
    with pytest.raises(PluginFailed, match=r"killed: no answer in 0\.2 s"):
        hasty.add(recorder.network(), ON)


@pytest.mark.cni("LIB-08")
@pytest.mark.cni("INS-13")
def test_lists_come_first_and_the_first_of_a_name_wins(recorder: Recorder) -> None:
    with pytest.raises(NetworkError, match="no net configurations found in"):
        load(recorder.net, "a")
    put(recorder.net, "10.conf", name="a", cniVersion="0.3.1", type="first")
    put(recorder.net, "30.json", name="b", type="second")
    assert load(recorder.net, "b").plugins[0]["type"] == "second"
    wrapped = load(recorder.net, "a")
    assert json.loads(wrapped.source)["plugins"] == [dict(wrapped.plugins[0])]
    assert (wrapped.name, wrapped.version) == ("a", "0.3.1")
    put(recorder.net, "30.conflist", name="a", plugins=[{"type": "third"}])
    put(recorder.net, "20.conflist", name="a", plugins=[{"type": "second"}])
    put(recorder.net, "10.txt", name="a", plugins=[{"type": "never"}])
    assert load(recorder.net, "a").plugins[0]["type"] == "second"
    with pytest.raises(NetworkError, match="no net configuration with name 'c'"):
        load(recorder.net, "c")
    put(recorder.net, "05.conf", name="c", plugins=[])
    with pytest.raises(NetworkError, match="missing 'type'"):
        load(recorder.net, "c")


@pytest.mark.cni("LIB-09")
def test_plugins_of_a_sibling_directory_are_appended(recorder: Recorder) -> None:
    (recorder.net / "a").mkdir()
    put(recorder.net / "a", "20.conf", type="third")
    put(recorder.net / "a", "10.conf", type="second")
    put(recorder.net, "10.conflist", name="a", plugins=[{"type": "first"}])
    assert [one["type"] for one in load(recorder.net, "a").plugins] == ["first", "second", "third"]
    put(recorder.net, "10.conflist", name="a")
    assert [one["type"] for one in load(recorder.net, "a").plugins] == ["second", "third"]
    alone: dict[str, Any] = {"name": "a", "loadOnlyInlinedPlugins": True}
    put(recorder.net, "10.conflist", **alone, plugins=[{"type": "first"}])
    assert [one["type"] for one in load(recorder.net, "a").plugins] == ["first"]
    put(recorder.net, "10.conflist", **alone)
    with pytest.raises(NetworkError, match="no 'plugins' key"):
        load(recorder.net, "a")


@pytest.mark.cni("LIB-10")
def test_a_bad_attachment_runs_nothing(recorder: Recorder) -> None:
    cases = [
        (Attachment("", "/x"), Code.UNKNOWN_CONTAINER, "missing containerID"),
        (Attachment("a/b", "/x"), Code.INVALID_ENVIRONMENT, "containerID"),
        (Attachment("a", "/x", "sixteen-letters-"), Code.INVALID_ENVIRONMENT, "too long"),
        (Attachment("a", "/x", "a b"), Code.INVALID_ENVIRONMENT, "whitespace"),
    ]
    verbs: list[Callable[..., Any]] = [
        recorder.client.add, recorder.client.check, recorder.client.delete,
    ]  # fmt: skip
    for attachment, code, text in cases:
        for verb in verbs:
            with pytest.raises(CNIError, match=text) as seen:
                verb(recorder.network(), attachment)
            assert seen.value.code == code
    assert recorder.calls() == []


@pytest.mark.cni("VER-12")
@pytest.mark.cni("VER-14")
def test_the_version_that_is_used_and_that_every_plugin_must_speak(recorder: Recorder) -> None:
    offered = recorder.network("0.4.0", cniVersions=["0.3.1", "1.1.0", "1.0.0", "2.0.0"])
    assert offered.version == "1.1.0"
    with pytest.raises(NetworkError, match="cniVersions"):
        recorder.network("2.0.0", cniVersions=["3.0.0"])
    recorder.client.validate(recorder.network("1.0.0"))
    assert recorder.environ("VERSION", "first")["CNI_NETNS"] == "dummy"
    with pytest.raises(CNIError, match=r"does not support config version '1.1.0'"):
        recorder.client.validate(offered)


def test_a_plugin_that_fails_without_an_error_object(recorder: Recorder) -> None:
    for said, text in (("", "no error message"), ("oops", "netplugin failed: 'oops'")):
        recorder.fail("ADD", "first", said)
        with pytest.raises(PluginFailed, match=text):
            recorder.client.add(recorder.network(), ON)
    (recorder.folder / "bin/first").unlink()
    with pytest.raises(PluginFailed, match="failed to find plugin 'first' in path"):
        recorder.client.add(recorder.network(), ON)


@pytest.mark.parametrize("said", [{}, {"cniVersion": None}])
def test_a_network_that_names_no_version_has_none(said: dict[str, None], tmp_path: Path) -> None:
    """A plugin takes that for 0.1.0; a version of ours would promise what was not asked."""
    one = parse(json.dumps(said | {"name": "n", "plugins": [{"type": "p"}]}).encode())
    assert (one.version, one.speaks("0.1.0"), one.speaks("0.3.0")) == ("", True, False)
    (tmp_path / "n.conf").write_text(json.dumps(said | {"name": "n", "type": "p"}))
    assert load(tmp_path, "n").version == ""
