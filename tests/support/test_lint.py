"""The checks of `./run lint` that are ours can fail: each finds what it is there for."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests import lint


def test_a_blind_except_is_found() -> None:
    """In what we ship; of a test only one that passes over what it caught."""
    for folder, found in (("felix", {"BLE001", "S110"}), ("tests", {"S110"})):
        source = "try:\n    work()\nexcept Exception:\n    pass\n"
        where = lint.ROOT / folder / "blind.py"
        done = subprocess.run(
            [lint.BIN / "ruff", "check", "--stdin-filename", where, "--output-format=json", "-"],
            input=source, cwd=lint.ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        codes = {each["code"] for each in json.loads(done.stdout)}
        assert codes & {"BLE001", "S110"} == found
    assert lint.blind_suppressions() == []


def test_a_task_that_no_group_owns_is_found() -> None:
    source = """
async def story():
    async with asyncio.TaskGroup() as group:
        group.create_task(work())
    asyncio.create_task(work())
    loop.create_task(work())
    asyncio.ensure_future(work())
"""
    assert lint.tasks_in(source) == [5, 6, 7]
    assert lint.bare_tasks() == []


def test_a_reader_that_nesting_ends_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    narrow = tmp_path / "narrow.py"
    narrow.write_text("except (msgspec.DecodeError, UnicodeDecodeError):\n    pass\n")
    monkeypatch.setattr(lint, "ROOT", tmp_path)
    monkeypatch.setattr(lint, "python_files", lambda: [narrow])
    (found,) = lint.narrow_readers()
    assert found.startswith("narrow.py: catch")
    narrow.write_text("except msgspec.ValidationError:\n    pass\n")
    assert lint.narrow_readers() == []


def test_a_product_file_without_a_test_is_found() -> None:
    """A test of its name counts in its own room only; a docstring may name any."""
    silent, told = '"""A queue."""\n', '"""A queue. Tested in tests/e2e/test_programs.py."""\n'
    tests = ["tests/controllers/test_queue.py", "tests/felix/calc/test_learned_routes.py"]
    product = {
        "cni/python_plugin/queue.py": silent,
        "controllers/queue.py": silent,
        "felix/learned_routes.py": "",
    }
    assert lint.without_test(product, tests) == ["cni/python_plugin/queue.py"]
    assert lint.without_test({"cni/python_plugin/queue.py": told}, tests) == []
    vague = '"""A queue; see tests/cni."""\nNAMED = "test_queue.py"\n'
    assert lint.without_test({"cni/python_plugin/queue.py": vague}, tests) == [
        "cni/python_plugin/queue.py"
    ]
    assert lint.untested() == []
