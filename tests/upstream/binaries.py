"""Upstream's suites and what they need, built from Go modules: nothing of them is in this tree.

Each folder here is a module that pins versions by hash. What it becomes is kept by version outside
the tree, as Kubernetes' own programs are (tests/k8s/binaries.py): built into a file beside its
place, with a stamp of the sources; what is there and fits needs neither Go nor a network.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.k8s.binaries import (
    CACHE,
    BuildError,
    alone,
    find_go,
    fingerprint,
    linked,
    required,
    run_go,
)

HERE = Path(__file__).parent
STAMP = ".made-of"
_AGNHOST = "k8s.io/kubernetes/test/images/agnhost"


@dataclass(frozen=True, slots=True)
class Module:
    """One module and the files that its packages become, each by the words for `go`."""

    name: str
    versioned: str
    """The module that its version is the version of."""
    files: Mapping[str, tuple[str, ...]]
    kubernetes: bool = False
    """Whether the version of Kubernetes is linked in, with upstream's tags."""
    copies: Mapping[str, str] | None = None
    """Files of a package's folder that are kept beside the programs, by what they are called."""

    @property
    def source(self) -> Path:
        """The folder of its go.mod."""
        return HERE / self.name

    @property
    def version(self) -> str:
        """What go.mod pins."""
        return required(self.source, self.versioned)

    def folder(self, environ: Mapping[str, str] = os.environ) -> Path:
        """Where the files are, or will be."""
        cache = Path(environ.get("MUSLIN_CACHE") or CACHE)
        return cache / "upstream" / self.name / self.version

    def program(self, name: str) -> Path:
        """One of the files."""
        return self.folder() / name

    def missing(self, environ: Mapping[str, str] = os.environ) -> str:
        """Why tests cannot run them; empty when they can."""
        into = self.folder(environ)
        try:
            fits = (into / STAMP).read_text() == fingerprint(self.source)
        except OSError:
            fits = False
        names = (*self.files, *(self.copies or {}))
        if fits and all(os.access(into / name, os.R_OK) for name in names):
            return ""
        return f"{self.name} {self.version} is not built: ./run upstream binaries"

    def build(self, environ: Mapping[str, str] = os.environ) -> Path:
        """Build what is not there; the folder. Raises BuildError."""
        into = self.folder(environ)
        if not self.missing(environ):
            return into
        go = find_go(environ, self.source)
        try:
            into.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BuildError(
                f"{into} cannot be made: {error.strerror}; set MUSLIN_CACHE"
            ) from error
        with alone(into):
            if self.missing(environ):
                self._build(go, into, environ)
        return into

    def _build(self, go: str, into: Path, environ: Mapping[str, str]) -> None:
        began = time.monotonic()
        stamp = fingerprint(self.source)
        print(f"building {self.name} {self.version} (minutes)", file=sys.stderr, flush=True)
        (into / STAMP).unlink(missing_ok=True)
        tags = ["-tags", "selinux,notest"] if self.kubernetes else []
        told = f"-s -w {linked()}" if self.kubernetes else "-s -w"
        for name, (verb, *words) in self.files.items():
            *flags, package = words
            fresh = into / f".{name}.new"
            done = run_go(
                go,
                *(verb, *flags, "-trimpath", *tags, "-ldflags", told, "-o", str(fresh), package),
                where=self.source,
                environ=environ,
            )
            if done.returncode != 0:
                raise BuildError(f"{name} {self.version} could not be built, see above")
            fresh.rename(into / name)
        for name, path in (self.copies or {}).items():
            package, _, rest = path.partition("//")
            found = run_go(
                go,
                *("list", "-f", "{{.Dir}}", package),
                where=self.source,
                environ=environ,
                capture=True,
            )
            if found.returncode != 0:
                raise BuildError(f"{package} was not found: {found.stderr.strip()}")
            shutil.copyfile(Path(found.stdout.strip()) / rest, into / name)
        (into / STAMP).write_text(stamp)
        print(f"{self.name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


E2E = Module(
    "e2e",
    "k8s.io/kubernetes",
    {"agnhost": ("build", _AGNHOST), "e2e-net.test": ("test", "-c", ".")},
    kubernetes=True,
    copies={name: f"{_AGNHOST}//porter/{name}" for name in ("localhost.crt", "localhost.key")},
)
CLUSTER_POLICY = Module(
    "conformance",
    "sigs.k8s.io/network-policy-api",
    {"cluster-policy.test": ("test", "-c", ".")},
)
COREDNS = Module("coredns", "github.com/coredns/coredns", {"coredns": ("build", ".")})
ALL = (COREDNS, CLUSTER_POLICY, E2E)


def missing(environ: Mapping[str, str] = os.environ) -> str:
    """Why the suites cannot run; empty when they can."""
    return next(filter(None, (one.missing(environ) for one in ALL)), "")
