"""The builder: what is there is not built again, what is missing is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cri.binaries import ALL, STAMP, Programs
from tests.k8s.binaries import BuildError, fingerprint


@pytest.mark.parametrize("programs", ALL, ids=lambda one: one.name)
def test_what_is_there_needs_no_go_and_what_does_not_fit_does(
    tmp_path: Path, programs: Programs
) -> None:
    environ = {"MUSLIN_CACHE": str(tmp_path), "GO": "/nowhere"}
    into = programs.folder(environ)
    assert into == tmp_path / programs.name / programs.version / "bin"
    assert "is not built: ./run cri binaries" in programs.missing(environ)
    into.mkdir(parents=True)
    for name in programs.files:
        (into / name).touch(mode=0o755)
    (into / STAMP).write_text(fingerprint(programs.module))
    assert programs.missing(environ) == ""
    assert programs.build(environ) == into
    (into / programs.files[0]).unlink()
    with pytest.raises(BuildError, match=f"Go is needed to build {programs.name}"):
        programs.build(environ)
