"""Flows as a table, as lines that follow each other, or as JSON lines. Pure.

Names come from the cluster: what is not printable stands as its escape.
Tested in tests/calicoctl/test_seen_text.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from flows.record import Action, End, EndKind, Flow, Hit, PolicyKind, Reporter, deciding
from flows.written import ACTIONS, POLICY_KINDS, line
from libcalico.process.logs import one_line

HEADINGS = ("TIME", "VERDICT", "FROM", "TO", "PORT", "CONNS", "PACKETS", "BYTES", "DECIDED BY")
WIDE = (
    *HEADINGS,
    "SEEN BY",
    "SERVICE",
    "PENDING",
    "FROM LABELS",
    "TO LABELS",
)
_KIND = {EndKind.HOST: "host:", EndKind.NETWORK_SET: "set:"}
_SHOWN = {"pub": "public", "pvt": "private"}


def table(flows: Sequence[Flow], *, wide: bool) -> str:
    """The table, with two spaces between columns."""
    rows = [WIDE if wide else HEADINGS, *(row(flow, wide=wide) for flow in flows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join("  ".join(map(str.ljust, one, widths)).rstrip() + "\n" for one in rows)


def row(flow: Flow, *, wide: bool) -> tuple[str, ...]:
    """The cells of a flow."""
    key, counts = flow.key, flow.counts
    port = f"{key.port}/{key.protocol}" if key.port else key.protocol
    cells: tuple[str, ...] = (
        moment(flow.start),
        ACTIONS[key.action],
        end_text(key.source),
        end_text(key.destination),
        port,
        str(counts.started),
        str(counts.packets_in + counts.packets_out),
        str(counts.bytes_in + counts.bytes_out),
        decided_by(flow),
    )
    if wide:
        service = key.service
        named = f"{service.namespace}/{service.name}:{service.port_name or service.port}"
        pending = ", ".join(
            f"{ACTIONS[hit.action]} {hit_text(hit)}"
            for hit in key.trace.pending
            if hit not in key.trace.enforced
        )
        cells = (
            *cells,
            {Reporter.SOURCE: "source", Reporter.DESTINATION: "destination"}.get(key.reporter, "-"),
            named if service.name else "-",
            pending or "-",
            ",".join(flow.source_labels) or "-",
            ",".join(flow.destination_labels) or "-",
        )
    return tuple(map(one_line, cells))


def followed(flow: Flow) -> str:
    """One line of `flows -f`."""
    key = flow.key
    port = f":{key.port}" if key.port else ""
    counts = flow.counts
    text = (
        f"{moment(flow.start)}  {ACTIONS[key.action]:5}  {key.protocol}  {end_text(key.source)} ->"
        f" {end_text(key.destination)}{port}  {counts.packets_in + counts.packets_out} packets"
        f"  {decided_by(flow)}"
    )
    return one_line(text)


def json_line(flow: Flow) -> str:
    """One line of `-o json` (`flows/written.py`)."""
    return line(flow).decode()


def moment(seconds: int) -> str:
    """A time as Calico's API writes it."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(seconds)


def end_text(end: End) -> str:
    """`shop/web-*`, `host:node-1`, `set:office`, `public`."""
    if end.kind is EndKind.NETWORK:
        return _SHOWN.get(end.name, end.name)
    name = f"{end.namespace}/{end.name}" if end.namespace else end.name
    return f"{_KIND.get(end.kind, '')}{name}"


def decided_by(flow: Flow) -> str:
    """The rule that decided: the last enforced one that did what became of the flow."""
    hit = deciding(flow)
    if hit is None:
        return "-"
    return hit_text(hit, ingress=flow.key.reporter is Reporter.DESTINATION)


def hit_text(hit: Hit, *, ingress: bool | None = None) -> str:
    """`tier default, NetworkPolicy shop/web, ingress[2]`, as `node drops` says it."""
    policy = hit.trigger or hit
    name = f"{policy.namespace}/{policy.name}" if policy.namespace else policy.name
    tier = f"tier {hit.tier}, " if hit.tier else ""
    named = f"{POLICY_KINDS[policy.kind]} {name}"
    if hit.kind is PolicyKind.END_OF_TIER:
        return f"end of tier {hit.tier}, where {named} selects the pod"
    if policy.kind is PolicyKind.PROFILE:
        tier = ""
    direction = {True: "ingress", False: "egress"}.get(ingress, "rule")  # type: ignore[arg-type]
    rule = f", {direction}[{hit.rule_index}]" if hit.rule_index >= 0 else ""
    return f"{tier}{named}{rule}"


def summary(shown: int, total: int, flows: Sequence[Flow]) -> str:
    """A line for people below a table that was cut; empty where nothing was left out."""
    if shown >= total:
        return ""
    denied = sum(flow.key.action is Action.DENY for flow in flows)
    return f"{shown} of {total} flows are shown ({denied} denied): --limit shows more"
