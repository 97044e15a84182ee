"""A file that the documents name exists, and a reader finds every page."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = (
    "bgp|calicoctl|cni|controllers|felix|flows|ipam|lab|libcalico|linux|manifests|node|tests|web"
)
_PATH = re.compile(rf"`((?:{ROOMS})/[\w./-]*)`")
_TO_PAGE = re.compile(r"\]\(([^():\s#]+\.md)(?:#[^()\s]*)?\)")
OF_CALICO = "docs/reference/"
"""Pages that name folders of Calico's own tree."""


def missing(text: str) -> list[str]:
    """Paths in backticks that begin with a room and are not there; `NAME` in one stands for any."""
    return [
        path
        for path in _PATH.findall(text)
        if not re.search("NAME|STORE|MODE", path) and not (ROOT / path).exists()
    ]


def test_every_file_that_a_document_names_exists() -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "tests/README.md"]
    found = {str(one.relative_to(ROOT)): missing(one.read_text()) for one in documents}
    ours = {name: paths for name, paths in found.items() if not name.startswith(OF_CALICO)}
    assert {name: paths for name, paths in ours.items() if paths} == {}
    assert found["docs/glossary.md"] == []


def reached(first: Path) -> set[Path]:
    """The pages to which links of Markdown lead from a page, over any number of others."""
    found: set[Path] = set()
    left = [first]
    while left:
        page = left.pop()
        if page not in found and page.is_file():
            found.add(page)
            left += [(page.parent / link).resolve() for link in _TO_PAGE.findall(page.read_text())]
    return found


def test_a_reader_of_the_readme_finds_every_page() -> None:
    linked = reached(ROOT / "README.md")
    alone = {str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")} - {
        str(page.relative_to(ROOT)) for page in linked
    }
    # README links the folder of decisions; docstrings cite the pages about Calico.
    assert {name for name in alone if not name.startswith(("docs/design/", OF_CALICO))} == set()


def test_a_page_without_a_link_to_it_is_found(tmp_path: Path) -> None:
    for name, text in (("a", "[b](b.md#x)"), ("b", "[a](./a.md)"), ("c", "[a](a.md)")):
        (tmp_path / f"{name}.md").write_text(text)
    assert {page.name for page in reached(tmp_path / "a.md")} == {"a.md", "b.md"}


def test_a_path_that_is_no_file_is_found() -> None:
    text = (
        "in `felix/nothing.py`, `felix/main.py`, `felix/calc/`, `bgp/nothing` and `cni/NAME/x.py`"
    )
    assert missing(text) == ["felix/nothing.py", "bgp/nothing"]
