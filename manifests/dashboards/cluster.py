"""The cluster: nodes, sessions, addresses, controllers.

Tested in tests/monitoring/test_panels.py.
"""

from __future__ import annotations

from manifests.dashboards.values import COMMIT, HERE, Board, Panel, added, rate

CLUSTER = Board(
    "cluster",
    "Calico: cluster",
    (
        Panel(
            "Nodes known, and nodes whose felix is in sync",
            "short",
            (
                ("max(felix_cluster_num_hosts)", "known"),
                ("count(felix_resync_state == 3)", "in sync"),
            ),
        ),
        Panel(
            "What the cluster has",
            "short",
            tuple(
                (f"max(felix_cluster_num_{name})", name.replace("_", " "))
                for name in (
                    "workload_endpoints",
                    "host_endpoints",
                    "policies",
                    "profiles",
                    "tiers",
                )
            ),
        ),
        Panel(
            "BGP sessions",
            "short",
            (
                (f"sum(calico_bgp_peer_up{HERE})", "up"),
                (f"count(calico_bgp_peer_up{HERE})", "wanted"),
            ),
        ),
        Panel(
            "Sessions lost, by reason",
            "ops",
            (added("reason", rate("calico_bgp_session_downs_total"), "{{reason}}"),),
        ),
        Panel(
            "Addresses of a pool in use",
            "percentunit",
            (
                (
                    "sum by (ippool) (ipam_allocations_in_use) / on (ippool) ipam_ippool_size",
                    "{{ippool}}",
                ),
            ),
        ),
        Panel(
            "Blocks, and addresses in blocks of other nodes",
            "short",
            (
                ("sum by (ippool) (ipam_blocks)", "blocks {{ippool}}"),
                ("sum by (ippool) (ipam_allocations_borrowed)", "borrowed {{ippool}}"),
            ),
        ),
        Panel(
            "Addresses that look unused, and those that came back",
            "short",
            (
                ("sum by (ippool) (ipam_allocations_gc_candidates)", "look unused {{ippool}}"),
                (
                    "sum by (ippool) (increase(ipam_allocations_gc_reclamations[15m]))",
                    "came back {{ippool}}",
                ),
            ),
        ),
        Panel(
            "Controllers: work that waits and fails",
            "short",
            (
                ("sum by (controller) (muslin_controllers_queue)", "waits {{controller}}"),
                ("sum by (controller) (muslin_controllers_failing)", "fails {{controller}}"),
            ),
        ),
        Panel(
            "Nodes with something to look at",
            "short",
            (
                ("count(muslin_felix_differences > 0) or vector(0)", "differ from the datastore"),
                ("count(muslin_felix_policy_conditions > 0) or vector(0)", "policy as written"),
                ("count(muslin_felix_route_conflicts > 0) or vector(0)", "foreign routes"),
                ("count(muslin_felix_datastore_connected == 0) or vector(0)", "no datastore"),
            ),
        ),
        Panel(
            "The five slowest nodes: commits to the kernel, p99",
            "s",
            ((f'topk(5, {COMMIT}{{instance=~"$instance", quantile="0.99"}})', "{{instance}}"),),
        ),
    ),
)
