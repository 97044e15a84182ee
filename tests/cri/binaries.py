"""Programs from Go modules that these tests drive: containerd 2, and a driver of libcni.

Debian 12 has neither. As with Kubernetes' programs (tests/k8s/binaries.py) they are built into a
folder outside the tree, named by the version that a go.mod here pins; what is there and was made
of the sources as they are is not built again, and needs neither Go nor a network.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.k8s.binaries import CACHE, BuildError, alone, find_go, fingerprint, required, run_go

HERE = Path(__file__).parent
STAMP = ".made-of"


@dataclass(frozen=True, slots=True)
class Programs:
    """One Go module of this folder and the files that its packages become."""

    name: str
    versioned: str
    """The module that its version is the version of."""
    packages: tuple[str, ...]
    files: tuple[str, ...]

    @property
    def module(self) -> Path:
        """The folder of its go.mod."""
        return HERE / self.name

    @property
    def version(self) -> str:
        """What go.mod pins."""
        return required(self.module, self.versioned)

    def folder(self, environ: Mapping[str, str] = os.environ) -> Path:
        """Where the files are, or will be."""
        cache = Path(environ.get("MUSLIN_CACHE") or CACHE)
        return cache / self.name / self.version / "bin"

    def missing(self, environ: Mapping[str, str] = os.environ) -> str:
        """Why tests cannot run them; empty when they can."""
        into = self.folder(environ)
        try:
            fits = (into / STAMP).read_text() == fingerprint(self.module)
        except OSError:
            fits = False
        if fits and all(os.access(into / name, os.X_OK) for name in self.files):
            return ""
        return f"{self.name} {self.version} is not built: ./run cri binaries"

    def build(self, environ: Mapping[str, str] = os.environ) -> Path:
        """Build what is not there; the folder. Raises BuildError."""
        into = self.folder(environ)
        if not self.missing(environ):
            return into
        go = find_go(environ, self.module)
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
        print(f"building {self.name} {self.version}", file=sys.stderr, flush=True)
        stamp, fresh = fingerprint(self.module), into / ".new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        done = run_go(
            go,
            *("build", "-trimpath", "-ldflags", "-s -w", "-o", f"{fresh}/", *self.packages),
            where=self.module,
            environ=environ,
        )
        if done.returncode != 0:
            shutil.rmtree(fresh)
            raise BuildError(f"{self.name} {self.version} could not be built, see above")
        (into / STAMP).unlink(missing_ok=True)
        for name in self.files:
            (fresh / name).rename(into / name)
        shutil.rmtree(fresh)
        (into / STAMP).write_text(stamp)
        print(f"{self.name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


_CONTAINERD = "github.com/containerd/containerd/v2"
_COMMANDS = ("containerd", "containerd-shim-runc-v2", "ctr")
CONTAINERD2 = Programs(
    "containerd2", _CONTAINERD, tuple(f"{_CONTAINERD}/cmd/{one}" for one in _COMMANDS), _COMMANDS
)
LIBCNI_DRIVER = Programs(
    "libcni_driver", "github.com/containernetworking/cni", (".",), ("libcni_driver",)
)
ALL = (LIBCNI_DRIVER, CONTAINERD2)
