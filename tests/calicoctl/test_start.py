"""What a short command imports: its processor time is that of its imports.

Counted, not timed: modules are the same on every machine (`./run bench calicoctl` has the times).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.etcd import Etcd

NODE = "{kind: Node, apiVersion: projectcalico.org/v3, metadata: {name: n}}\n"
POOL = """\
{kind: IPPool, apiVersion: projectcalico.org/v3, metadata: {name: p}, spec: {cidr: 10.0.0.0/16}}
"""
SET = """\
kind: GlobalNetworkSet
apiVersion: projectcalico.org/v3
metadata: {name: one}
spec: {nets: [10.0.0.0/24]}
"""
HEAVY = {
    *("asyncio", "concurrent", "cryptography", "google", "grpc", "hashlib"),
    *("kubernetes", "logging", "random", "ssl"),
}
MORE_THAN_PYTHON = {"version": 167, "get nodes": 173, "ipam show": 179, "apply -f one.yaml": 223}
"""Modules beside those of `python -c ''`; a step up needs a reason."""


def imported(words: str, environ: dict[str, str], folder: Path) -> frozenset[str]:
    """The modules of one command that succeeds."""
    script = (
        "import sys; before = set(sys.modules)\n"
        f"from calicoctl.main import run; code = run({words.split()!r})\n"
        "print('\\n' + ' '.join(set(sys.modules) - before)); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | environ,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return frozenset(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("words", MORE_THAN_PYTHON)
def test_a_short_command_imports_little(words: str, etcd: Etcd, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(SET)
    for name, text in (("node", NODE), ("pool", POOL)):
        (tmp_path / f"{name}.yaml").write_text(text)
        imported(f"apply -f {name}.yaml", etcd.environment(), tmp_path)
    modules = imported(words, etcd.environment(), tmp_path)
    assert not HEAVY & {one.partition(".")[0] for one in modules}
    if not words.startswith("apply"):
        assert "yaml" not in modules
    assert len(modules) <= MORE_THAN_PYTHON[words], sorted(modules)
