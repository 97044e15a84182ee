"""IPAM by another plugin: a recorder that says what it is told to, and the reference ones.

Sections 15 and 16 of the checklist. The recorder is a script on CNI_PATH: it keeps every call,
prints the file `out.VERB` where there is one, and fails where `fail.VERB` stands.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from cni.request.result import SUPPORTED_VERSIONS
from tests.cni import test_delegation, test_ipam_plugin
from tests.cni import test_executable_delegate as delegates
from tests.cni.executable import FULL_SIZE
from tests.cni.world import CIDR4, container_id, network_config, result_of
from tests.cni_conformance import lease_server
from tests.cni_conformance.registry import Checks
from tests.cni_conformance.stage import REFERENCE, Stage
from tests.support.netns import Namespace
from tests.support.patience import wait_for

checks = Checks(fast_builds=("executable",))
checks.promise("ADV-7", "DLG-01")
checks.promise("M-61", "DLG-18")
SCRIPT = """#!/bin/sh
d=$(dirname "$0")
echo "$CNI_COMMAND" >> $d/calls
env > $d/env.$CNI_COMMAND
cat > $d/stdin.$CNI_COMMAND
echo "the recorder was here" >&2
[ -f $d/sleep ] && sleep 60
[ -f $d/out.$CNI_COMMAND ] && cat $d/out.$CNI_COMMAND
[ -f $d/fail.$CNI_COMMAND ] && exit 1
exit 0
"""
GIVEN = {"cniVersion": "1.0.0", "ips": [{"address": "10.70.0.5/24", "gateway": "10.70.0.1"}]}
NEWEST = {"cniVersion": "1.1.0"}


class Recorder:
    """The script and what it heard."""

    def __init__(self, stage: Stage) -> None:
        self.folder = stage.fresh()
        script = self.folder / "recorder"
        script.write_text(SCRIPT)
        script.chmod(0o755)
        self.say("ADD", GIVEN)

    def say(self, verb: str, answer: Any, fail: bool = False) -> None:
        """What it prints from now on."""
        text = answer if isinstance(answer, str) else json.dumps(answer)
        (self.folder / f"out.{verb}").write_text(text)
        mark = self.folder / f"fail.{verb}"
        mark.touch() if fail else mark.unlink(missing_ok=True)

    def quiet(self, verb: str) -> None:
        """Nothing, and no failure."""
        for name in (f"out.{verb}", f"fail.{verb}"):
            (self.folder / name).unlink(missing_ok=True)

    @property
    def calls(self) -> list[str]:
        """The verbs, and forget them."""
        file = self.folder / "calls"
        found = file.read_text().split() if file.exists() else []
        file.unlink(missing_ok=True)
        return found

    def env(self, verb: str) -> dict[str, str]:
        """The environment of the last such call."""
        lines = (self.folder / f"env.{verb}").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def stdin(self, verb: str) -> Any:
        """The configuration of the last such call."""
        return json.loads((self.folder / f"stdin.{verb}").read_text())


@contextmanager
def recorded(stage: Stage) -> Iterator[tuple[Recorder, dict[str, Any], Namespace]]:
    """(the recorder, the options of a call that uses it, a pod); clean at the end."""
    recorder = Recorder(stage)
    with stage.pod() as pod:
        options: dict[str, Any] = {
            "config": {"ipam": {"type": "recorder", "custom": [1]}, "extra": {"a": "b"}},
            "CNI_PATH": f":/nonexistent:{recorder.folder}",
        }
        yield recorder, options, pod
        for verb in ("DEL",):
            recorder.quiet(verb)
        stage.delete(pod, **options)
    stage.node.assert_clean()


def failing(stage: Stage, command: str, pod: Namespace | None, options: Any, **more: Any) -> Any:
    """The error of a failing call."""
    config = options["config"] | more
    return stage.error(command, pod, **options | {"config": config})


@checks("DLG-02", "DLG-03", "DLG-06", "DLG-10", "DLG-12", "DLG-13", "CAP-11", "ARG-14", "CFG-20",
        "OUT-11", "DEL-09")  # fmt: skip
def a_delegate_gets_everything(stage: Stage) -> None:
    with recorded(stage) as (recorder, options, pod):
        more = {"runtimeConfig": {"ipRanges": [[{"subnet": "10.70.0.0/24"}]]}, "args": {"x": 1}}
        config = options["config"] | more
        done = stage.cni("ADD", pod, **options | {"config": config}, TRACEPARENT="kept", CNI_X="y")
        assert result_of(done)["ips"] == [{"interface": 1, "address": "10.70.0.5/32"}]
        assert "the recorder was here" in done.stderr
        assert recorder.calls == ["ADD"]
        env, stdin = recorder.env("ADD"), recorder.stdin("ADD")
        assert env["CNI_COMMAND"] == "ADD"
        assert env["CNI_ARGS"].startswith("IgnoreUnknown=1;")
        assert "K8S_POD_NAME=web-1" in env["CNI_ARGS"]
        assert (env["TRACEPARENT"], env["CNI_X"]) == ("kept", "y")
        assert env["CNI_NETNS"] == str(pod.path)
        assert env["CNI_IFNAME"] == "eth0"
        assert stdin["ipam"] == {"type": "recorder", "custom": [1]}
        assert stdin["extra"] == {"a": "b"}
        assert stdin["runtimeConfig"] == more["runtimeConfig"]
        assert (stdin["name"], stdin["cniVersion"]) == ("k8s-pod-network", "1.0.0")
        for netns in ("", "/run/netns/gone"):
            stage.delete(None, **options, CNI_NETNS=netns)
            assert recorder.calls == ["DEL"]
        assert stage.cni("VERSION", None, **options).status == 0
        assert recorder.calls == []


@checks("DLG-01")
def it_is_found_by_its_bare_name(stage: Stage) -> None:
    with recorded(stage) as (recorder, options, pod):
        missing = failing(stage, "ADD", pod, options, ipam={"type": "no-such"})
        assert 'failed to find plugin "no-such" in path [' in missing["msg"]
        for name in ("../recorder", f"{recorder.folder}/recorder", "a\\b"):
            error = failing(stage, "ADD", pod, options, ipam={"type": name})
            assert (error["code"], "ipam.type" in error["msg"]) == (7, True)
        assert recorder.calls == []


@checks("DLG-04", "DLG-12")
def its_failure_is_followed_by_its_del(stage: Stage) -> None:
    with recorded(stage) as (recorder, options, pod):
        recorder.say("ADD", {"code": 123, "msg": "no more", "details": "at all"}, fail=True)
        error = failing(stage, "ADD", pod, options)
        assert (error["code"], error["msg"], error["details"]) == (123, "no more", "at all")
        assert recorder.calls == ["ADD", "DEL"]
        recorder.say("ADD", "not JSON", fail=True)
        assert failing(stage, "ADD", pod, options)["code"] == 999
        assert "eth0" not in pod.run("ip", "link")


@checks("DLG-05", "CHN-11")
def our_failure_is_followed_by_its_del(stage: Stage) -> None:
    with recorded(stage) as (recorder, options, pod):
        # felix never answers: everything of ours stands by then.
        error = failing(stage, "ADD", pod, options, policy_setup_timeout_seconds=1)
        assert error["code"] == 11
        assert recorder.calls == ["ADD", "DEL"]
        assert "eth0" not in pod.run("ip", "link")
    stage.node.assert_clean()


@checks("DLG-11")
def no_address_is_a_failure(stage: Stage) -> None:
    with recorded(stage) as (recorder, options, pod):
        recorder.say("ADD", {"cniVersion": "1.0.0", "ips": []})
        error = failing(stage, "ADD", pod, options)
        assert "IPAM plugin returned missing IP config" in error["msg"]
        assert recorder.calls == ["ADD", "DEL"]


@checks("CNV-14", "DLG-13")
def its_result_is_read_by_its_own_version(stage: Stage) -> None:
    with recorded(stage) as (recorder, options, pod):
        for version in SUPPORTED_VERSIONS if FULL_SIZE else SUPPORTED_VERSIONS[1::2]:
            if version in ("0.1.0", "0.2.0"):
                answer: Any = {"cniVersion": version, "ip4": {"ip": "10.70.0.5/24"}}
            else:
                answer = {
                    "cniVersion": version,
                    "ips": [{"version": "4", "address": "10.70.0.5/24"}],
                }
            recorder.say("ADD", answer)
            assert stage.add(pod, **options)["ips"][0]["address"] == "10.70.0.5/32"
            stage.delete(pod, **options)


@checks("ADD-12", "ADD-13", "CAL-10", "DLG-19", "CFG-19", "RES-16", "RES-17")
def its_routes_and_dns_are_kept(stage: Stage) -> None:
    routes: list[dict[str, Any]] = [
        {"dst": "10.80.0.0/16"},
        {"dst": "10.81.0.0/16", "mtu": 1400, "advmss": 1360, "priority": 77, "table": 254},
        {"dst": "10.82.0.0/16", "table": 100, "scope": 253},
    ]
    dns = {"nameservers": ["10.96.0.10"], "search": ["svc.example"]}
    with recorded(stage) as (recorder, options, pod):
        recorder.say("ADD", GIVEN | NEWEST | {"routes": routes, "dns": dns})
        config = (
            options["config"] | NEWEST | {"dns": {"domain": "example", "search": ["not.taken"]}}
        )
        result = stage.add(pod, **options | {"config": config})
        assert result["routes"] == routes
        assert result["dns"] == dns | {"domain": "example"}
        table = pod.run("ip", "route")
        assert "default" not in table, "its routes stand for ours"
        assert "10.80.0.0/16 via 169.254.1.1 dev eth0" in table
        (line,) = [each for each in table.splitlines() if each.startswith("10.81.0.0/16")]
        for part in ("metric 77", "mtu 1400", "advmss 1360"):
            assert part in line
        assert "10.82.0.0/16 dev eth0 scope link" in pod.run("ip", "route", "show", "table", "100")
        stage.delete(pod, **options)
        old = options["config"] | {"cniVersion": "1.0.0", "include_default_routes": True}
        result = stage.add(pod, **options | {"config": old})
        assert result["routes"] == [{"dst": route["dst"]} for route in routes]
        assert "default via 169.254.1.1" in pod.run("ip", "route")


@checks("DEL-10", "DEL-08")
def a_failing_del_fails_ours_after_everything_else(stage: Stage) -> None:
    with recorded(stage) as (recorder, options, pod):
        stage.add(pod, **options)
        recorder.say("DEL", {"code": 100, "msg": "not today"}, fail=True)
        error = failing(stage, "DEL", pod, options)
        assert error["msg"] == "not today"
        assert "eth0" not in pod.run("ip", "link")
        assert stage.node.endpoints() == {}


@checks("DLG-07", "CHK-07")
def check_asks_it_with_the_same_prevresult(stage: Stage) -> None:
    with recorded(stage) as (recorder, options, pod):
        previous = stage.add(pod, **options)
        recorder.say("CHECK", {"code": 100, "msg": "lost"}, fail=True)
        error = failing(stage, "CHECK", pod, options, prevResult=previous)
        assert error["msg"] == "lost"
        assert recorder.stdin("CHECK")["prevResult"] == previous


@checks("DLG-08", "GC-05")
def gc_goes_on_to_it(stage: Stage) -> None:
    with recorded(stage) as (recorder, options, pod):
        stage.add(pod, **options)
        keep = [{"containerID": container_id("web-1"), "ifname": "eth0"}]
        config = options["config"] | NEWEST | {"cni.dev/valid-attachments": keep}
        call = options | {"config": config}
        recorder.say("GC", {"code": 4, "msg": "unknown CNI_COMMAND: GC"}, fail=True)
        assert stage.cni("GC", None, "", **call).status == 0, "it knows no GC: a warning"
        assert recorder.stdin("GC")["cni.dev/valid-attachments"] == keep
        recorder.say("GC", {"code": 100, "msg": "disk full"}, fail=True)
        none = options | {"config": config | {"cni.dev/valid-attachments": []}}
        assert stage.error("GC", None, "", **none)["msg"] == "disk full"
        assert "eth0" not in pod.run("ip", "link"), "our part was complete before"
        assert stage.node.endpoints() == {}


@checks("DLG-09", "STA-04")
def status_asks_it(stage: Stage) -> None:
    with recorded(stage) as (recorder, options, _):
        for code, ours in ((50, 50), (51, 51), (999, 50), (1, 50)):
            recorder.say("STATUS", {"code": code, "msg": "because"}, fail=True)
            error = failing(stage, "STATUS", None, options, **NEWEST)
            assert (error["code"], "because" in error["msg"]) == (ours, True)
        recorder.quiet("STATUS")
        call = options | {"config": options["config"] | NEWEST}
        assert stage.cni("STATUS", None, "", **call).status == 0
        real = {"ipam": {"type": "host-local", "subnet": "10.70.0.0/24"}} | NEWEST
        error = stage.error("STATUS", None, "", config=real, CNI_PATH=str(REFERENCE))
        assert error["code"] == 50, "host-local 1.1.1 does not speak 1.1.0"


@checks("ENV-07", "ENV-08")
def the_search_path(stage: Stage) -> None:
    with recorded(stage) as (recorder, options, pod):
        error = failing(stage, "ADD", pod, options | {"CNI_PATH": ""})
        assert (error["code"], "CNI_PATH" in error["msg"]) == (4, True)
        path = f":relative/:/nonexistent:{recorder.folder}/"
        stage.add(pod, **options | {"CNI_PATH": path})


checks.shown(delegates.test_a_delegate_is_killed_when_its_time_is_up, "DLG-15")
checks.shown(delegates.test_a_delegate_never_outlives_our_deadline, "DLG-15", "TIM-04")
checks.shown(delegates.test_the_real_host_local, "DLG-14")
checks.shown(
    test_ipam_plugin.test_two_interfaces_of_a_container_are_distinct,
    "IPM-05",
    "IPM-13",
    "IPM-17",
    "IPM-18",
)
checks.shown(test_ipam_plugin.test_requested_addresses_and_families, "IPM-06", "IPM-07")
checks.shown(
    test_delegation.test_a_pod_gets_its_address_from_the_nodes_pod_cidr,
    "CAL-09",
    "IPM-11",
    "DLG-16",
)


# host-local, static, dhcp: the real ones


def _reference(stage: Stage, ipam: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"config": {"ipam": ipam, **more}, "CNI_PATH": str(REFERENCE)}


@checks("DLG-14", "DLG-17", "DLG-16", "IPM-30", "IPM-31", "IPM-32", "IPM-33", "IPM-34", "IPM-35",
        "IPM-36", "CAP-04", "CFG-22")  # fmt: skip
def host_local_behind_us(stage: Stage) -> None:
    folder = stage.fresh()
    resolv = folder / "resolv.conf"
    resolv.write_text("nameserver 10.9.9.9\nsearch a.example\n")
    ipam = {
        "type": "host-local", "dataDir": str(folder / "networks"), "resolvConf": str(resolv),
        "ranges": [[{"subnet": "10.71.0.0/24", "rangeStart": "10.71.0.10"}],
                   [{"subnet": "fd71::/64"}]],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
    }  # fmt: skip
    options = _reference(stage, ipam)
    state = folder / "networks" / "k8s-pod-network"
    with stage.pod() as pod:
        result = stage.add(pod, **options)
        assert [ip["address"] for ip in result["ips"]] == ["10.71.0.10/32", "fd71::2/128"]
        assert result["dns"] == {"nameservers": ["10.9.9.9"], "search": ["a.example"]}
        held = (state / "10.71.0.10").read_bytes().decode()
        assert held == f"{container_id('web-1')}\r\neth0"
        assert "default via 169.254.1.1" in pod.run("ip", "route")
        # A second ADD of the same: host-local would refuse, so ours gives back first.
        again = stage.add(pod, **options)
        assert len(list(state.glob("10.71.0.*"))) == 1
        assert again["ips"][0]["address"] != result["ips"][0]["address"], "round robin"
        stage.delete(pod, **options)
        assert not list(state.glob("10.71.0.*"))
        for _ in range(2):
            stage.delete(pod, **options)
        bad = _reference(stage, {"type": "host-local", "subnet": "10.71.0.1/24"})
        assert "10.71.0" in str(stage.error("ADD", pod, **bad))
        gone = _reference(stage, ipam | {"resolvConf": "/nonexistent"})
        assert "/nonexistent" in str(stage.error("ADD", pod, **gone))
    stage.node.assert_clean()


@checks("DLG-17", "IPM-38", "ARG-09")
def static_behind_us(stage: Stage) -> None:
    addresses = [{"address": "10.72.0.7/24", "gateway": "10.72.0.1"}, {"address": "fd72::7/64"}]
    options = _reference(
        stage,
        {"type": "static", "addresses": addresses, "routes": [{"dst": "10.0.0.0/8"}],
         "dns": {"nameservers": ["10.72.0.1"]}},
    )  # fmt: skip
    with stage.pod() as pod:
        for version in ("0.2.0", "0.3.1", "1.0.0"):
            call = options | {"config": options["config"] | {"cniVersion": version}}
            result = stage.add(pod, **call)
            if version == "0.2.0":
                assert result["ip4"]["ip"] == "10.72.0.7/32"
            else:
                assert [ip["address"] for ip in result["ips"]] == ["10.72.0.7/32", "fd72::7/128"]
                assert result["routes"] == [{"dst": "10.0.0.0/8"}]
            stage.delete(pod, **call)
        only = _reference(stage, {"type": "static"})
        result = stage.add(pod, **only, CNI_ARGS="IP=10.72.0.9/24;K8S_POD_NAME=web-1;"
                           "K8S_POD_NAMESPACE=default")  # fmt: skip
        assert result["ips"][0]["address"] == "10.72.0.9/32"
        stage.delete(pod, **only)
    stage.node.assert_clean()


@checks("DLG-17", "IPM-39")
def dhcp_behind_us(stage: Stage) -> None:
    """Its daemon is away: a clear error, nothing left, and a DEL that succeeds."""
    socket = stage.fresh() / "dhcp.sock"
    options = _reference(stage, {"type": "dhcp", "daemonSocketPath": str(socket)})
    with stage.pod() as pod:
        error = stage.error("ADD", pod, **options)
        assert "dhcp" in str(error)
        assert "eth0" not in pod.run("ip", "link")
        assert stage.node.links() == []
        assert stage.node.endpoints() == {}


@checks("DLG-17", "IPM-39")
def dhcp_with_a_server(stage: Stage) -> None:
    """Its daemon asks on the container's interface, which therefore stands before."""
    path = stage.fresh() / "dhcp.sock"
    options = _reference(stage, {"type": "dhcp", "daemonSocketPath": str(path)})
    given = IPv4Address("10.73.0.9")
    node = stage.node
    daemon = subprocess.Popen(
        [REFERENCE / "dhcp", "daemon", "-socketpath", path], stderr=subprocess.DEVNULL
    )
    try:
        with lease_server.serving(given, IPv4Address("10.73.0.1")) as heard, stage.pod() as pod:
            wait_for(path.exists)
            result = stage.add(pod, **options)
            # A question that waited for its answer was asked again.
            assert list(dict.fromkeys(heard)) == [lease_server.DISCOVER, lease_server.REQUEST]
            assert result["ips"] == [{"interface": 1, "address": f"{given}/32"}]
            assert f"{given}/32" in pod.run("ip", "addr", "show", "eth0")
            stage.delete(pod, **options)
            stage.delete(pod, **options)
    finally:
        daemon.kill()
        daemon.wait()
    node.assert_clean()


# calico-ipam by itself and under others


@checks("IPM-06", "IPM-07", "IPM-08", "IPM-10", "CFG-09")
def families_and_pools(stage: Stage) -> None:
    def ask(command: str, ipam: dict[str, Any]) -> Any:
        done = stage.cni(
            command, None, "", container="c9", plugin="calico-ipam", CNI_NETNS="b",
            config={"ipam": {"type": "calico-ipam"} | ipam},
        )  # fmt: skip
        return json.loads(done.stdout) if done.stdout else done.status

    for four, six, families in (
        ("true", "false", [4]), ("false", "true", [6]), (True, True, [4, 6]),
    ):  # fmt: skip
        found = ask("ADD", {"assign_ipv4": four, "assign_ipv6": six})
        assert [4 if "." in ip["address"] else 6 for ip in found["ips"]] == families
        assert ask("DEL", {}) == 0
    assert ask("ADD", {"assign_ipv4": "false"})["code"] == 7
    assert ask("ADD", {"ipv4_pools": [CIDR4]})["ips"][0]["address"].endswith("/28")
    assert ask("DEL", {}) == 0
    for ipam in ({"ipv4_pools": ["nope"]}, {"ipv4_pools": ["pool4"], "assign_ipv6": "true",
                                            "ipv6_pools": ["nope"]}):  # fmt: skip
        error = ask("ADD", ipam)
        assert "does not exist" in error["msg"]
        assert error["code"] != 50
        stage.node.assert_clean()
    wrong = ask("ADD", {"ipv4_pools": ["pool6"]})
    assert "pool6" in wrong["msg"]


@checks("IPM-12", "IPM-14", "IPM-16", "DEL-11")
def what_was_given_comes_back(stage: Stage) -> None:
    node = stage.node
    base: dict[str, Any] = {"container": "c9", "plugin": "calico-ipam"}
    # A result that cannot be printed is taken back.
    env = {
        "CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c9", "CNI_NETNS": "b", "CNI_IFNAME": "eth0",
        "CNI_CALICO_SOCKET": str(node.settings.socket),
    }  # fmt: skip
    stdin = json.dumps(network_config()).encode()
    with Path("/dev/full").open("wb") as full:
        subprocess.run(
            [stage.build.plugin("calico-ipam")], env=env, stdout=full, input=stdin,
            stderr=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    wait_for(lambda: not node.in_use())
    node.assert_clean()
    gone = {"config": {"ipam": {"type": "calico-ipam", "ipv4_pools": ["gone"]}}}
    for more in ({}, {"CNI_NETNS": ""}, gone):
        stage.cni("ADD", None, "", **base, CNI_NETNS="b")
        assert node.in_use() == 1
        stage.delete(None, "", **base | more)
        node.assert_clean()


@checks("IPM-15")
def handles_of_old_releases(stage: Stage) -> None:
    """Calico's first releases named a handle by the pod, or by the container alone."""
    node = stage.node
    for old, name in (("default.web-1", "web-1"), ("c9", "")):
        call: dict[str, Any] = {"name": name, "container": "c9", "plugin": "calico-ipam"}
        stage.cni("ADD", None, **call, CNI_NETNS="b")
        _rename_handle(stage, old)
        stage.delete(None, **call)
        node.assert_clean()


def _rename_handle(stage: Stage, new: str) -> None:
    node = stage.node
    ((old, handle),) = node.handles().items()
    node.etcd.ctl("del", f"/calico/ipam/v2/handle/{old}")
    text = json.dumps(handle).replace(old, new)
    node.etcd.ctl("put", f"/calico/ipam/v2/handle/{new}", text)
    for key, block in node.stored("/calico/ipam/v2/assignment/").items():
        if old in json.dumps(block):
            node.etcd.ctl("put", key, json.dumps(block).replace(old, new))


@checks("IPM-21", "IPM-22", "IPM-37")
def files_of_calico_do_no_harm(stage: Stage) -> None:
    for config in (
        {"ipam_lock_file": "/nonexistent/ipam.lock"}, {"ipam_lock_file": str(stage.fresh() / "l")},
    ):  # fmt: skip
        with stage.added(config=config):
            pass


test_conformance = checks.items()
