"""A node's word from its status files."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from libcalico.errors import InvalidValue
from libcalico.process import paths
from tests.web import world
from web.facts.words import folders_of, of_folders, silent


def test_the_word_of_a_folder(tmp_path: Path) -> None:
    folder = world.write_status(tmp_path / "n2")
    words = of_folders({"n2": folder, "n9": tmp_path}, datetime.now(UTC))
    assert set(words) == {"n2"}
    assert all(one.running for one in words["n2"].processes)
    assert words["n2"].conditions == [("calico-felix", "NetworkPolicy(shop/old)", "no such field")]


def test_an_old_file_is_of_a_process_that_is_gone(tmp_path: Path) -> None:
    folder = world.write_status(tmp_path)
    document = json.loads((folder / "felix.json").read_text())
    (folder / "felix.json").write_text(json.dumps({**document, "time": "2020-01-01T00:00:00Z"}))
    word = of_folders({"n2": folder}, datetime.now(UTC))["n2"]
    assert not word.felix.running
    assert word.conditions == []
    assert "last seen at 2020" in word.felix.last_seen()


def test_secrets_in_a_file_do_not_get_in(tmp_path: Path) -> None:
    folder = world.write_status(tmp_path, reason="etcd https://u:canary@h:2379 is away")
    word = of_folders({"n2": folder}, datetime.now(UTC))["n2"]
    assert "canary" not in repr(word)
    assert "h:2379 is away" in repr(word)


@pytest.mark.parametrize("text", ["n1", "=x", "n1=", "n1=/does/not/exist"])
def test_bad_options_are_named(text: str) -> None:
    with pytest.raises(InvalidValue, match="--status"):
        folders_of([text])


def test_this_machine_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = tmp_path / "nodename"
    monkeypatch.setattr(paths, "NODENAME", name)
    assert folders_of([]) == {}
    name.write_text("n7\n")
    assert folders_of([f"n1={tmp_path}"]) == {"n7": paths.STATUS, "n1": tmp_path}


def test_a_silent_node_says_why() -> None:
    assert silent("n1", "timed out").error == "timed out"
