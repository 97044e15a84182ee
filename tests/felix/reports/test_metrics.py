"""The metrics: names that Calico has, values that are true, a page that Prometheus reads."""

from __future__ import annotations

import re
import time
from fnmatch import fnmatch

import pytest
from prometheus_client.parser import text_string_to_metric_families

from felix.dataplane.rules.backend_mode import NATIVE
from libcalico.process.prometheus_text import Figure, text
from manifests.image.wheels import ROOT
from tests.felix.world import METRICS_PORT, NODE, World
from tests.monitoring.calicos_names import rows
from tests.support.patience import wait_for

PROCESS = {
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
}
PLACES = {"yes", "iptables", "nftables", "no", "controllers"}


def test_the_table_has_every_name_of_calicos_and_a_reason_for_what_is_absent() -> None:
    told = rows()
    golden = (ROOT / "tests" / "golden" / "calico-metrics.txt").read_text().splitlines()
    known = {line for line in golden if not line.startswith("#")}
    assert len(known) > 100
    single = {name for name in told if not name.endswith("*")}
    groups = {name for name in told if name.endswith("*")}
    assert single <= known, "no such metric in Calico"
    covered = {name for name in known if any(fnmatch(name, group) for group in groups)}
    assert covered.isdisjoint(single)
    assert known == single | covered
    assert {served for served, _ in told.values()} <= PLACES
    for name, (served, said) in told.items():
        assert served != "no" or len(said) > 7, f"{name}: no reason"


def test_the_page_is_what_prometheus_reads() -> None:
    found = [
        Figure("felix_calls", "Calls.", 3, "counter"),
        Figure("felix_host", "The node.", 1, labels={"host": 'a"\\b\n'}),
        Figure("felix_time", "Time.", 0.25, "summary", 2),
    ]
    families = {f.name: f for f in text_string_to_metric_families(text(found))}
    # The parser adds what this Calico counter has not.
    assert families["felix_calls"].type == "counter"
    assert "\nfelix_calls 3.0\n" in text(found)
    assert families["felix_host"].samples[0].labels == {"host": 'a"\\b\n'}
    assert {s.name: s.value for s in families["felix_time"].samples} == {
        "felix_time_sum": 0.25,
        "felix_time_count": 2,
    }


def names(world: World) -> set[str]:
    page = world.get("/metrics", METRICS_PORT)[1]
    families = list(text_string_to_metric_families(page))
    assert [f.name for f in families if not f.documentation] == []
    return {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")}


@pytest.mark.promise("F-95")
def test_calicos_names_and_true_values(world: World, backend: str) -> None:
    world.add_pod("a", "cali0000000000a", "10.65.0.1")
    wait_for(lambda: world.metric("muslin_felix_endpoints_in_force") == 1)
    places = {"yes", "nftables" if backend == NATIVE else "iptables"}
    expected = {name for name, (where, _) in rows().items() if where in places}
    served = {name for name in names(world) if not name.startswith("muslin_")}
    assert served - PROCESS == expected
    assert served >= PROCESS
    assert f'felix_host{{host="{NODE}"}} 1.0' in world.get("/metrics", METRICS_PORT)[1]
    assert world.metric("felix_resync_state") == 3
    assert world.metric("felix_cluster_num_hosts") == 1
    assert world.metric("felix_cluster_num_workload_endpoints") == 1
    # Two of the world's, and the one that every datastore has.
    assert world.metric("felix_cluster_num_profiles") == 3

    def routes() -> int:
        both = world.routes("proto", "109") + world.routes("proto", "109", family=6)
        return len(both.splitlines())

    wait_for(lambda: world.metric("felix_route_table_num_routes") == routes(), routes)
    before = world.metric("felix_int_dataplane_apply_time_seconds_count")
    processed = world.metric("felix_calc_graph_updates_processed")
    spec = {"order": 1, "selector": "all()", "ingress": [{"action": "Allow"}]}
    world.put("globalnetworkpolicies", "allow", "GlobalNetworkPolicy", spec)
    wait_for(lambda: world.metric("felix_active_local_policies") == 1)
    assert world.metric("felix_cluster_num_policies") == 1
    # A batch is counted once all of it is applied.
    wait_for(lambda: world.metric("felix_calc_graph_updates_processed") > processed)
    assert world.metric("felix_calc_graph_updates_processed") == processed + 1
    wait_for(lambda: world.metric("felix_int_dataplane_apply_time_seconds_count") > before)
    batches = world.metric("felix_calc_graph_update_time_seconds_count")
    assert 1 <= batches <= processed + 1
    lived = time.time() - world.metric("process_start_time_seconds")
    assert 0 < world.metric("felix_calc_graph_update_time_seconds_sum") < lived
    check_what_is_counted(world, backend)
    programs = world.metric("felix_exec_time_micros_count")
    if backend == NATIVE:
        assert programs <= 4, "only iptables is asked, for what it may hold of ours"
    else:
        calls = ("felix_iptables_save_calls", "felix_iptables_restore_calls")
        # A program counts once it has ended.
        called = sum(map(world.metric, calls))
        wait_for(lambda: world.metric("felix_exec_time_micros_count") >= called)
        # Of microseconds: no program is that fast, and none takes so many of a larger unit.
        assert world.metric("felix_exec_time_micros_sum") > 100 * programs
        assert world.metric("felix_iptables_lines_executed") > 50
    assert world.metric(f"felix_{'nft' if backend == NATIVE else 'iptables_restore'}_errors") == 0
    assert 0 < world.metric("felix_int_dataplane_initial_resync_time_seconds") < lived
    assert world.metric("process_resident_memory_bytes") > 1e7


def check_what_is_counted(world: World, backend: str) -> None:
    """Values that one reading of the datastore, one pod and one policy must have."""
    assert world.metric("felix_resyncs_started") == 1
    handed = world.metric("felix_calc_graph_output_events")
    page = world.get("/metrics", METRICS_PORT)[1]
    kinds = dict(re.findall(r'felix_int_dataplane_messages{type="(\w+)"} (\S+)', page))
    assert kinds.keys() == {"set", "policy", "profile", "endpoint", "host_endpoint", "interface"}
    assert float(kinds["policy"]) >= 1
    assert float(kinds["interface"]) >= 1
    wait_for(lambda: handed <= world.metric("felix_int_dataplane_msg_batch_size_sum"))
    for name in ("iface_msg_batch_size", "addr_msg_batch_size"):
        size = f"felix_int_dataplane_{name}"
        # The last of a pod's addresses is one that its link gives itself, after a second or so.
        wait_for(lambda size=size: world.metric(f"{size}_count"), size)  # type: ignore[misc]
        assert 1 <= world.metric(f"{size}_count") <= world.metric(f"{size}_sum")
    assert world.metric("felix_route_table_resync_seconds_count") >= 1
    (median, worst) = (
        float(found)
        for quantile in ("0.5", "0.99")
        for found in re.findall(
            rf'felix_int_dataplane_apply_time_seconds{{quantile="{quantile}"}} (\S+)', page
        )
    )
    assert 0 < median <= worst
    ours, theirs = ("nft_set", "ipset") if backend == NATIVE else ("ipset", "nft_set")
    assert world.metric(f"felix_{ours}_calls") >= world.metric("felix_ipsets_calico") > 0
    assert world.metric(f"felix_{theirs}_calls") == 0
    assert world.metric("felix_log_errors") == 0


def test_what_was_right_and_is_found_changed_is_counted(world: World) -> None:
    world.add_pod("b", "cali0000000000b", "10.65.0.2")
    wait_for(lambda: world.metric("felix_active_local_endpoints") >= 1)
    wait_for(lambda: "10.65.0.2" in world.routes())
    before = wait_for(lambda: world.metric("muslin_felix_link_drift_total") + 1) - 1
    world.node.run("sysctl", "-qw", "net.ipv4.ip_forward=0")
    wait_for(lambda: world.node.run("sysctl", "-n", "net.ipv4.ip_forward").strip() == "1")
    wait_for(lambda: world.metric("muslin_felix_link_drift_total") > before)
    before = world.metric("muslin_felix_link_drift_total")
    setting = "net.ipv4.conf.cali0000000000b.proxy_arp"
    wait_for(lambda: world.node.run("sysctl", "-n", setting).strip() == "1")
    world.node.run("sysctl", "-qw", f"{setting}=0")
    wait_for(lambda: world.node.run("sysctl", "-n", setting).strip() == "1")
    wait_for(lambda: world.metric("muslin_felix_link_drift_total") > before)
