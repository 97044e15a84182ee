"""The matrix, its cell that was chosen, and a plan. Pure. Tested in tests/web/test_drawing.py."""

from __future__ import annotations

from collections.abc import Sequence

from web.drawing.markup import (
    Content,
    Html,
    address,
    choices,
    entry,
    form,
    joined,
    notice,
    table,
    tag,
)
from web.views.matrix import Asked, Cell, Decision, Matrix
from web.views.plan import Change, PlanView

NOTHING = Cell(0, 0)
PROTOCOLS = ("tcp", "udp", "sctp", "icmp", "icmpv6")


def questions(asked: Asked, labels: Sequence[str]) -> Html:
    """The form: what the matrix is about."""
    port = "" if asked.port is None else str(asked.port)
    return form(
        "/policy",
        choices("by", "Groups", asked.by, [(one, one) for one in labels]),
        choices("protocol", "Protocol", asked.protocol, [(one, one) for one in PROTOCOLS]),
        entry("port", "Port", port, 6),
        choices("version", "IP", str(asked.version), [("4", "IPv4"), ("6", "IPv6")]),
    )


def matrix(shown: Matrix, asked: Asked, chosen: tuple[str, str] | None) -> Html:
    """The matrix as a table, rows are sources; behind it the cell that was chosen."""
    parts: list[Content] = [
        tag("p", f"First packets of {shown.kind}, IPv{shown.version}. Rows send, columns receive.",
            class_="summary"),
        tag("p", "● all pairs of pods are allowed   ◐ some   ○ none   – no pair", class_="legend"),
        *(notice("warning", note) for note in shown.notes),
    ]  # fmt: skip
    if shown.left:
        parts.append(notice("warning", f"{shown.left} pairs of classes were not asked in time."))
    if shown.hidden:
        parts.append(notice("missing", f"{shown.hidden} groups with the fewest pods are left out."))
    if not shown.groups:
        parts.append(notice("missing", "No pod is stored, so there is nothing to ask about."))
        return joined(parts)
    parts.append(_table(shown, asked, chosen))
    if chosen is not None:
        parts.append(_decisions(chosen, shown.decisions.get(chosen, ())))
    return joined(parts)


def _table(shown: Matrix, asked: Asked, chosen: tuple[str, str] | None) -> Html:
    head = [tag("th", "from ↓ to →", scope="col")]
    head += [tag("th", tag("span", each), scope="col", class_="turned") for each in shown.groups]
    rows = []
    for source in shown.groups:
        cells: list[Html] = [tag("th", f"{source} ({shown.counts.get(source, 0)})", scope="row")]
        for destination in shown.groups:
            cell = shown.cells.get((source, destination), NOTHING)
            where = address(
                "/policy", by=asked.by, protocol=asked.protocol, port=asked.port,
                version=asked.version, source=source, destination=destination,
            )  # fmt: skip
            words = f"{source} to {destination}: {cell.word}"
            css = _css(cell) + (" chosen" if chosen == (source, destination) else "")
            inner: Html = tag("a", cell.sign, href=where, title=words, aria_label=words)
            cells.append(tag("td", inner if cell.total else cell.sign, class_=css))
        rows.append(tag("tr", *cells))
    whole = tag("table", tag("caption", "Who reaches whom"), tag("thead", tag("tr", *head)),
                tag("tbody", *rows), class_="matrix")  # fmt: skip
    return tag("div", whole, class_="wide", tabindex=0, role="region", aria_label="matrix")


def _css(cell: Cell) -> str:
    if not cell.total:
        return "cell none"
    if cell.allowed == cell.total:
        return "cell all"
    return "cell some" if cell.allowed else "cell denied"


def _decisions(ends: tuple[str, str], decisions: Sequence[Decision]) -> Html:
    rows: list[list[Content]] = [
        [
            "✓ allowed" if one.allowed else "✕ DENIED",
            str(one.pairs),
            one.decided,
            tag("code", one.rule) if one.rule else "",
            f"{one.source} → {one.destination}",
            tag("code", f"calicoctl explain flow {one.source} {one.destination}"),
        ]
        for one in decisions
    ]
    headings = ("Verdict", "Pairs", "Decided by", "Rule", "Such as", "More")
    caption = f"{ends[0]} to {ends[1]}: who decides"
    drawn = table(caption, headings, rows, "There is no pair of pods.")
    return tag("section", drawn, class_="detail", id="detail")


def plan(shown: PlanView) -> Html:
    """What would change verdict."""
    if shown.error:
        return joined(notice("error", line) for line in shown.error.splitlines())
    rows: list[list[Content]] = [_change(one) for one in shown.changes]
    parts: list[Content] = []
    if shown.incomplete:
        parts.append(notice("warning", shown.incomplete))
    if rows:
        headings = ("Would be", "Packets", "From", "To", "Now", "Then")
        parts.append(table("What would change", headings, rows))
    parts += [notice("missing", note) for note in shown.notes]
    parts.append(tag("p", shown.summary, class_="summary"))
    return joined(parts)


def _change(one: Change) -> list[Content]:
    ends = [joined(tag("div", each) for each in side) for side in (one.sources, one.destinations)]
    return [tag("strong", one.becomes), one.packets, *ends, one.before, one.after]
