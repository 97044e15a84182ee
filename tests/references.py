"""Citations and links lead somewhere: to a heading of a page, or to a public document.

A docstring or comment names its source as `Source: docs/reference/cni.md#add`, an RFC, an address
of the web or one of the documents of `PUBLIC`. A second heading of the same page may follow as
`, #del`. Run by `./run lint`; tested in tests/support/test_references.py.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Set

PUBLIC = (
    r"\bRFC \d+", r"https?://\w", r"\bCNI specification \d", r"\bKubernetes\b",
    r"\bAPI reference of \w",
    r"\blinux/[\w/]+\.h\b", r"\bpackage documentation of Go\b", r"\betcd's gateway\b", r"\bIANA\b",
    r"\bconformance [A-Z]{2,4}-\d\d\b",
)  # fmt: skip
"""What counts as a public document; the last are ids of the table docs/cni-conformance.md."""

_OWN = ("tests/references.py", "tests/support/test_references.py")
"""Here stand examples of what leads nowhere."""

_CODE = (".py", ".c", ".h")
_ELSEWHERE = re.compile(
    r"\b(?:data model|dataplane|calico-dataplane|reference|dataplane reference)\)? \(?(?:section )?"
    r"\d+(?:\.\d+)?\b(?!:)|\bconformance sections? \d",
    re.IGNORECASE,
)
_PAGE = re.compile(r"\bdocs/[\w/.-]+\.md(?:#[\w-]+(?:, #[\w-]+)*)?")
_LINK = re.compile(r"\]\(([^()\s:]*?)(?:#([^()\s]*))?\)")
_CODE_OF_A_PAGE = re.compile(r"^```.*?^```|`[^`]+`", re.DOTALL | re.MULTILINE)
_SOURCE = re.compile(
    r"(?:^[ \t]*(?:#|\*)?[ \t]*|\"\"\"|[.;)] )Sources?: (.*?)"
    r"(?:\bTested in\b|\n *\n|\"\"\"|\*/|\Z)",
    re.DOTALL | re.MULTILINE,
)


def problems(files: Mapping[str, str]) -> list[str]:
    """Citations that lead nowhere. `files` are paths with their texts. Pure."""
    headings = {file: anchors(text) for file, text in files.items() if file.endswith(".md")}
    found: list[str] = []
    for file, text in files.items():
        flat = _paragraphs(text)
        if file.endswith(".md"):
            found += [
                f"{file}: no page or heading: {link}" for link in _astray(file, text, headings)
            ]
        for match in _ELSEWHERE.finditer(flat):
            found.append(f"{file}: {match[0]!r} is a document outside of this repository")
        if file.endswith(_CODE):
            found += [f"{file}: {name} does not exist" for name in _lost(flat, headings)]
            found += [
                f"{file}: no page and no public document: Source: {' '.join(words.split())[:70]}"
                for words in _SOURCE.findall(flat)
                if not _PAGE.search(words) and not re.search("|".join(PUBLIC), words)
            ]
    return found


def _paragraphs(text: str) -> str:
    """The text with each paragraph on one line; empty lines stay."""
    return re.sub(r"(?<=\S)\n[ \t]*(?:#|\*(?!/))?[ \t]*(?=\S)", " ", text)


def _lost(text: str, headings: Mapping[str, Set[str]]) -> list[str]:
    """The pages and headings named in the text that are not there."""
    found: list[str] = []
    for match in _PAGE.finditer(text):
        page, _, names = match[0].partition("#")
        if page not in headings:
            found.append(page)
            continue
        wanted = names.split(", #") if names else []
        found += [f"{page}#{name}" for name in wanted if name not in headings[page]]
    return found


def _astray(file: str, page: str, headings: Mapping[str, Set[str]]) -> list[str]:
    """The links of a page to pages and headings that are not there. Other files do not count."""
    found: list[str] = []
    for match in _LINK.finditer(_CODE_OF_A_PAGE.sub("", page)):
        target, anchor = match[1], match[2]
        place = posixpath.normpath(posixpath.join(posixpath.dirname(file), target))
        named = place if target else file
        if named.endswith(".md") and (
            named not in headings or (anchor and anchor not in headings[named])
        ):
            found.append(match[0][2:-1])
    return found


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    plain = re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ +(.*?) *$", plain, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def complaints(files: Mapping[str, str]) -> list[str]:
    """What `./run lint` says of the tree: paths with their texts."""
    return problems({file: text for file, text in files.items() if file not in _OWN})
