"""Kubernetes' own programs, built from Go modules: what the tiers `apiserver` and `k8s` run.

`./run k8s binaries` builds them into a folder outside the tree, named by the version that
`hyperkube/go.mod` pins; tests only look there, or where MUSLIN_KUBERNETES says. A program is built
into a file beside its place and moved there with a stamp of the sources it came from, so nothing
half-built is ever used, and what is there and fits is not built again: then neither Go nor a
network is needed. Go keeps what it compiled, so an interrupted build goes on where it was.
Version 1.20 beside it: tests/k8s/releases.py.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
CACHE = Path("/var/cache/muslin")
NAMED = "MUSLIN_KUBERNETES"
"""A variable: the folder of programs that somebody else built, taken as they are."""
SERVERS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "kubectl",
)
NEEDED_BYTES = 8_000_000_000
"""What an empty cache grows to: modules 2, compiled packages 5, programs 0.2 GB."""


class BuildError(Exception):
    """Why the programs are not there, and what to do."""


@dataclass(frozen=True, slots=True)
class Program:
    """One Go module of this folder and the file that it becomes; `names` are links to it."""

    file: str
    names: tuple[str, ...]
    package: str
    tags: str = ""

    @property
    def module(self) -> Path:
        """The folder of its go.mod."""
        return HERE / self.file

    def fingerprint(self) -> str:
        """What its sources are."""
        return fingerprint(self.module)


def fingerprint(module: Path) -> str:
    """What the sources in a module's folder are."""
    digest = hashlib.sha256()
    for path in sorted(module.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


PROGRAMS = (
    Program("etcd", (), "go.etcd.io/etcd/server/v3"),
    Program("hyperkube", SERVERS, ".", tags="selinux,notest"),
)


def required(module: Path, path: str) -> str:
    """The version of a module that a go.mod pins, without its `v`."""
    for line in (module / "go.mod").read_text().splitlines():
        words = line.split()
        if path in words:
            return words[words.index(path) + 1].removeprefix("v")
    raise BuildError(f"{module / 'go.mod'} does not require {path}")


def version() -> str:
    """The version of Kubernetes."""
    return required(HERE / "hyperkube", "k8s.io/kubernetes")


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the programs are, or will be."""
    if environ.get(NAMED):
        return Path(environ[NAMED])
    return Path(environ.get("MUSLIN_CACHE") or CACHE) / "k8s" / version() / "bin"


def built(program: Program, into: Path) -> bool:
    """Whether a program is there, made of the sources as they are now."""
    stamp = into / f".{program.file}"
    names = (program.file, *program.names)
    try:
        return stamp.read_text() == program.fingerprint() and all(
            os.access(into / name, os.X_OK) for name in names
        )
    except OSError:
        return False


def missing(environ: Mapping[str, str] = os.environ) -> str:
    """Why tests cannot run the programs; empty when they can."""
    into = folder(environ)
    if environ.get(NAMED):
        return absent((*SERVERS, "etcd"), into, NAMED)
    lacking = [program.file for program in PROGRAMS if not built(program, into)]
    if not lacking:
        return ""
    return f"Kubernetes {version()} is not built ({', '.join(lacking)}): ./run k8s binaries"


def absent(names: Sequence[str], place: Path, variable: str) -> str:
    """Which programs a folder that a variable names does not have; empty when it has all."""
    lacking = [name for name in names if not os.access(place / name, os.X_OK)]
    return f"{variable}={place} has no {', '.join(lacking)}" if lacking else ""


def find_go(environ: Mapping[str, str], module: Path = PROGRAMS[-1].module) -> str:
    """The go command that can build a module. Raises BuildError."""
    at = environ.get("GO") or shutil.which("go") or "/usr/local/go/bin/go"
    if not os.access(at, os.X_OK):
        raise BuildError(
            f"Go is needed to build {module.name} and was not found: install it, or set GO"
        )
    # Asked in the module, go says itself when it is too old and may not fetch another one.
    done = run_go(at, "list", "-m", where=module, environ=environ, capture=True)
    if done.returncode != 0:
        raise BuildError(f"{at} cannot build {module}: {done.stderr.strip()}")
    return at


def build(environ: Mapping[str, str] = os.environ, only: Sequence[str] = ()) -> Path:
    """Build what is missing; the folder it is in. Raises BuildError."""
    into = folder(environ)
    if environ.get(NAMED):
        if lacking := missing(environ):
            raise BuildError(lacking)
        return into
    programs = [one for one in PROGRAMS if not only or one.file in only]
    if all(built(one, into) for one in programs):
        return into
    go = find_go(environ)
    try:
        into.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BuildError(f"{into} cannot be made: {error.strerror}; set MUSLIN_CACHE") from error
    with alone(into):
        for program in programs:
            if not built(program, into):
                _build(go, program, into, environ)
    return into


def _build(go: str, program: Program, into: Path, environ: Mapping[str, str]) -> None:
    began = time.monotonic()
    print(f"building {program.file} (minutes, the first time)", file=sys.stderr, flush=True)
    stamp, fresh = program.fingerprint(), into / f".{program.file}.new"
    tags = ["-tags", program.tags] if program.tags else []
    done = run_go(
        go,
        *("build", "-trimpath", *tags, "-ldflags", f"-s -w {linked(program.names)}"),
        *("-o", str(fresh), program.package),
        where=program.module,
        environ=environ,
    )
    if done.returncode != 0:
        fresh.unlink(missing_ok=True)
        free = shutil.disk_usage(into).free
        room = "" if free > NEEDED_BYTES else f"; only {free / 1e9:.1f} GB are free, 8 are needed"
        raise BuildError(f"{program.file} could not be built, see above{room}")
    (into / f".{program.file}").unlink(missing_ok=True)
    fresh.rename(into / program.file)
    for name in program.names:
        link = into / f".{name}.new"
        link.unlink(missing_ok=True)
        link.symlink_to(program.file)
        link.rename(into / name)
    (into / f".{program.file}").write_text(stamp)
    print(f"{program.file}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def linked(servers: Sequence[str] = SERVERS) -> str:
    """What the linker tells Kubernetes' programs of their version, if any: they compare it."""
    if not servers:
        return ""
    number = version()
    major, minor, _ = number.split(".", 2)
    base, client = "k8s.io/component-base/version", "k8s.io/client-go/pkg/version"
    words = {
        f"{base}.gitVersion": f"v{number}",
        f"{base}.gitMajor": major,
        f"{base}.gitMinor": minor,
        f"{base}.gitTreeState": "clean",
        f"{client}.gitVersion": f"v{number}",
    }
    return " ".join(f"-X {name}={value}" for name, value in words.items())


def run_go(
    go: str, *arguments: str, where: Path, environ: Mapping[str, str], capture: bool = False
) -> subprocess.CompletedProcess[str]:
    """The go command in a module's folder, which may not change its go.mod."""
    flags = f"{environ.get('GOFLAGS', '')} -buildvcs=false -mod=readonly".strip()
    return subprocess.run(
        [go, *arguments],
        cwd=where,
        env={**environ, "CGO_ENABLED": "0", "GOFLAGS": flags, "GOWORK": "off"},
        capture_output=capture,
        text=True,
        check=False,
    )


@contextmanager
def alone(into: Path) -> Iterator[None]:
    """One build at a time; whoever comes second finds it done."""
    with (into / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
