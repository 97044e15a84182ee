"""`./run lab web`: the host's socket, and the word about it after `./run demo --keep`."""

from __future__ import annotations

import os

import pytest

from lab import web
from lab.demo import keeping
from lab.errors import LabError


def test_a_child_inherits_the_socket_of_this_machine() -> None:
    with web.listen(0) as made:
        assert made.getsockname()[0] == "127.0.0.1"
        assert os.get_inheritable(made.fileno())
        with pytest.raises(LabError, match=r"127\.0\.0\.1 port"):
            web.listen(made.getsockname()[1])
    with pytest.raises(LabError):
        web.listen(70_000)


def test_the_page_is_offered_where_it_can_be_served() -> None:
    assert "./run lab web --lab x" in keeping.commands("x", [], page=True)
    assert not [line for line in keeping.commands("x", []) if "web" in line]
    assert keeping.commands("x", [], page=True)[-1] == "./run lab down --lab x"
