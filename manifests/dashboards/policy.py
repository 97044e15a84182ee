"""Policy: what selects, what is in the kernel, what is not as written.

Tested in tests/monitoring/test_panels.py.
"""

from __future__ import annotations

from manifests.dashboards.values import BATCH, HERE, Board, Panel, added, each, rate, worst

FLOWS = "rate(muslin_flow_packets_total[5m])", ""
CONNECTIONS = "rate(muslin_flow_connections_total[5m])", ""
DENIED = 'rate(muslin_flow_packets_total{action="deny"}[5m])'
POLICY_NAME = "{{kind}} {{tier}} {{namespace}} {{policy}}"
POLICY = Board(
    "policy",
    "Calico: policy and flows",
    (
        Panel(
            "Policies that select an endpoint of the node",
            "short",
            (each("felix_active_local_policies"),),
        ),
        Panel(
            "Selectors of these, and staged policies that would act",
            "short",
            (
                each("felix_active_local_selectors", "selectors {{instance}}"),
                each("muslin_felix_staged_policies_here", "staged {{instance}}"),
            ),
        ),
        Panel(
            "Not as written: policies, objects that are not understood, documents not readable",
            "short",
            (
                each("muslin_felix_policy_conditions", "policies {{instance}}"),
                each("muslin_felix_broken_objects", "objects {{instance}}"),
                each("muslin_felix_unreadable_documents", "documents {{instance}}"),
            ),
        ),
        Panel(
            "Differences that felix finds between the datastore and the kernel",
            "short",
            (each("muslin_felix_differences"),),
        ),
        Panel(
            "Rules in the kernel",
            "short",
            (
                (
                    f"sum by (instance) (felix_nft_rules{HERE} or felix_iptables_rules{HERE})",
                    "{{instance}}",
                ),
            ),
        ),
        Panel(
            "Sets of addresses in the kernel",
            "short",
            (each("felix_ipsets_calico"),),
        ),
        Panel(
            "Calculation of a batch of changes",
            "s",
            (
                worst(BATCH, "0.5", "p50, the worst node"),
                worst(BATCH, "0.99", "p99, the worst node"),
            ),
        ),
        Panel(
            "What the calculation hands over, by kind",
            "ops",
            (added("type", rate("felix_int_dataplane_messages"), "{{type}}"),),
        ),
        Panel(
            "Writes of rules and sets, and those that failed",
            "ops",
            (
                (
                    f"sum(rate(felix_nft_calls{HERE}[5m])) + "
                    f"sum(rate(felix_iptables_restore_calls{HERE}[5m]))",
                    "rules",
                ),
                (
                    f"sum(rate(felix_nft_set_calls{HERE}[5m])) + "
                    f"sum(rate(felix_ipset_calls{HERE}[5m]))",
                    "sets",
                ),
                (
                    f"sum(rate(felix_nft_errors{HERE}[5m])) + "
                    f"sum(rate(felix_iptables_restore_errors{HERE}[5m])) + "
                    f"sum(rate(felix_nft_set_errors{HERE}[5m])) + "
                    f"sum(rate(felix_ipset_errors{HERE}[5m]))",
                    "failed",
                ),
            ),
        ),
        Panel(
            "Packets that rules told of while they were watched, and losses of them",
            "ops",
            (
                added("instance", rate("felix_nflog_logs_received"), "told {{instance}}"),
                rate("felix_nflog_buffer_overruns", "lost {{instance}}"),
            ),
        ),
        Panel(
            "Packets of flows, by verdict and by which end tells",
            "ops",
            (added("action, reporter", FLOWS, "{{action}} at {{reporter}}"),),
        ),
        Panel(
            "New connections, by verdict and by which end tells",
            "ops",
            (added("action, reporter", CONNECTIONS, "{{action}} at {{reporter}}"),),
        ),
        Panel(
            "The ten policies that deny most packets",
            "ops",
            ((f"topk(10, sum by (kind, tier, namespace, policy) ({DENIED}))", POLICY_NAME),),
        ),
        Panel(
            "The aggregator of flows: nodes that deliver, flows that no bucket took",
            "short",
            (
                ("goldmane_collector_num_clients", "nodes"),
                ("sum(increase(goldmane_aggr_dropped_flows_total[5m])) or vector(0)", "left out"),
            ),
        ),
    ),
)
