"""In which order the tests of a mutant run: first what may notice it soon.

A plugin of pytest. What is moved to the end still runs where nothing before it fails, so the order
says how long an answer takes and never which one it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from tests.mutants.warm import is_quick

SLOW = 2.0
"""Seconds from which on a test is kept for the end."""
_SPENT = re.compile(r"^([\d.]+)s (?:call|setup) +(\S+::.+?) *$", re.MULTILINE)


def words(later: Sequence[str], quick_later: bool) -> list[str]:
    """The arguments of pytest for `later`, tests that are known to be slow, and for the quick ones.

    `quick_later`: those met the mutant already, and did not notice it.
    """
    told = ["-p", "tests.mutants.order", "--durations=20", f"--durations-min={SLOW}"]
    return told + ["--quick-later"] * quick_later + [f"--later={one}" for one in later]


def slow(said: str) -> set[str]:
    """The tests that took long, out of what pytest said. Pure."""
    return {name for seconds, name in _SPENT.findall(said) if float(seconds) >= SLOW}


def pytest_addoption(parser: pytest.Parser) -> None:
    """The two words that `words` says."""
    parser.addoption("--later", action="append", default=[])
    parser.addoption("--quick-later", action="store_true")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests after the others, and those that met the mutant already after them."""
    later, quick_later = set(config.getoption("later")), config.getoption("quick_later")

    def place(item: pytest.Item) -> int:
        return 2 if quick_later and is_quick(item) else int(item.nodeid in later)

    items.sort(key=place)
