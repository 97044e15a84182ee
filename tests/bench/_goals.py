"""The goals of speed and size, and where in a bench's JSON the figure of each stands.

A path is a sequence of keys; `*` takes the worst of all values at that place, so that a goal that
holds for both back ends has one row. Tested in tests/support/test_performance.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Goal:
    """A limit of one figure.

    `flags`: with which the bench measures at the size that the goal is about. `least`: the figure
    must not be below the limit, instead of not above it.
    """

    what: str
    path: tuple[str, ...]
    limit: float
    unit: str = ""
    flags: str = ""
    least: bool = False
    why_missed: str = ""

    def met(self, figure: float) -> bool:
        """Whether a figure reaches the goal."""
        return figure >= self.limit if self.least else figure <= self.limit

    def row(self, figure: float) -> Json:
        """The goal and its figure, for a report."""
        return {
            "what": self.what,
            "goal": self.text,
            "limit": self.limit,
            "least": self.least,
            "figure": figure,
            "met": self.met(figure),
        }

    @property
    def text(self) -> str:
        """The limit with its unit, such as `at most 0.7 of ptp`."""
        return f"{'at least' if self.least else 'at most'} {self.limit:g} {self.unit}".strip()


def _cni(name: str, what: str, limit: float, further: float | None = None) -> Iterator[Goal]:
    setting = ("ratios_by_setting", "disk iptables", name)
    why = "the transaction of etcd and the kernel's veth pair are two thirds of it."
    yield Goal(f"{what}, etcd on disk, iptables", setting, limit, "of ptp")
    if further is not None:
        yield Goal(f"{what}, the next goal", setting, further, "of ptp", why_missed=why)


GOALS: Mapping[str, Sequence[Goal]] = {
    "cni": (
        *_cni("add_p50_vs_ptp", "ADD, median", 0.7, 0.5),
        *_cni("add_p99_vs_ptp", "ADD, 99th percentile", 0.9, 0.7),
        *_cni("burst110_vs_ptp", "110 ADDs at once", 0.4, 0.25),
        *_cni("del_p50_vs_ptp", "DEL, median", 1.0),
        *_cni("del110_vs_ptp", "110 DELs at once", 0.4),
        *_cni("add_cpu_vs_ptp", "ADD, CPU of all processes, one by one", 0.7),
        *_cni("del_cpu_vs_ptp", "DEL, CPU of all processes, one by one", 0.8),
    ),
    "kubelet": (
        Goal("40 pods made at once until all are Ready, median of rounds",
             ("ratios", "40", "ready_vs_bridge"), 1.0, "of bridge",
             why_missed="single rounds were between 0.74 and 1.21 at a load of 30 to 50."),
        Goal("110 pods made at once until all are Ready, median of rounds",
             ("ratios", "110", "ready_vs_bridge"), 1.0, "of bridge", "--full"),
    ),
    "felix": (
        Goal("one rule of one policy changes, median", ("results", "*", "change", "p50_ms"), 10,
             "ms"),
        Goal("mixed changes, 110 pods and 100 policies, 99th percentile",
             ("results", "*", "mixed", "p99_ms"), 30, "ms", "--full",
             why_missed="iptables rewrites a chain, and a set with it, for each change."),
        Goal("restart until ready, median", ("results", "*", "restart", "p50_ms"), 500, "ms",
             "--full"),
        Goal("restart: commits to the kernel", ("results", "*", "restart", "kernel_commits"), 0,
             "", "--full"),
        Goal("idle, CPU of one core", ("results", "*", "idle", "cpu_percent"), 0.1, "%", "--full",
             why_missed="it was 0.04 to 0.1 before; not looked into yet."),
        Goal("idle, resident memory", ("results", "*", "idle", "rss_mib"), 60, "MiB", "--full"),
        Goal("30 cycles of a policy of 10,000 rules, resident memory afterwards",
             ("results", "*", "cycles", "after_rss_mib"), 100, "MiB", "--full"),
        Goal("65,536 routes, cold", ("results", "*", "routes", "cold_s"), 1.5, "s", "--full"),
        Goal("65,536 routes, again after a restart", ("results", "*", "routes", "resync_s"), 0.7,
             "s", "--full"),
        Goal("65,536 routes, again: routes written",
             ("results", "*", "routes", "resync_writes_beside_markers"), 0, "", "--full"),
        Goal("packets of one connection, beside rules written by hand",
             ("results", "*", "packets", "*", "one_connection", "ratio"), 0.95, least=True,
             why_missed="a packet is for 5 rules instead of 3: two jumps to our chains."),
        Goal("first packets of connections, beside rules written by hand",
             ("results", "*", "packets", "*", "new_connections", "ratio"), 0.95, least=True,
             why_missed="a packet is for 17 rules of iptables instead of 4: marks carry verdicts "
                        "from chain to chain."),
    ),
    "felix-snapshot": (
        Goal("250,000 endpoints, 10,000 policies: stored bytes to rules",
             ("results", "markers 250000/10000", "total_s"), 3, "s", "--full",
             why_missed="reading the same keys undecoded takes 2 s, columns the rest."),
        Goal("the same, memory at its peak",
             ("results", "markers 250000/10000", "peak_rss_mib"), 250, "MiB", "--full",
             why_missed="the columns of 250,000 different label sets."),
    ),
    "fanout": (
        Goal("1,000 nodes at 20 pod changes a second, from the write to the node, 99th percentile",
             ("results", "steady", "1000x20", "p99_ms"), 1000, "ms", "--full"),
        Goal("5,000 nodes at 4 pod changes a second, from the write to the node, 99th percentile",
             ("results", "steady", "5000x4", "p99_ms"), 1000, "ms", "--full"),
        Goal("a pod change and node: CPU of the store",
             ("results", "steady", "*", "store_us_per_event"), 7.5, "us", "--full"),
        Goal("a pod change and node: CPU of store and proxies",
             ("results", "steady", "*", "all_us_per_event"), 25, "us", "--full",
             why_missed="24 us with 5 proxies, 26 with 25 on the same two cores."),
        Goal("all nodes in sync again after an outage of five minutes",
             ("results", "resume", "*", "in_sync_s"), 60, "s", "--full"),
        Goal("Kubernetes, 1,000 nodes at 20 pod changes a second, as felix asks, 99th percentile",
             ("results", "kubernetes", "felix", "1000x20", "p99_ms"), 1000, "ms",
             "--store kubernetes --full",
             why_missed="a change is 5.5 events, and each costs what one costs etcd."),
        Goal("Kubernetes, a pod change and node: bytes, as felix asks",
             ("results", "kubernetes", "felix", "*", "of_whole"), 0.33, "of whole objects",
             "--store kubernetes --full",
             why_missed="metadata hold half of the bytes, in managedFields; since "
                        "this figure pods come in protobuf, 0.57 (docs/design/0014)."),
    ),
    "ipam": (
        Goal("one address, transactions of etcd",
             ("results", "one_serial", "transactions_per_allocation"), 1.05),
        Goal("64 at once, transactions of etcd an address",
             ("results", "one_burst64", "transactions_per_allocation"), 0.1),
    ),
    "bgp": (
        Goal("mesh of 100 nodes, cold, two cores", ("results", "mesh", "seconds"), 60, "s",
             "--full --part mesh"),
        Goal("reflector of 500 clients", ("results", "reflector", "ratio"), 1.0, "of BIRD",
             "--full --part reflector"),
        Goal("210,000 prefixes cut at the limit, memory of calico-bgp at its peak",
             ("results", "flood", "peak_rss_mib"), 150, "MiB", "--full --part flood"),
        Goal("a claimed block to a route in another node's kernel",
             ("results", "claim", "p50_ms"), 500, "ms", "--full --part claim"),
    ),
    "calicoctl": (
        *(Goal(f"`calicoctl {words}`, CPU", ("results", words, "cpu_ms"), 80, "ms")
          for words in ("version", "get nodes", "ipam show", "apply -f one.yaml")),
        *(Goal(f"`calicoctl {words}` on Kubernetes, CPU",
               ("results", f"kubernetes: {words}", "cpu_ms"), 80, "ms")
          for words in ("version", "get nodes", "ipam show", "apply -f one.yaml")),
        Goal("`calicoctl version --client`", ("results", "version --client", "p50_ms"), 60, "ms"),
        Goal("`calicoctl get workloadendpoints -a` of 10,000",
             ("results", "get workloadendpoints -a", "p50_ms"), 600, "ms"),
    ),
    "web": (
        Goal("the page at 1,000 nodes and 10,000 pods: first view in a browser",
             ("first_view", "median_s"), 2, "s"),
    ),
    "memory": (
        Goal("all programs of an idle node, Kubernetes datastore, PSS",
             ("results", "total_pss_mib"), 105, "MiB",
             why_missed="five Python processes import some 20 MiB each. Forked from one parent, "
             "each saves 2 MiB, for counting references writes to the pages; the parent costs 19."),
    ),
}  # fmt: skip


def figures_at(result: Any, path: Sequence[str]) -> Iterator[float]:
    """The numbers of a bench's JSON at a path; none where it was not measured. Pure."""
    if not path:
        if isinstance(result, int | float):
            yield float(result)
        return
    if not isinstance(result, dict):
        return
    first, *rest = path
    for name in result if first == "*" else [first]:
        if name in result:
            yield from figures_at(result[name], rest)


def judged(bench: str, result: Json, *, full: bool) -> list[Json]:
    """Each goal of a bench with the figure of this run, where it was measured.

    `full`: it was measured at full size; without that a goal of full size is not judged. Pure.
    """
    rows = []
    for goal in GOALS.get(bench, ()):
        measured = full or "--full" not in goal.flags
        figures = list(figures_at(result, goal.path)) if measured else []
        if figures:
            figure = min(figures) if goal.least else max(figures)
            rows.append(goal.row(figure))
    return rows
