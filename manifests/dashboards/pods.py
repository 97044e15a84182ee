"""Pod starts: the plugin's calls by stage, and felix's part.

Tested in tests/monitoring/test_panels.py.
"""

from __future__ import annotations

from manifests.dashboards.values import (
    CALLS,
    COMMIT,
    STAGES,
    Board,
    Panel,
    added,
    each,
    rate,
    worst,
)

ADD = 'command="ADD"'
FAILED = f'{ADD}, code!="0"'
WORST_OF_ADD = f'{ADD}, quantile="0.99"'
PODS = Board(
    "pods",
    "Calico: pod start",
    (
        Panel(
            "Calls of the plugin, by command and result",
            "ops",
            (added("command, code", rate(CALLS), "{{command}} {{code}}"),),
        ),
        Panel(
            "Time of an ADD, the worst node",
            "s",
            tuple(
                worst(STAGES, quantile, f"p{name}", f'{ADD}, stage="total"')
                for name, quantile in (("50", "0.5"), ("90", "0.9"), ("99", "0.99"))
            ),
        ),
        Panel(
            "Stages of an ADD: mean",
            "s",
            (
                (
                    f"sum by (stage) ({rate(f'{STAGES}_sum', labels=ADD)[0]}) / "
                    f"sum by (stage) ({rate(f'{STAGES}_count', labels=ADD)[0]})",
                    "{{stage}}",
                ),
            ),
        ),
        Panel(
            "Stages of an ADD: p99 of the worst node",
            "s",
            (
                (
                    f"max by (stage) ({each(STAGES, labels=WORST_OF_ADD)[0]})",
                    "{{stage}}",
                ),
            ),
        ),
        Panel(
            "ADDs that failed, of all",
            "percentunit",
            (
                (
                    f"(sum by (instance) ({rate(CALLS, labels=FAILED)[0]}) or "
                    f"0 * sum by (instance) ({rate(CALLS, labels=ADD)[0]})) / "
                    f"sum by (instance) ({rate(CALLS, labels=ADD)[0]})",
                    "{{instance}}",
                ),
            ),
        ),
        Panel(
            "Work that waits",
            "short",
            (
                each("calico_cni_in_flight", "calls {{instance}}"),
                each("calico_cni_pending_deletes", "deletions {{instance}}"),
            ),
        ),
        Panel(
            "Endpoints: known, and with policy in the kernel",
            "short",
            (
                each("felix_active_local_endpoints", "known {{instance}}"),
                each("muslin_felix_endpoints_in_force", "in force {{instance}}"),
            ),
        ),
        Panel(
            "Felix: time of a commit to the kernel, the worst node",
            "s",
            (worst(COMMIT, "0.5", "p50"), worst(COMMIT, "0.99", "p99")),
        ),
        Panel(
            "Transactions of the allocator, and addresses of dead containers that came back",
            "ops",
            (
                rate("calico_cni_ipam_transactions", "transactions {{instance}}"),
                rate("calico_cni_ipam_collected_total", "came back {{instance}}"),
            ),
        ),
        Panel(
            "Pods that run and are not in the datastore, and those that were put back",
            "short",
            (
                each("calico_cni_attachments_lost", "lost {{instance}}"),
                each("calico_cni_restored_total", "put back {{instance}}"),
            ),
        ),
    ),
)
