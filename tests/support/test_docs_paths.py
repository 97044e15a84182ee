"""A file that the documents name exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = (
    "bgp|calicoctl|cni|controllers|felix|flows|ipam|lab|libcalico|linux|manifests|node|tests|web"
)
_PATH = re.compile(rf"`((?:{ROOMS})/[\w./-]*)`")
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


def test_a_path_that_is_no_file_is_found() -> None:
    text = (
        "in `felix/nothing.py`, `felix/main.py`, `felix/calc/`, `bgp/nothing` and `cni/NAME/x.py`"
    )
    assert missing(text) == ["felix/nothing.py", "bgp/nothing"]
