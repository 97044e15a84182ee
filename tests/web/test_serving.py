"""The address that is taken, and the extra that is not installed."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import Any

import pytest

from libcalico.errors import MuslinError
from web import serving
from web.facts.asking import Asking
from web.facts.facts import Facts
from web.facts.keeper import Keeper
from web.guard.listening import listening


def test_an_address_that_is_taken_is_told_with_the_way_out() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = listening("127.0.0.1", taken.getsockname()[1], review=False)
        with pytest.raises(MuslinError, match="--port chooses another"):
            serving.bound(where)


def test_a_free_port_is_found() -> None:
    with serving.bound(listening("::1", 0, review=False)) as found:
        assert found.getsockname()[1]


def test_a_socket_is_taken_over_from_a_parent_only_on_loopback() -> None:
    with socket.socket() as given:
        given.bind(("127.0.0.1", 0))
        copy = serving.inherited(os.dup(given.fileno()))
        with copy:
            assert copy.getsockname() == given.getsockname()
    with socket.socket() as given:
        given.bind(("0.0.0.0", 0))
        with pytest.raises(MuslinError, match="only loopback"):
            serving.inherited(given.fileno())
    with pytest.raises(MuslinError, match="--fd 987654"):
        serving.inherited(987654)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing:
        def find_spec(self, name: str, *_: Any) -> None:
            if name.partition(".")[0] in ("fastapi", "nicegui"):
                raise ModuleNotFoundError(f"No module named {name}", name=name)

    for name in [one for one in sys.modules if one.partition(".")[0] in ("fastapi", "nicegui")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])

    async def made() -> None:
        where = listening("127.0.0.1", 0, review=False)
        serving.application(Keeper(lambda _: Facts()), Asking(None), where, None)

    with pytest.raises(MuslinError, match=r"pip install 'muslin\[web\]'"):
        asyncio.run(made())
