"""The KubeControllersConfiguration resource
(docs/reference/data-model.md#kubecontrollersconfiguration): which controllers run, and how.

A controller whose member is present is enabled. Later releases spell v3.32's `policyMigration`
as `migration`; both are kept as they were written.
Tested in tests/libcalico/test_golden.py.
"""

from __future__ import annotations

from libcalico.model.base.base import Struct, always
from libcalico.model.base.meta import APIObject, Duration


class Template(Struct, frozen=True):
    """A host endpoint to create on the nodes that are selected."""

    generateName: str = ""
    interfaceCIDRs: list[str] = []
    interfacePattern: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    nodeSelector: str = ""


class AutoHostEndpointConfig(Struct, frozen=True):
    """Host endpoints made for every node."""

    autoCreate: str = ""
    createDefaultHostEndpoint: str = ""
    templates: list[Template] = []


class NodeControllerConfig(Struct, frozen=True):
    """The node controller: labels, host endpoints, leaked addresses."""

    reconcilerPeriod: Duration | None = None
    syncLabels: str = ""
    hostEndpoint: AutoHostEndpointConfig | None = None
    leakGracePeriod: Duration | None = None


class PeriodicControllerConfig(Struct, frozen=True):
    """A controller that reconciles: policy, workloadEndpoint, serviceAccount, namespace."""

    reconcilerPeriod: Duration | None = None


class LoadBalancerControllerConfig(Struct, frozen=True):
    """Which services get an address: AllServices or RequestedServicesOnly."""

    assignIPs: str = ""


class PolicyMigrationConfig(Struct, frozen=True):
    """Renaming of old policies, as v3.32 spells it: Enabled or Disabled."""

    enabled: str = ""


class MigrationControllerConfig(Struct, frozen=True):
    """Renaming of old policies: Enabled or Disabled."""

    policyNameMigrator: str = ""


class ControllersConfig(Struct, frozen=True):
    """The controllers; one that is None does not run."""

    node: NodeControllerConfig | None = None
    policy: PeriodicControllerConfig | None = None
    workloadEndpoint: PeriodicControllerConfig | None = None
    serviceAccount: PeriodicControllerConfig | None = None
    namespace: PeriodicControllerConfig | None = None
    loadBalancer: LoadBalancerControllerConfig | None = None
    policyMigration: PolicyMigrationConfig | None = None
    migration: MigrationControllerConfig | None = None


class KubeControllersConfigurationSpec(Struct, frozen=True):
    """Settings of the controllers' process."""

    logSeverityScreen: str = ""
    healthChecks: str = ""
    etcdV3CompactionPeriod: Duration | None = None
    prometheusMetricsPort: int | None = None
    controllers: ControllersConfig = always(ControllersConfig())
    debugProfilePort: int | None = None


class KubeControllersConfigurationStatus(Struct, frozen=True):
    """The configuration in use, as the controllers report it."""

    runningConfig: KubeControllersConfigurationSpec | None = None
    environmentVars: dict[str, str] = {}


class KubeControllersConfiguration(APIObject, frozen=True, kw_only=True):
    """The one object named `default`."""

    kind: str = always("KubeControllersConfiguration")
    spec: KubeControllersConfigurationSpec = always(KubeControllersConfigurationSpec())
    status: KubeControllersConfigurationStatus = always(KubeControllersConfigurationStatus())
