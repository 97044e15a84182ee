"""Every program that an installation brings: help and version are answered, nothing is started."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from calicoctl import versions
from tests.support.patience import HANG

ROOT = Path(__file__).parents[2]
SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
COMPLETING = "kubectl_complete-calico"
"""Its arguments are the words that kubectl completes: there is no wrong one."""
PROGRAMS = sorted(set(SCRIPTS) - {COMPLETING})
ENDS_WITH_1 = {"calicoctl", "kubectl-calico", "cnitool"}
"""As the tools of these names do for any error."""
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "ETCD_ENDPOINTS": "http://127.0.0.1:1",
    "NODENAME": "nothere",
}


def typed(program: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """One command line, in a /run and /var of its own: what starts by mistake changes nothing."""
    private = "mount -t tmpfs t /run && mount -t tmpfs t /var/lib && mount -t tmpfs t /var/log"
    command = ["unshare", "--mount", "--net", "sh", "-c", f'{private} && exec "$@"', "sh"]
    return subprocess.run(
        [*command, str(Path(sys.executable).parent / program), *arguments],
        env={**ENVIRONMENT, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG,
    )


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_and_version_are_answered(program: str) -> None:
    told = typed(program, "--help")
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.lower().startswith("usage:")
    assert "--version" in told.stdout
    assert "tests/" not in told.stdout, "who uses it has no tests"
    version = typed(program, "--version")
    assert (version.returncode, version.stderr) == (0, "")
    assert "0.1.0" in version.stdout
    assert versions.CALICO in version.stdout


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("arguments", [["--nonsense"], ["nonsense"]])
def test_what_is_unknown_is_refused_by_name(program: str, arguments: list[str]) -> None:
    done = typed(program, *arguments)
    assert done.returncode == (1 if program in ENDS_WITH_1 else 2), done.stderr
    assert done.stdout == ""
    assert any(word in done.stderr for word in ("nonsense", "--help", "required"))
    assert "Traceback" not in done.stderr


def test_the_completing_program_completes() -> None:
    assert typed(COMPLETING, "--hel").stdout.splitlines()[0].startswith("--help\t")
    assert "--version" in typed(COMPLETING, "--ver").stdout


PLACEHOLDER = "http://<ETCD_IP>:<ETCD_PORT>"


@pytest.mark.parametrize(
    ("program", "arguments", "value"),
    [
        ("calicoctl", ["get", "nodes"], PLACEHOLDER),
        ("calicoctl", ["get", "nodes"], "http://[::1"),
        ("calico-node", ["startup"], "http://10.0.0.1:99999"),
        ("calico-node", ["run"], PLACEHOLDER),
        ("calico-felix", [], PLACEHOLDER),
        ("calico-bgp", [], PLACEHOLDER),
        ("calico-cni", [], PLACEHOLDER),
        ("calico-kube-controllers", [], PLACEHOLDER),
    ],
)
def test_the_manifests_placeholder_is_refused_in_a_sentence(
    program: str, arguments: list[str], value: str
) -> None:
    done = typed(program, *arguments, ETCD_ENDPOINTS=value)
    assert done.returncode == 1
    told = f"ETCD_ENDPOINTS: '{value}' is not valid: http://HOST:PORT or https://HOST:PORT"
    assert told in done.stderr
    assert "Traceback" not in done.stderr
