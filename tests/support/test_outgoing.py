"""The texts that leave the program are those of the golden file.

Where one is meant to change: `python -m tests.support.outgoing --write`, and say so to users.
"""

from __future__ import annotations

from tests.support.outgoing import GOLDEN, constants, texts


def test_every_text_that_leaves_the_program_is_known() -> None:
    known, found = set(GOLDEN.read_text().splitlines()), set(texts())
    assert {"new": sorted(found - known), "gone": sorted(known - found)} == {"new": [], "gone": []}


def test_what_counts() -> None:
    source = '''"""doc"""
def f(a: "Anno") -> "Back":
    """more"""
    log.info("a sentence", extra={"key": b"raw"})
    return f"felix_{a}_total", "felix.main:main", "x"
'''
    assert constants(source) == {"key", "raw", "felix_", "_total"}
