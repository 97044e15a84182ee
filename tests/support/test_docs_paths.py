"""A file that the documents name exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = (
    "bgp|calicoctl|cni|controllers|felix|flows|ipam|lab|libcalico|linux|manifests|node|tests|web"
)
_PATH = re.compile(rf"`((?:{ROOMS})/[\w./-]*\.(?:py|md|c|proto|yaml|tsv))`")


def missing(text: str) -> list[str]:
    """Paths in backticks that begin with a room and are no file; `NAME` in one stands for any."""
    paths = [path for path in _PATH.findall(text) if "NAME" not in path]
    return [path for path in paths if not (ROOT / path).is_file()]


def test_every_file_that_a_document_names_exists() -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "tests/README.md"]
    found = {str(one.relative_to(ROOT)): missing(one.read_text()) for one in documents}
    assert {name: paths for name, paths in found.items() if paths} == {}
    assert found["docs/glossary.md"] == []


def test_a_path_that_is_no_file_is_found() -> None:
    assert missing("in `felix/nothing.py` and `felix/main.py`") == ["felix/nothing.py"]
