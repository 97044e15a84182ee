"""The commands of a guide in docs/migration: what the tests run is what an operator reads.

A block fenced with ```sh is for a shell on a node, as it stands. Other lines of a guide (kubectl)
need a Kubernetes API; the lab has none, so a test does by hand what they cause on the nodes.
"""

from __future__ import annotations

import re
from pathlib import Path

from lab.machine import Machine

GUIDES = Path(__file__).parents[2] / "docs" / "migration"
_FENCE = re.compile(r"^ *```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def commands(guide: str, heading: str) -> str:
    """The shell text below one heading of a guide; AssertionError when there is none."""
    text = (GUIDES / guide).read_text()
    parts = re.split(r"^#+ (.*)$", text, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert heading in sections, f"{guide} has no heading {heading!r}"
    blocks = [match.replace("\n   ", "\n") for match in _FENCE.findall(sections[heading])]
    assert blocks, f"{guide}, {heading!r}: no ```sh"
    return "".join(blocks)


def follow(machine: Machine, guide: str, heading: str) -> str:
    """Run them on a node, each line must succeed; what they said."""
    text = f"set -e\n{commands(guide, heading)}"
    done = machine.run(["bash", "-o", "pipefail", "-c", text], timeout=120)
    return done.stdout + done.stderr


def snippet(guide: str, heading: str, language: str = "yaml") -> str:
    """The document below one heading of a guide."""
    text = (GUIDES / guide).read_text().split(f"# {heading}\n", 1)[1]
    found = re.search(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found, f"{guide}, {heading!r}: no ```{language}"
    return found[1]
