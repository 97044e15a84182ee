"""ADD, DEL, CHECK, STATUS and GC of `calico` on one node: sections 1, 10 to 14, 20, 21."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from libcalico.process import status_file
from tests.cni import (
    test_annotations,
    test_attachment,
    test_check,
    test_collection,
    test_daemon_add,
    test_daemon_faults,
    test_executable,
    test_executable_daemon,
    test_executable_queue,
    test_garbage,
    test_in_force,
)
from tests.cni.executable import FULL_SIZE, Done
from tests.cni.world import container_id, network_config, result_of
from tests.cni_conformance.registry import Checks
from tests.cni_conformance.stage import Stage
from tests.support.netns import Namespace
from tests.support.patience import HANG, wait_for

checks = Checks()
for _promise, _id in (
    ("M-17", "GC-01"), ("M-17", "STA-01"), ("M-19", "CHK-01"), ("M-43", "ENV-19"),
    ("M-44", "ENV-23"), ("M-45", "ENV-22"), ("M-47", "ENV-21"), ("M-51", "CFG-16"),
    ("M-80", "DEL-01"), ("F-2", "CHK-03"),
):  # fmt: skip
    checks.promise(_promise, _id)
NEWEST = {"cniVersion": "1.1.0"}


# Process and namespaces


@checks("ENV-16")
def the_callers_namespace_stays(stage: Stage) -> None:
    before = {os.readlink(f"/proc/self/task/{one}/ns/net") for one in os.listdir("/proc/self/task")}
    for _ in range(100 if FULL_SIZE else 5):
        with stage.added():
            pass
    after = {os.readlink(f"/proc/self/task/{one}/ns/net") for one in os.listdir("/proc/self/task")}
    assert after <= before


@checks("ENV-17", "TIM-02", "TIM-09", "IPM-04")
def many_at_once(stage: Stage) -> None:
    count = 64 if FULL_SIZE else 8
    node = stage.node
    with ThreadPoolExecutor(count) as pool:
        pods = [stage.pod() for _ in range(count)]
        spaces = [pod.__enter__() for pod in pods]
        names = [f"many-{n}" for n in range(count)]

        def call(command: str) -> list[Any]:
            def one(pair: tuple[Namespace, str]) -> Any:
                with node.space.entered():
                    return stage.cni(command, *pair)

            return list(pool.map(one, zip(spaces, names, strict=True)))

        added = call("ADD")
        # None waits until the executable gives up.
        found = {result_of(done)["ips"][0]["address"] for done in added}
        assert len(found) == count == len(node.links())
        assert all(done.status == 0 for done in call("DEL"))
        for pod in pods:
            pod.__exit__(None, None, None)
    node.assert_clean()


@checks("ENV-19", "ENV-21")
def names_of_any_length(stage: Stage) -> None:
    for container, ifname in (("a", "eth0"), ("b" * 64, "net1"), ("c" * 200, "abcdefghijklmno")):
        with stage.added("", container=container, ifname=ifname) as (pod, result):
            assert result["interfaces"][1]["name"] == ifname
            assert f"{ifname}@" in pod.run("ip", "link")
            assert len(result["interfaces"][0]["name"]) <= 15
    with stage.pod() as pod:
        error = stage.error("ADD", pod, ifname="lo")
        assert "lo" in error["msg"]
    stage.node.assert_clean()


@checks("ENV-22", "ENV-23", "THN-07")
def every_form_of_a_namespace_path(stage: Stage) -> None:
    with stage.pod() as pod:
        elsewhere = stage.fresh() / "bound"
        elsewhere.touch()
        sleeper = subprocess.Popen(pod.command("sleep", "600"))
        inside = os.stat(pod.path).st_ino
        wait_for(lambda: os.stat(f"/proc/{sleeper.pid}/ns/net").st_ino == inside)
        subprocess.run(["mount", "--bind", pod.path, elsewhere], check=True)
        try:
            forms = [
                str(pod.path),
                f"/var{pod.path}",
                str(elsewhere),
                f"/proc/{sleeper.pid}/ns/net",
            ]
            for form in forms:
                result = stage.add(pod, CNI_NETNS=form)
                assert result["interfaces"][1]["sandbox"] == form
                stage.delete(pod, CNI_NETNS=form)
        finally:
            subprocess.run(["umount", elsewhere], check=True)
            sleeper.kill()
            sleeper.wait()
    stage.node.assert_clean()


@checks("ENV-23")
def a_process_path_of_another_pid_namespace(stage: Stage) -> None:
    """The daemon's own /proc has another process, or none, under that number."""
    with stage.pod() as pod:
        script = (
            f"nsenter --net={pod.path} sleep 600 & P=$!; "
            f"until [ /proc/$P/ns/net -ef {pod.path} ]; do sleep 0.05; done; "
            f'CNI_NETNS=/proc/$P/ns/net "$0"; S=$?; kill $P; exit $S'
        )
        node = stage.node
        env = {
            "CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_IFNAME": "eth0", "CNI_PATH": "/x",
            "CNI_CALICO_SOCKET": str(node.settings.socket), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
        }  # fmt: skip

        done = subprocess.run(
            ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", script,
             str(stage.build.plugin())],
            env=env, input=json.dumps(network_config()), capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done
        assert json.loads(done.stdout)["interfaces"][1]["sandbox"].startswith("/proc/")
        assert "eth0" in pod.run("ip", "link")
        stage.delete(pod, "", container="c1")
    node.assert_clean()


checks.shown(test_daemon_faults.test_a_killed_executable_is_undone, "ENV-29", "THN-04")
checks.shown(test_daemon_faults.test_a_result_that_cannot_be_delivered_is_undone, "OUT-12")


# ADD

checks.shown(
    test_daemon_add.test_a_pod_gets_its_address_routes_and_neighbour,
    "ADD-01", "ADD-11", "CAL-02", "CAL-03", "CAL-13", "RES-23",
)  # fmt: skip
checks.shown(
    test_in_force.test_an_add_waits_for_the_policy_and_undoes_everything, "ADD-11", "TIM-08"
)
checks.shown(test_daemon_add.test_a_foreign_interface_of_that_name_is_left_alone, "ADD-02")
checks.shown(test_daemon_add.test_two_interfaces_of_one_container_are_independent, "ADD-03")
checks.shown(test_daemon_add.test_a_repeated_add_keeps_address_and_cable, "ADD-04", "IPM-13")
for _step in ("create", "configure"):
    checks.shown(test_daemon_faults.test_a_failure_of_the_wiring_is_undone, "ADD-05", step=_step)
checks.shown(test_daemon_faults.test_etcd_dies_while_the_add_waits_for_felix, "ADD-05", "CAL-27")
checks.shown(test_daemon_faults.test_a_failed_second_add_leaves_the_first_intact, "ADD-07")
checks.shown(
    test_daemon_add.test_a_new_container_of_a_pod_takes_over_and_survives_the_old_del,
    "ADD-08", "ADD-10", "ADD-14", "DEL-19", "CAL-04", "CAL-15", "CAL-24",
)  # fmt: skip
checks.shown(test_daemon_add.test_a_dual_stack_pod_talks_ipv6_at_once, "ADD-09", "CAL-02")
checks.shown(
    test_daemon_faults.test_pools_that_cannot_serve_are_named, "IPM-07", "IPM-08", "IPM-10"
)


@checks("ADD-06", "ERR-12")
def a_del_after_a_failed_add_is_fine(stage: Stage) -> None:
    with stage.pod() as pod:
        pod.run("ip", "link", "add", "eth0", "type", "bridge")
        stage.error("ADD", pod)
        for _ in range(2):
            stage.delete(pod)
        assert "eth0" in pod.run("ip", "link"), "a foreign interface stays"
    stage.node.assert_clean()


@checks("ENV-13")
def noise_in_the_environment_of_an_add(stage: Stage) -> None:
    noise = {"PYTHONHOME": "/x", "TRACEPARENT": "00-1-2-01", "http_proxy": "http://127.0.0.1:1"}
    with stage.added(LC_ALL="C", **noise):
        pass


@checks("CFG-16")
def the_type_decides_nothing(stage: Stage) -> None:
    with stage.added(config={"type": "bridge"}) as (_, result):
        assert result["interfaces"][0]["name"].startswith("cali")


@checks("CAL-16", "CAL-14")
def a_second_call_of_the_same_network_changes_nothing(stage: Stage) -> None:
    with stage.added("", container="c1") as (pod, first):
        again = stage.add(pod, "", container="c1")
        assert again == first
        assert stage.node.in_use() == 1


@checks("CAL-22", "CAL-23", "DEL-01", "DEL-06", "IPM-14", "DEL-11")
def a_del_of_nothing(stage: Stage) -> None:
    with stage.pod() as pod:
        for name in ("calico", "calico-ipam"):
            for _ in range(3):
                stage.delete(pod, plugin=name)
                stage.delete(None, plugin=name)
        stage.add(pod)
        stage.node.etcd.ctl("del", "--prefix", "/calico/resources/v3/projectcalico.org/workloadend")
        for _ in range(3):
            stage.delete(pod)
        stage.add(pod)
        pod.run("ip", "link", "del", "eth0")
        stage.delete(pod)
    stage.node.assert_clean()


@checks("CAL-28")
def a_host_route_of_the_same_interface_is_fine(stage: Stage) -> None:
    with stage.added() as (pod, result):
        host, address = result["interfaces"][0]["name"], result["ips"][0]["address"]
        stage.node.space.run("ip", "route", "replace", address, "dev", host, "scope", "link")
        assert stage.add(pod)["ips"] == result["ips"]


# DEL


@checks("DEL-02", "DEL-03", "DEL-04", "DEL-18")
def a_del_without_the_namespace(stage: Stage) -> None:
    plain = stage.fresh() / "plain"
    plain.touch()
    for netns in ("", "/run/netns/no-such", str(plain)):
        with stage.pod() as pod:
            stage.add(pod)
            stage.delete(None, CNI_NETNS=netns)
            assert "eth0" not in pod.run("ip", "link")
        stage.node.assert_clean()
    with stage.pod() as pod:
        stage.add(pod)
    stage.delete(None)
    stage.node.assert_clean()


@checks("DEL-05")
def a_recycled_path_is_another_containers(stage: Stage) -> None:
    with stage.pod() as old, stage.pod() as new:
        stage.add(old, "old-1")
        kept = stage.add(new, "new-1")
        stage.delete(new, "old-1")
        assert kept["interfaces"][1]["mac"] in new.run("ip", "link", "show", "eth0")
        assert stage.node.in_use() == 1
        stage.delete(new, "new-1")
    stage.node.assert_clean()


@checks("DEL-12", "IPM-17", "CHN-16")
def only_the_attachment_named_goes(stage: Stage) -> None:
    other = {"name": "second-network"}
    with stage.pod() as pod:
        first = stage.add(pod)
        second = stage.add(pod, ifname="net1", config=other)
        assert first["ips"] != second["ips"]
        assert pod.run("ip", "route").count("default") == 1
        stage.delete(pod, ifname="net1", config=other)
        assert "net1" not in pod.run("ip", "link")
        assert stage.node.in_use() == 1
        assert "default" in pod.run("ip", "route")
        stage.delete(pod)
    stage.node.assert_clean()


checks.shown(
    test_daemon_faults.test_etcd_killed_add_fails_and_del_is_finished_later,
    "DEL-14", "ERR-12", "DEL-21", "THN-08",
)  # fmt: skip
checks.shown(
    test_daemon_faults.test_a_del_that_the_kernel_refuses_is_finished_later, "DEL-08", "DEL-21"
)
checks.shown(test_daemon_faults.test_a_del_remembered_is_replayed_at_the_next_start, "THN-08")
checks.shown(
    test_executable_queue.test_a_delete_that_failed_never_sounds_as_done, "DEL-17", "ERR-17"
)
checks.shown(
    test_collection.test_a_reboot_leaks_nothing_and_living_pods_keep_their_addresses, "DEL-18"
)
checks.shown(test_daemon_faults.test_etcd_that_hangs_gives_code_11_in_time, "TIM-03", "TIM-04")
checks.shown(
    test_executable_daemon.test_success_of_other_verbs_prints_nothing, "OUT-06", command="DEL"
)


@checks("DEL-16", "CAL-25", "CAL-37")
def a_del_whatever_the_configuration_says(stage: Stage) -> None:
    for config in (
        {"nodename_file": "/nonexistent"}, {"ipam": {"type": "calico-ipam", "ipv4_pools": [5]}},
        {"policy": "broken"}, {"nodename": "another"},
    ):  # fmt: skip
        with stage.pod() as pod:
            stage.add(pod)
            stage.delete(pod, config=config)
        stage.node.assert_clean()


@checks("DEL-20")
def flows_of_a_released_address_are_forgotten(stage: Stage) -> None:
    with stage.pod() as pod:
        result = stage.add(pod)
        address = result["ips"][0]["address"].partition("/")[0]
        space = stage.node.space
        space.run("conntrack", "-I", "-s", address, "-d", "10.9.9.9", "-p", "tcp", "--sport", "1",
                  "--dport", "2", "--state", "ESTABLISHED", "--timeout", "600")  # fmt: skip
        assert address in space.run("conntrack", "-L")
        stage.delete(pod)
        assert address not in space.run("conntrack", "-L")
        assert stage.add(pod)["ips"][0]["address"] != result["ips"][0]["address"]
        stage.delete(pod)
    stage.node.assert_clean()


# CHECK

for _version in ("0.4.0", "1.0.0", "1.1.0"):
    checks.shown(
        test_check.test_what_add_left_is_good_and_stays_as_it_is,
        "CHK-01", "CHK-09", "CHK-12", "OUT-07", "TIM-05", "CHK-02", "CAL-29", version=_version,
    )  # fmt: skip
checks.shown(
    test_check.test_each_broken_point_is_named, "CHK-03", "CHK-05", "CHK-06", "ERR-18", "IPM-18"
)
checks.shown(test_check.test_what_later_plugins_add_and_change_is_good, "CHK-04", "PRV-09")
checks.shown(test_check.test_prevresult_is_needed_and_must_be_ours, "PRV-08")
checks.shown(test_check.test_code_3_only_when_nothing_is_held, "CHK-13", "ERR-06")
checks.shown(test_check.test_right_after_an_add_it_waits_for_the_real_felix, "CHK-08", "TIM-05")


# STATUS


@checks("STA-01", "STA-05", "STA-06", "STA-07", "TIM-06", "OUT-09", "STA-11", "IPM-20")
def status_of_a_node_that_is_ready(stage: Stage) -> None:
    before = stage.node.etcd.ctl("get", "--prefix", "/calico").decode()
    for name in ("calico", "calico-ipam"):
        done = stage.cni("STATUS", None, "", config=NEWEST, plugin=name)
        assert (done.status, done.stdout) == (0, b"")
    assert stage.node.etcd.ctl("get", "--prefix", "/calico").decode() == before


@checks("STA-02", "STA-09", "ERR-13", "STA-10", "IPM-20")
def status_names_what_is_missing(stage: Stage) -> None:
    node = stage.node
    for config, words in (
        ({"ipam": {"type": "calico-ipam", "ipv4_pools": ["nope"]}}, "nope"),
        ({"nodename_file": "/nonexistent/nodename"}, "/nonexistent/nodename"),
        ({"require_mtu_file": True}, str(node.settings.mtu_file)),
        ({"nodename": "another"}, "another"),
        ({"ipam": {"type": "no-such"}}, "no-such"),
    ):
        error = stage.error("STATUS", None, "", config=NEWEST | config)
        assert (error["code"], words in error["msg"]) == (50, True), error
    # Six families are not asked for, so an exhausted IPv6 pool would not count.
    assert stage.cni("STATUS", None, "", config=NEWEST).status == 0


@checks("STA-03", "ERR-13")
def status_says_when_running_pods_suffer(stage: Stage) -> None:
    space = stage.node.space
    forwarding = space.run("sysctl", "-n", "net.ipv4.ip_forward").strip()
    space.run("sysctl", "-qw", "net.ipv4.ip_forward=0")
    try:
        error = stage.error("STATUS", None, "", config=NEWEST)
        assert (error["code"], "ip_forward" in error["msg"]) == (51, True), error
    finally:
        space.run("sysctl", "-qw", f"net.ipv4.ip_forward={forwarding}")
    folder = stage.node.settings.status
    peers = [{"address": "10.0.0.9", "state": "start"}]
    status_file.write("bgp", {"peers": peers}, folder)
    try:
        error = stage.error("STATUS", None, "", config=NEWEST)
        assert (error["code"], "BGP" in error["msg"]) == (51, True), error
        status_file.write("bgp", {"peers": [*peers, {"state": "up"}]}, folder)
        assert stage.cni("STATUS", None, "", config=NEWEST).status == 0
    finally:
        (folder / "bgp.json").unlink()
    away, done = NEWEST | {"policy_setup_timeout_seconds": 5}, Done(0, b"", "")

    def told() -> int:
        nonlocal done
        done = stage.cni("STATUS", None, "", config=away)
        return done.status

    wait_for(told)
    assert (done.error["code"], "calico-felix" in done.error["msg"]) == (51, True)


# GC


def _gc(stage: Stage, valid: Any = (), key: str = "cni.dev/valid-attachments", **more: Any) -> Any:
    listed = valid if valid is None else list(valid)
    done = stage.cni("GC", None, "", config=NEWEST | {key: listed} | more)
    return json.loads(done.stdout) if done.stdout else done.status


@checks("GC-01", "GC-02", "GC-03", "GC-06", "GC-07", "GC-12", "GC-13", "OUT-08", "IPM-19", "ENV-10")
def gc_removes_what_the_list_lacks(stage: Stage) -> None:
    node = stage.node
    pods = [stage.pod() for _ in range(3)]
    spaces = [pod.__enter__() for pod in pods]
    names = [f"gc-{n}" for n in range(3)]
    for space, name in zip(spaces, names, strict=True):
        stage.add(space, name)
    stage.add(spaces[0], names[0], ifname="net1")
    stage.add(spaces[1], names[1], ifname="other1", config={"name": "another"})
    assert node.in_use() == 5
    keep = [{"containerID": container_id(name), "ifname": "eth0"} for name in names[:2]]

    assert stage.cni("GC", None, "", config=NEWEST).status == 0
    assert node.in_use() == 5, "no list: nothing"
    assert _gc(stage, [5])["code"] == 7
    assert _gc(stage, [{"ifname": "eth0"}])["code"] == 7
    assert node.in_use() == 5, "a malformed list: nothing"
    extra = [{"containerID": container_id(names[2]), "ifname": "", "more": 1}]
    assert _gc(stage, keep + extra) == 0
    assert node.in_use() == 4, "the same container, another interface"
    assert "net1" not in spaces[0].run("ip", "link")
    assert "eth0" in spaces[0].run("ip", "link")
    assert _gc(stage, keep, "cni.dev/attachments") == 0
    assert node.in_use() == 3, "the old key"
    assert "eth0" not in spaces[2].run("ip", "link")
    before = node.etcd.ctl("get", "--prefix", "/calico").decode()
    assert _gc(stage, keep) == 0
    assert node.etcd.ctl("get", "--prefix", "/calico").decode() == before
    assert _gc(stage, None) == 0
    assert node.in_use() == 1, "null is the empty list; another network is out of reach"
    assert _gc(stage, (), name="another") == 0
    for pod in pods:
        pod.__exit__(None, None, None)
    node.assert_clean()


@checks("GC-08")
def gc_leaves_late_comers_alone(stage: Stage) -> None:
    with stage.pod() as old, stage.pod() as new:
        stage.add(old, "old-1")
        node = stage.node
        settled = threading.Event()

        def late() -> None:
            with node.space.entered():
                for _ in range(5):
                    stage.add(new, "new-1")
            settled.set()

        thread = threading.Thread(target=late)
        thread.start()
        while not settled.is_set():
            keep = [{"containerID": container_id("new-1"), "ifname": "eth0"}]
            assert _gc(stage, keep) == 0
        thread.join()
        assert "eth0" in new.run("ip", "link")
        stage.delete(new, "new-1")
    node.assert_clean()


checks.shown(test_garbage.test_one_failure_does_not_stop_the_others, "GC-04")


@checks("GC-11", "TIM-07")
def gc_is_quick(stage: Stage) -> None:
    began = time.monotonic()
    assert _gc(stage) == 0
    assert time.monotonic() - began < HANG


# Calico's behaviours

checks.shown(test_attachment.test_names_are_calicos, "CAL-01")
for _test, _ids in (
    (test_annotations.test_a_nodename_that_names_no_node_is_refused, ("CAL-05",)),
    (test_annotations.test_a_pod_gets_the_address_and_the_mac_that_it_asks_for, ("CAL-11",)),
    (test_annotations.test_floating_addresses_and_sources_are_handed_to_felix, ("CAL-11",)),
    (test_annotations.test_addresses_without_ipam_need_an_administrator, ("CAL-12",)),
    (test_annotations.test_whatever_a_runtime_adds_is_taken_in, ("CAL-21", "CAL-34")),
    (test_annotations.test_at_debug_an_add_tells_its_three_steps, ("CAL-18",)),
):
    checks.shown(_test, *_ids)
checks.shown(test_executable.test_flags_and_ignored_arguments, "CAL-33")

test_conformance = checks.items()
