"""The LiveMigration resource (docs/reference/data-model.md#ipam-objects), internal to Calico: a
workload that moves.

Tested in tests/libcalico/test_golden.py.
"""

from __future__ import annotations

from libcalico.model.base.base import Struct, always
from libcalico.model.base.meta import APIObject


class WorkloadIdentifier(Struct, frozen=True):
    """A workload by host, orchestrator and its name there."""

    hostname: str = ""
    orchestratorID: str = ""
    workloadID: str = ""


class WorkloadEndpointIdentifier(Struct, frozen=True):
    """One endpoint of a workload."""

    hostname: str = ""
    orchestratorID: str = ""
    workloadID: str = ""
    endpointID: str = ""


class LiveMigrationSource(Struct, frozen=True):
    """The moving workload: one of the two."""

    workload: WorkloadIdentifier | None = None
    workloadEndpoint: WorkloadEndpointIdentifier | None = None


class LiveMigrationTarget(Struct, frozen=True):
    """The workload after the move: one of the two."""

    selector: str | None = None
    workloadEndpoint: WorkloadEndpointIdentifier | None = None


class LiveMigrationSpec(Struct, frozen=True):
    """Source and target of the move."""

    source: LiveMigrationSource | None = None
    target: LiveMigrationTarget | None = None


class LiveMigration(APIObject, frozen=True, kw_only=True):
    """A move of a running workload."""

    kind: str = always("LiveMigration")
    spec: LiveMigrationSpec = always(LiveMigrationSpec())
