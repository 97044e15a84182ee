"""Calico's metrics as docs/metrics.md tells of them."""

from __future__ import annotations

import re

from manifests.image.wheels import ROOT

_ROW = re.compile(r"^\| `(\w+\*?)` \| (\w+) \|(.*)\|$", re.MULTILINE)


def rows() -> dict[str, tuple[str, str]]:
    """Where each name is served, and what is said of it; a name with `*` stands for a group."""
    text = (ROOT / "docs" / "metrics.md").read_text().partition("## Calico's metrics")[2]
    return {name: (served, said.strip()) for name, served, said in _ROW.findall(text)}
