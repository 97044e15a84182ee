"""Nothing that is put into markup can leave its place."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from web.drawing.markup import Html, address, choices, entry, form, joined, link, table, tag, text

NASTY = "\"><script>alert(1)</script><img src=x onerror=y>&'"


@pytest.mark.parametrize(
    "made",
    [
        tag("p", NASTY),
        tag("p", "x", title=NASTY),
        link(NASTY, "/map", node=NASTY),
        table(NASTY, (NASTY,), [[NASTY]]),
        table(NASTY, (), [], NASTY),
        choices("n", NASTY, NASTY, [(NASTY, NASTY)]),
        entry("n", NASTY, NASTY),
        form("/map", NASTY),
        joined([NASTY]),
    ],
)
def test_text_is_escaped_everywhere(made: Html) -> None:
    assert "<script" not in made
    assert "<img" not in made
    names = {name for one in ET.fromstring(f"<x>{made}</x>").iter() for name in one.attrib}
    assert not names & {"onerror", "src"}


def test_markup_stays_as_it_is() -> None:
    inner = tag("b", "x")
    assert text(inner) is inner
    assert tag("p", inner) == "<p><b>x</b></p>"
    assert (
        tag("a", "x", class_="c", aria_label="l", href=None) == '<a class="c" aria-label="l">x</a>'
    )


def test_deep_links_leave_out_what_is_empty() -> None:
    assert address("/map", node="a&b", by="", x=None) == "/map?node=a%26b"
    assert address("/map") == "/map"


def test_tables_have_headings_for_screen_readers() -> None:
    made = table("Nodes", ("Name",), [["n1"]])
    assert "<caption>Nodes</caption>" in made
    assert '<th scope="col">Name</th>' in made
