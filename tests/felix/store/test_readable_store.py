"""The file of last readable documents: written aside, private, and doubted line by line (RDS-1)."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from felix.store import readable_store
from felix.store.readable_store import ReadableStore
from libcalico.model import ResourceKey
from tests.support.patience import until


def key(number: int = 0) -> ResourceKey:
    return ResourceKey("NetworkPolicy", f"p{number}", "shop")


def raw(order: int, number: int = 0) -> bytes:
    metadata = {"name": f"p{number}", "namespace": "shop"}
    tree = {"kind": "NetworkPolicy", "metadata": metadata, "spec": {"order": order}}
    return json.dumps(tree).encode()


def path_in(folder: Path) -> Path:
    return folder / "lib" / "felix" / "last-readable"


def life(folder: Path, act: Callable[[ReadableStore], Awaitable[None]], cluster: str = "g") -> None:
    """A felix that follows the datastore of a cluster."""

    async def lives() -> None:
        store = ReadableStore(path_in(folder))
        await store.open()
        store.believe(cluster)
        writing = asyncio.create_task(store.run())
        await act(store)
        await written(store)
        writing.cancel()
        await asyncio.wait([writing])
        store.close()

    asyncio.run(lives())


async def written(store: ReadableStore) -> None:
    await until(lambda: not store.waiting)


def found(folder: Path, cluster: str = "g", count: int = 4) -> dict[str, float]:
    """The order of every policy that a new felix would get."""

    async def looks() -> dict[str, float]:
        store = ReadableStore(path_in(folder))
        await store.open()
        store.believe(cluster)
        remembered = await store.recall([key(number) for number in range(count)])
        return {one.name: remembered[one].value.spec.order for one in sorted(remembered, key=str)}

    return asyncio.run(looks())


async def three(store: ReadableStore) -> None:
    for number in range(3):
        store.keep(key(number), 5, raw(number, number))


def test_what_was_kept_is_there_again_and_what_was_forgotten_is_not(tmp_path: Path) -> None:
    life(tmp_path, three)
    assert found(tmp_path) == {"p0": 0, "p1": 1, "p2": 2}

    async def act(store: ReadableStore) -> None:
        store.forget(key(1))
        store.keep(key(2), 6, raw(7, 2))
        store.keep(key(2), 7, raw(8, 2))
        store.keep(key(2), 8, raw(9, 2))

    life(tmp_path, act)
    assert found(tmp_path) == {"p0": 0, "p2": 9}
    assert found(tmp_path, "another") == {}


def test_nothing_is_written_that_the_file_has(tmp_path: Path) -> None:
    life(tmp_path, three)
    before = path_in(tmp_path).stat()
    life(tmp_path, three)
    after = path_in(tmp_path).stat()
    assert (before.st_ino, before.st_size) == (after.st_ino, after.st_size)


def test_a_file_that_is_mostly_outdated_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readable_store, "SLACK", 100)

    async def act(store: ReadableStore) -> None:
        await three(store)
        for order in range(20):
            store.keep(key(), order, raw(order))
            await written(store)

    life(tmp_path, act)
    assert path_in(tmp_path).stat().st_size < 8 * len(raw(0)) + 1000
    assert found(tmp_path) == {"p0": 19, "p1": 1, "p2": 2}


@pytest.mark.parametrize("damage", ["torn", "changed", "strange kind", "no JSON", "no resource"])
def test_a_damaged_record_is_left_out_and_later_ones_are_safe(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    life(tmp_path, three)
    path = path_in(tmp_path)
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    path.write_text(
        {
            "torn": text[:-20],
            "changed": text.replace('\\"order\\": 2', '\\"order\\": 3'),
            "strange kind": text.replace(lines[3], lines[3].replace("NetworkPolicy", "Secret")),
            "no JSON": text.replace(lines[3], "no JSON\n"),
            "no resource": text.replace(lines[3], '["NetworkPolicy","shop","p2",5,0]\n'),
        }[damage]
    )
    assert found(tmp_path) == {"p0": 0, "p1": 1}
    assert "1 records cannot be read" in caplog.text

    async def act(store: ReadableStore) -> None:
        store.keep(key(3), 6, raw(3, 3))

    life(tmp_path, act)
    assert found(tmp_path) == {"p0": 0, "p1": 1, "p3": 3}


@pytest.mark.parametrize("doubt", ["mode", "link", "head", "format", "empty"])
def test_a_file_that_others_may_have_written_is_not_believed(tmp_path: Path, doubt: str) -> None:
    life(tmp_path, three)
    path = path_in(tmp_path)
    if doubt == "mode":
        path.chmod(0o620)
    elif doubt == "link":
        moved = path.rename(tmp_path / "elsewhere")
        os.symlink(moved, path)
    elif doubt == "head":
        path.write_text("\n".join(path.read_text().splitlines()[1:]) + "\n")
    elif doubt == "format":
        path.write_text(path.read_text().replace('[1,"g"]', '[2,"g"]'))
    else:
        path.write_text("")
    assert found(tmp_path) == {}
    life(tmp_path, three)
    assert found(tmp_path) == {"p0": 0, "p1": 1, "p2": 2}
    assert path.stat(follow_symlinks=False).st_mode & 0o177777 == 0o100600


def test_a_disk_that_takes_nothing_is_a_condition_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readable_store, "AGAIN", 0.01)
    (tmp_path / "lib").mkdir()
    blocker = path_in(tmp_path).parent
    blocker.write_text("not a directory")

    async def act(store: ReadableStore) -> None:
        await three(store)
        await until(store.conditions)
        assert "cannot be written" in store.conditions()[0][1]
        blocker.unlink()
        await written(store)
        assert not store.conditions()

    life(tmp_path, act)
    assert found(tmp_path) == {"p0": 0, "p1": 1, "p2": 2}


def test_without_open_nothing_is_kept(tmp_path: Path) -> None:
    store = ReadableStore(path_in(tmp_path))
    store.keep(key(), 1, raw(1))
    assert not store.waiting
    assert store.known == []
