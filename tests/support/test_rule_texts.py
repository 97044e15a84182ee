"""The rules of fixed things are those of the golden file, hash by hash.

Where they are meant to change: `python -m tests.support.rule_texts --write`, and say so.
"""

from __future__ import annotations

from tests.support.rule_texts import GOLDEN, lines


def test_every_rule_is_as_it_was() -> None:
    assert list(lines()) == GOLDEN.read_text().splitlines()
