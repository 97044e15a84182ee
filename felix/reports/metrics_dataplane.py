"""Felix's metrics of the kernel's side: commits, links, routes, sets and rules.

Of the back end that is not in use the counters stand at 0: Calico's panels add them up. Its gauges
are not served, as in Calico.
Tested in tests/felix/reports/test_metrics.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from felix.dataplane.loop import Dataplane
from felix.dataplane.rules.backend_mode import NATIVE
from felix.dataplane.rules.iptables import IptablesTables
from felix.dataplane.rules.manager import RulesManager
from felix.dataplane.rules.nftables import NftTables
from libcalico.process import logs
from libcalico.process.prometheus_text import Figure, labelled
from libcalico.process.summaries import Summary
from linux.nflog import RECEIVED

WAITING, RESYNCING, IN_SYNC = 1, 2, 3


class _Counts(NamedTuple):
    """What a back end counts of rules and sets."""

    reads: int = 0
    writes: int = 0
    not_read: int = 0
    not_written: int = 0
    lines: int = 0
    set_calls: int = 0
    set_errors: int = 0
    set_lines: int = 0


def of_dataplane(plane: Dataplane) -> Iterator[Figure]:
    """Commits, what the kernel told, routes."""
    state, heard, routing = plane.state, plane.view.heard, plane.routing
    resync = IN_SYNC if state.applied else (RESYNCING if plane.calc.in_sync else WAITING)
    yield Figure("felix_resync_state", "1 waiting, 2 reading, 3 in sync.", resync)
    yield Figure(
        "felix_int_dataplane_failures",
        "Commits to the kernel that are tried again.",
        state.failed_applies,
        "counter",
    )
    for summary, name, meaning in (
        (state.apply_times, "apply_time_seconds", "Time that commits to the kernel took."),
        (state.batches, "msg_batch_size", "What commits took of the calculation."),
        (heard.links, "iface_msg_batch_size", "Notifications of links that came at once."),
        (heard.addresses, "addr_msg_batch_size", "Notifications of addresses that came at once."),
    ):
        yield summary.figure(f"felix_int_dataplane_{name}", meaning)
    if state.first_seconds is not None:
        yield Figure(
            "felix_int_dataplane_initial_resync_time_seconds",
            "Time from the start to the first commit that stood.",
            state.first_seconds,
        )
    yield Figure(
        "felix_route_table_num_routes", "Routes of ours in the kernel.", len(routing.routes)
    )
    yield Figure("felix_route_table_num_ifaces", "Interfaces with such routes.", len(state.active))
    meaning = "Time that each reading of all routes took."
    yield heard.route_reads.figure("felix_route_table_resync_seconds", meaning)
    meaning = "Time for which addresses waited for the removal of old connections."
    yield routing.flow_waits.figure("felix_route_table_conntrack_wait_seconds", meaning)
    yield Figure("felix_log_errors", "Log lines that were not written.", logs.errors(), "counter")


def of_nflog() -> Iterator[Figure]:
    """Packets that rules told of, while they are watched."""
    for name, text, value in (
        ("netlink_messages_received", "Messages with packets.", RECEIVED.messages),
        ("buffer_overruns", "How often the kernel had no room.", RECEIVED.overruns),
    ):
        yield Figure(f"felix_nflog_{name}", text, value, "counter")
    yield from labelled(
        "felix_nflog_logs_received",
        "Packets in these, by group.",
        (({"groupNum": str(group)}, n) for group, n in sorted(RECEIVED.packets.items())),
        "counter",
    )


def of_programs(times: Summary) -> Iterator[Figure]:
    """Programs that felix ran; `times` in microseconds."""
    yield times.figure("felix_exec_time_micros", "Time for which programs were waited for.")


def of_rules(rules: RulesManager) -> Iterator[Figure]:
    """Rules and sets, under Calico's names for the back ends."""
    wanted = "Sets of addresses that are wanted."
    yield Figure("felix_ipsets_calico", wanted, rules.set_count)
    tables, sets = rules.tables, rules.sets
    if tables is None or sets is None:
        return
    native = tables.name == NATIVE
    counts = _Counts(
        tables.saves,
        tables.restores,
        *tables.errors,
        tables.lines if isinstance(tables, IptablesTables) else 0,
        sets.calls,
        sets.errors,
        sets.lines,
    )
    yield from _of_iptables(_Counts() if native else counts)
    yield from _of_nftables(counts if native else _Counts())
    family = "nft" if native else "iptables"
    yield Figure(f"felix_{family}_chains", "Chains of ours.", tables.chains)
    yield Figure(f"felix_{family}_rules", "Rules of ours.", tables.rules)
    if isinstance(tables, NftTables):
        yield Figure("felix_nft_maps", "Verdict maps of ours.", tables.maps)
        yield Figure("felix_nft_sets", "Sets of ours.", len(sets))
    else:
        every = "Sets of addresses in the kernel, of all programs when they were read last."
        yield Figure("felix_ipsets_total", every, len(sets) + sets.foreign)
    yield Figure(
        "muslin_felix_rule_drift_total", "Chains found changed.", tables.drifted, "counter"
    )


def _of_iptables(counts: _Counts) -> Iterator[Figure]:
    for name, text, value in (
        ("iptables_save_calls", "Reads of rules.", counts.reads),
        ("iptables_save_errors", "Reads that failed.", counts.not_read),
        ("iptables_restore_calls", "Writes of rules.", counts.writes),
        ("iptables_restore_errors", "Writes that failed.", counts.not_written),
        ("iptables_lines_executed", "Lines written.", counts.lines),
        ("ipset_calls", "Requests that change sets.", counts.set_calls),
        ("ipset_errors", "Sets that could not be written.", counts.set_errors),
        ("ipset_lines_executed", "Members and sets that these named.", counts.set_lines),
    ):
        yield Figure(f"felix_{name}", text, value, "counter")


def _of_nftables(counts: _Counts) -> Iterator[Figure]:
    for name, text, value in (
        ("nft_list_calls", "Reads of rules.", counts.reads),
        ("nft_list_errors", "Reads that failed.", counts.not_read),
        ("nft_calls", "Writes of rules.", counts.writes),
        ("nft_errors", "Writes that failed.", counts.not_written),
        ("nft_set_calls", "Requests that change sets.", counts.set_calls),
        ("nft_set_errors", "Sets that could not be written.", counts.set_errors),
    ):
        yield Figure(f"felix_{name}", text, value, "counter")
