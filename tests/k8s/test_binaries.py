"""The builder of Kubernetes' programs: what is there is not built again, what is missing is said.

The builds themselves take minutes and are not made here; a real Go answers for its version.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.k8s import binaries
from tests.k8s.binaries import PROGRAMS, SERVERS, BuildError, Program
from tests.k8s.releases import CURRENT, OLD, Release

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


def executables(folder: Path, names: tuple[str, ...]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("release", "variable", "names"),
    [
        (CURRENT, "MUSLIN_KUBERNETES", (*SERVERS, "etcd")),
        (OLD, "MUSLIN_KUBERNETES_1_20", SERVERS),
    ],
)
def test_a_folder_that_a_variable_names_comes_first(
    release: Release, variable: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    theirs = tmp_path / "theirs"
    environ = {"MUSLIN_CACHE": str(tmp_path), variable: str(theirs), "GO": "/nowhere"}
    executables(theirs, names[:-1])
    assert release.folder(environ) == theirs
    assert release.missing(environ) == f"{variable}={theirs} has no {names[-1]}"
    with pytest.raises(BuildError, match=f"{variable}=.* has no {names[-1]}"):
        release.build(environ)
    executables(theirs, names)
    assert release.missing(environ) == ""
    assert release.build(environ) == theirs


def test_the_old_version_is_kept_beside_the_current_one(tmp_path: Path) -> None:
    environ = {"MUSLIN_CACHE": str(tmp_path)}
    assert OLD.folder(environ) == tmp_path / "k8s/1.20.2/bin"
    assert OLD.missing(environ) == "Kubernetes 1.20.2 is not built: ./run k8s binaries 1.20"
    assert CURRENT.folder(environ) != OLD.folder(environ)
    executables(OLD.folder(environ), SERVERS)
    assert OLD.missing(environ) == ""
    assert OLD.build(environ) == OLD.folder(environ)


def test_a_machine_without_apt_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=r"Kubernetes 1\.20\.2 could not be built: .*apt-get"):
        OLD.build({"MUSLIN_CACHE": str(tmp_path)})
