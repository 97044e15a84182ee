"""The nodes: kernel, routes, memory and processor time.

Tested in tests/monitoring/test_panels.py.
"""

from __future__ import annotations

from manifests.dashboards.values import COMMIT, Board, Panel, added, each, of_agents, rate

NODE = Board(
    "node",
    "Calico: nodes",
    (
        Panel("Felix in sync (3) or not", "short", (each("felix_resync_state"),)),
        Panel(
            "Readings of the datastore, and whether it is followed",
            "short",
            (
                each("felix_resyncs_started", "readings {{instance}}"),
                each("muslin_felix_datastore_connected", "followed {{instance}}"),
            ),
        ),
        Panel(
            "Time of a commit to the kernel",
            "s",
            tuple(
                each(COMMIT, f"p{name} {{{{instance}}}}", f'quantile="{quantile}"')
                for name, quantile in (("50", "0.5"), ("99", "0.99"))
            ),
        ),
        Panel(
            "Commits, and those that failed",
            "ops",
            (
                rate(f"{COMMIT}_count", "commits {{instance}}"),
                rate("felix_int_dataplane_failures", "failed {{instance}}"),
            ),
        ),
        Panel(
            "Rules, links and tunnels changed by others",
            "ops",
            (
                rate("muslin_felix_rule_drift_total", "rules {{instance}}"),
                rate("muslin_felix_link_drift_total", "links {{instance}}"),
                rate("muslin_felix_tunnel_drift_total", "tunnels {{instance}}"),
            ),
        ),
        Panel(
            "Routes in the kernel, and prefixes with a path",
            "short",
            (
                each("felix_route_table_num_routes", "routes {{instance}}"),
                each("calico_bgp_prefixes", "prefixes {{instance}}"),
            ),
        ),
        Panel(
            "Paths by peers: received, offered, kept of one that restarts, not taken",
            "short",
            tuple(
                added("instance", each(f"calico_bgp_paths_{name}"), f"{name} {{{{instance}}}}")
                for name in ("received", "sent", "stale", "refused")
            ),
        ),
        Panel(
            "What the kernel told: notifications of links and addresses",
            "ops",
            (
                rate("felix_int_dataplane_iface_msg_batch_size_sum", "links {{instance}}"),
                rate("felix_int_dataplane_addr_msg_batch_size_sum", "addresses {{instance}}"),
            ),
        ),
        Panel(
            "Memory of the agents",
            "bytes",
            (of_agents(each("process_resident_memory_bytes", "{{job}} {{instance}}")),),
        ),
        Panel(
            "Processor time of the agents, in cores",
            "short",
            (of_agents(rate("process_cpu_seconds_total", "{{job}} {{instance}}")),),
        ),
    ),
)
