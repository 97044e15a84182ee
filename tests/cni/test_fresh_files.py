"""What is written goes into a new file, also where its name was guessed.

Who may write in the directory must not choose which file the daemon writes as root.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cni.client.cache import Cache, Cached
from cni.install.files import opened
from cni.node.del_queue import DelQueue
from tests.cni.test_attachment import request

GUESSED = "0" * 16


async def _replay(*_: Any) -> None:
    raise AssertionError("nothing is replayed")


def remember(folder: Path, fresh: Callable[[str], None]) -> None:
    """A client keeps an attachment."""
    (folder / "results").mkdir()
    fresh(f"results/.{GUESSED}")
    Cache(folder).keep(Cached("c1", "eth0", "n"))


def install(folder: Path, fresh: Callable[[str], None]) -> None:
    """The installer writes a configuration."""
    with opened(folder) as place:
        fresh(f".10-calico.conflist.{GUESSED}.new")
        place.replace("10-calico.conflist", b"{}", 0o600)


def put_off(folder: Path, fresh: Callable[[str], None]) -> None:
    """The daemon writes down a DEL for later."""
    queue = DelQueue(folder, _replay)
    fresh(f".{queue.path_of(request()).name}.{os.getpid()}.7")
    queue.record(request())


@pytest.mark.parametrize("link", [True, False])
@pytest.mark.parametrize("write", [remember, install, put_off])
def test_no_file_that_stands_there_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: bool,
    write: Callable[[Path, Callable[[str], None]], None],
) -> None:  # fmt: skip
    monkeypatch.setattr(secrets, "token_hex", lambda _: GUESSED)
    monkeypatch.setattr(time, "monotonic_ns", lambda: 7)
    folder, victim = tmp_path / "folder", tmp_path / "victim"
    folder.mkdir()
    victim.write_text("precious")

    def plant(name: str) -> None:
        if link:
            (folder / name).symlink_to(victim)
        else:
            (folder / name).hardlink_to(victim)

    with pytest.raises(FileExistsError):
        write(folder, plant)
    assert victim.read_text() == "precious"
