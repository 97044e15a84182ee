"""Passwords from files, and that none is ever shown."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bgp.peering.passwords import FilePasswords, Passwords, SecretRef, read
from tests.support.patience import HANG

TOR = SecretRef("tor", "key")
CANARY = "canary-pass"


def lay(directory: Path, text: str = CANARY + "\n", mode: int = 0o600) -> None:
    (directory / "tor").mkdir(exist_ok=True)
    (directory / "tor" / "key").write_text(text)
    (directory / "tor" / "key").chmod(mode)


@pytest.mark.promise("F-41")
def test_read(tmp_path: Path) -> None:
    known = read(tmp_path, frozenset({TOR}))
    with pytest.raises(ValueError, match=r"key 'key' of Secret 'tor': there is no file"):
        known.get(TOR)
    lay(tmp_path)
    known = read(tmp_path, frozenset({TOR}))
    assert known.get(TOR) == CANARY
    assert CANARY not in repr(known)
    lay(tmp_path, "x" * 81)
    with pytest.raises(ValueError, match="81 octets, at most 80") as caught:
        read(tmp_path, frozenset({TOR})).get(TOR)
    assert "xx" not in str(caught.value)
    outside = SecretRef("..", "key")
    with pytest.raises(ValueError, match="no file name"):
        read(tmp_path / "tor", frozenset({outside})).get(outside)
    with pytest.raises(ValueError, match="not found"):
        Passwords().get(TOR)


def test_a_file_for_all_is_no_secret(tmp_path: Path) -> None:
    """PWD-2."""
    lay(tmp_path, mode=0o644)
    with pytest.raises(ValueError, match="may be read by others"):
        read(tmp_path, frozenset({TOR})).get(TOR)


@pytest.mark.asyncio
async def test_changes_are_told(tmp_path: Path) -> None:
    source = FilePasswords(tmp_path, period=0.02)
    changes = source.changes()
    async with asyncio.timeout(HANG):
        assert await anext(changes) == Passwords()
        lay(tmp_path)
        source.require(frozenset({TOR}))
        assert (await anext(changes)).get(TOR) == CANARY
        lay(tmp_path, "other")
        assert (await anext(changes)).get(TOR) == "other"
