"""The findings as a table. Pure. Tested in tests/web/test_drawing.py."""

from __future__ import annotations

from web.drawing.markup import Content, Html, badge, joined, link, notice, table, tag
from web.views.health import Health, Severity
from web.views.state import counted


def health(shown: Health) -> Html:
    """Findings worst first, what is not known, events."""
    counts = [
        badge(one.sign, counted(shown.count(one), one.word), f"severity-{one.word}")
        for one in sorted(Severity, reverse=True)
    ]
    rows: list[list[Content]] = [
        [
            badge(one.severity.sign, one.severity.word, f"severity-{one.severity.word}"),
            tag("a", one.subject, href=one.link) if one.link else one.subject,
            one.text,
            one.fix,
        ]
        for one in shown.findings
    ]
    parts: list[Content] = [
        tag("p", *(joined([each, "  "]) for each in counts), class_="summary"),
        table("Findings", ("Severity", "About", "What", "What to do"), rows, "Nothing was found."),
    ]
    if shown.more:
        parts.append(notice("warning", f"{shown.more} more findings are not listed."))
    parts += [notice("missing", words) for words in shown.unknown]
    if shown.events:
        headings = ("Time", "Told by", "About", "Reason", "Message")
        parts.append(table("Events", headings, [list(one) for one in shown.events]))
    parts.append(tag("p", "More: ", link("map", "/map"), ", ", link("addresses", "/addresses")))
    return joined(parts)
