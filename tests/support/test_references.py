"""A citation that leads nowhere is found; one that leads to a heading or a public text is not."""

from __future__ import annotations

import pytest

from tests import invariants, listed, references

PAGES = {"docs/a.md": "# A page\n\n## BIRD's socket, `x`\n\n```\n# no heading\n```\n"}


def complaints(text: str) -> list[str]:
    return references.problems({**PAGES, "felix/x.py": text})


@pytest.mark.parametrize(
    "words",
    [
        "data model 4.3",
        "data\nmodel 4.3, 4.7",
        "Dataplane reference 2.10",
        "the reference (1.3)",
        "calico-dataplane 2.12",
        "conformance section 10",
    ],
)
def test_a_document_of_elsewhere_is_found(words: str) -> None:
    assert len(complaints(f'"""A thing ({words})."""\n')) == 1


def test_headings_have_the_anchors_of_github() -> None:
    assert references.anchors(PAGES["docs/a.md"]) == {"a-page", "birds-socket-x"}


def test_pages_and_headings_exist() -> None:
    assert complaints('"""Source: docs/a.md#a-page,\n#birds-socket-x; RFC 1."""\n') == []
    (found,) = complaints('"""Source: docs/a.md#a-page, #gone."""\n')
    assert found == "felix/x.py: docs/a.md#gone does not exist"
    (found,) = complaints('"""See docs/b.md."""\n')
    assert found == "felix/x.py: docs/b.md does not exist"


def test_links_of_pages_lead_to_pages_and_headings() -> None:
    page = (
        "[a](a.md#a-page) [b](#here) [c](../README.md) [d](https://x.y/z.md) [e](a.png)\n# Here\n"
    )
    pages = {**PAGES, "README.md": "[a](docs/a.md)", "docs/b.md": page}
    assert references.problems(pages) == []
    page = "[a](a.md#gone) [b](#gone)\n[c\nd](gone.md) `[e](gone.md)`"
    assert references.problems({**PAGES, "docs/b.md": page}) == [
        f"docs/b.md: no page or heading: {link}" for link in ("a.md#gone", "#gone", "gone.md")
    ]


def test_a_source_is_public() -> None:
    for words in ("RFC 4271", "https://example.org", "linux/if_link.h", "conformance CAL-13"):
        assert complaints(f'"""A. Source:\n{words}. Tested in x."""\n') == []
    assert len(complaints('"""A. Source: a letter, page 4.\n\nRFC 1 is elsewhere."""\n')) == 1


def test_all_citations_of_this_tree_lead_somewhere() -> None:
    assert references.complaints(listed.texts(*invariants.PATTERNS)) == []
