"""The container runtime's half of CNI: what a plugin is given, and what its answers mean.

Pure parts by value; the calls with Debian's real reference plugins in a real lab.
"""

from __future__ import annotations

import json
import subprocess

import pytest

from lab import runtime
from lab.runtime import ANNOTATIONS, PluginError, Sandbox

SANDBOX = Sandbox("a" * 64, "/var/run/netns/x", "web", "pod-1", "uid-1", {"app": "x"}, {"k": "v"})
NETWORK = {"name": "net", "cniVersion": "1.0.0", "plugins": [{"type": "one"}]}


def test_name_and_version_are_merged_and_capabilities_kept() -> None:
    plugin = {"type": "one", "mtu": 1440, "capabilities": {"portMappings": True}}
    config = runtime.plugin_input(NETWORK, plugin, Sandbox("a", "b", "c", "d", "e"), None)
    assert config == {**plugin, "name": "net", "cniVersion": "1.0.0"}


def test_annotations_are_given_only_where_the_capability_is_declared() -> None:
    declared = {"type": "one", "capabilities": {ANNOTATIONS: True}}
    config = runtime.plugin_input(NETWORK, declared, SANDBOX, None)
    assert config["runtimeConfig"] == {ANNOTATIONS: {"k": "v"}}
    refused = {"type": "one", "capabilities": {ANNOTATIONS: False}}
    for plugin in (refused, {"type": "one"}):
        assert "runtimeConfig" not in runtime.plugin_input(NETWORK, plugin, SANDBOX, None)


def test_labels_travel_in_args_cni_labels() -> None:
    config = runtime.plugin_input(NETWORK, {"type": "one"}, SANDBOX, {"ips": []})
    assert config["args"]["cni"]["labels"] == [{"key": "app", "value": "x"}]
    assert config["prevResult"] == {"ips": []}


def test_named_ports_travel_in_args_cni_ports() -> None:
    sandbox = Sandbox("a", "b", "c", "d", "e", named_ports={"dns": "udp:53"})
    config = runtime.plugin_input(NETWORK, {"type": "one"}, sandbox, None)
    assert config["args"]["cni"] == {"ports": [{"name": "dns", "protocol": "UDP", "port": 53}]}


def test_cni_args_have_containerds_set_in_changing_order() -> None:
    seen = {runtime.environment("ADD", SANDBOX, "eth0", "/n")["CNI_ARGS"] for _ in range(50)}
    assert len(seen) > 1
    assert {frozenset(text.split(";")) for text in seen} == {
        frozenset(
            {
                "IgnoreUnknown=1",
                "K8S_POD_NAMESPACE=web",
                "K8S_POD_NAME=pod-1",
                f"K8S_POD_INFRA_CONTAINER_ID={'a' * 64}",
                "K8S_POD_UID=uid-1",
            }
        )
    }


def finished(code: int, out: str, err: str = "") -> subprocess.CompletedProcess[str]:
    """What a plugin left behind."""
    return subprocess.CompletedProcess(["x"], code, out, err)


def test_an_error_object_is_read() -> None:
    answer = {"cniVersion": "1.0.0", "code": 11, "msg": "try later", "details": "no etcd"}
    with pytest.raises(PluginError, match=r"code 11.*try later; no etcd") as caught:
        runtime.judge(finished(1, json.dumps(answer)), "calico", "ADD")
    assert caught.value.answer["code"] == 11


@pytest.mark.parametrize("code", [0, 1])
def test_output_that_is_no_json_is_an_error(code: int) -> None:
    with pytest.raises(PluginError, match="Traceback"):
        runtime.judge(finished(code, "Traceback (most recent call last)"), "calico", "ADD")


def test_an_empty_answer_is_good_for_del() -> None:
    assert runtime.judge(finished(0, ""), "calico", "DEL") is None
