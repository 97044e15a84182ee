"""Labs with the real agents, shared by the tests of a module."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

from lab import cluster
from lab.cluster import Lab


def say(text: str) -> None:
    """Progress into pytest's captured output."""
    print(text, file=sys.stderr)


@pytest.fixture(scope="module")
def small() -> Iterator[Lab]:
    """One node with agents, a router, etcd."""
    name = f"small{os.getpid()}"
    lab = cluster.up(name, nodes=1, topology="flat", say=say)
    try:
        yield lab
    finally:
        cluster.down(name)
