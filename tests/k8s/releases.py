"""The versions of Kubernetes that clusters of the tests run, and where their programs are.

In this order: a folder that a variable names (MUSLIN_KUBERNETES, MUSLIN_KUBERNETES_1_20); for the
current version Go and the module proxy; for 1.20 Debian's source package. What was built is kept by
version outside the tree, and tests only look: a version that is not there is skipped, and counted.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.k8s import binaries, debian_source
from tests.k8s.binaries import CACHE, SERVERS, BuildError, absent, alone

NAMED_OLD = "MUSLIN_KUBERNETES_1_20"


@dataclass(frozen=True)
class Release:
    """One version; `old`: 1.20, with the words of its time."""

    old: bool

    @property
    def version(self) -> str:
        """As `kubectl version` says it, without its `v`."""
        return debian_source.VERSION if self.old else binaries.version()

    def folder(self, environ: Mapping[str, str] = os.environ) -> Path:
        """Where the programs are, or will be."""
        if not self.old:
            return binaries.folder(environ)
        if environ.get(NAMED_OLD):
            return Path(environ[NAMED_OLD])
        return Path(environ.get("MUSLIN_CACHE") or CACHE) / "k8s" / self.version / "bin"

    def etcd(self) -> str:
        """The store: Debian's for the version from Debian."""
        return (shutil.which("etcd") or "etcd") if self.old else str(self.folder() / "etcd")

    def missing(self, environ: Mapping[str, str] = os.environ) -> str:
        """Why tests cannot run the programs; empty when they can."""
        if not self.old:
            return binaries.missing(environ)
        place = self.folder(environ)
        if environ.get(NAMED_OLD):
            return absent(SERVERS, place, NAMED_OLD)
        if all(os.access(place / name, os.X_OK) for name in SERVERS):
            return ""
        return f"Kubernetes {self.version} is not built: ./run k8s binaries {self.word}"

    @property
    def word(self) -> str:
        """Its name for `./run k8s binaries`."""
        return self.version.rpartition(".")[0]

    def build(self, environ: Mapping[str, str] = os.environ) -> Path:
        """Build what is missing; the folder it is in. Raises BuildError."""
        if not self.old:
            return binaries.build(environ)
        place = self.folder(environ)
        if not self.missing(environ):
            return place
        if environ.get(NAMED_OLD):
            raise BuildError(self.missing(environ))
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BuildError(
                f"{place} cannot be made: {error.strerror}; set MUSLIN_CACHE"
            ) from error
        with alone(place):
            try:
                debian_source.build(SERVERS, place)
            except (debian_source.SourceError, OSError) as error:
                raise BuildError(
                    f"Kubernetes {self.version} could not be built: {error}"
                ) from error
        return place


CURRENT, OLD = Release(old=False), Release(old=True)
RELEASES = {"current": CURRENT, OLD.word: OLD}
