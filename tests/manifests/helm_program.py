"""Helm, built from its Go module as Kubernetes' programs are: `./run manifests binaries`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.cri.binaries import Programs

MODULE = "helm.sh/helm/v3"


@dataclass(frozen=True, slots=True)
class Helm(Programs):
    """The go.mod beside this file names the version."""

    @property
    def module(self) -> Path:
        """The folder of its go.mod."""
        return Path(__file__).parent / "helm"

    def missing_told(self) -> str:
        """Why it cannot be run, and what to do; empty when it can."""
        found = self.missing()
        return found and f"{self.name} {self.version} is not built: ./run manifests binaries"


HELM = Helm("helm", MODULE, (f"{MODULE}/cmd/helm",), ("helm",))
