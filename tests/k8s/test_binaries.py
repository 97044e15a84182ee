"""The builder of Kubernetes' programs: what is there is not built again, what is missing is said.

The builds themselves take minutes and are not made here; a real Go answers for its version.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.k8s import binaries
from tests.k8s.binaries import PROGRAMS, BuildError, Program

GO = shutil.which("go") or "/usr/local/go/bin/go"


def place(program: Program, into: Path) -> None:
    """Something that is built and fits."""
    into.mkdir(parents=True, exist_ok=True)
    for name in (program.file, *program.names):
        (into / name).write_text("#!/bin/sh\n")
        (into / name).chmod(0o755)
    (into / f".{program.file}").write_text(program.fingerprint())


def test_what_is_there_needs_neither_go_nor_a_network(tmp_path: Path) -> None:
    environ = {"MUSLIN_CACHE": str(tmp_path), "GO": "/nowhere"}
    into = binaries.folder(environ)
    assert into == tmp_path / "k8s" / binaries.version() / "bin"
    assert "etcd, hyperkube): ./run k8s binaries" in binaries.missing(environ)
    for program in PROGRAMS:
        place(program, into)
    assert binaries.missing(environ) == ""
    assert binaries.build(environ) == into


@pytest.mark.parametrize("damage", ["stamp", "link", "program"])
def test_what_does_not_fit_is_to_be_built(tmp_path: Path, damage: str) -> None:
    environ = {"MUSLIN_CACHE": str(tmp_path), "GO": "/nowhere"}
    into = binaries.folder(environ)
    for program in PROGRAMS:
        place(program, into)
    match damage:
        case "stamp":
            (into / ".etcd").write_text("of other sources")
        case "link":
            (into / "kube-proxy").unlink()
        case "program":
            (into / "hyperkube").chmod(0o644)
    assert binaries.missing(environ)
    with pytest.raises(BuildError, match=r"Go is needed .* was not found: install it, or set GO"):
        binaries.build(environ)


@pytest.mark.skipif(not os.access(GO, os.X_OK), reason="no Go here")
def test_a_go_that_is_too_old_says_so_itself(tmp_path: Path) -> None:
    assert binaries.find_go({**os.environ, "GO": GO}) == GO
    # The same question in a module that asks for a Go of the future.
    (tmp_path / "go.mod").write_text("module x\n\ngo 1.999.0\n")
    environ = {**os.environ, "GO": GO, "GOTOOLCHAIN": "local"}
    with pytest.raises(BuildError, match=r"requires go >= 1\.999"):
        binaries.find_go(environ, tmp_path)


def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "go").write_text("#!/bin/sh\n")
    (tmp_path / "go").chmod(0o755)
    environ = {"MUSLIN_CACHE": str(tmp_path / "file"), "GO": str(tmp_path / "go")}
    with pytest.raises(BuildError, match="cannot be made: Not a directory; set MUSLIN_CACHE"):
        binaries.build(environ)
