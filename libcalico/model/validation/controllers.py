"""Rules of KubeControllersConfiguration
(docs/reference/data-model.md#kubecontrollersconfiguration).

Tested in tests/libcalico/test_invalid_documents.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from libcalico.model.resources.controllers import (
    AutoHostEndpointConfig,
    ControllersConfig,
    KubeControllersConfiguration,
    Template,
)
from libcalico.model.validation.checks import Problems

SWITCH = ("Enabled", "Disabled")
LOG_LEVELS = ("None", "Debug", "Info", "Warning", "Error", "Fatal", "Panic")
MAX_PORT = 65535
_PERIODIC = ("policy", "workloadEndpoint", "serviceAccount", "namespace")


def check(config: KubeControllersConfiguration, found: Problems) -> None:
    """Everything that is wrong with the controllers' settings."""
    found.only_default(config.metadata.name)
    spec = config.spec
    found.one_of("spec.logSeverityScreen", spec.logSeverityScreen, LOG_LEVELS)
    found.one_of("spec.healthChecks", spec.healthChecks, SWITCH)
    found.duration("spec.etcdV3CompactionPeriod", spec.etcdV3CompactionPeriod)
    found.limits("spec.prometheusMetricsPort", spec.prometheusMetricsPort, 0, MAX_PORT)
    found.limits("spec.debugProfilePort", spec.debugProfilePort, 0, MAX_PORT)
    _controllers(spec.controllers, found, "spec.controllers")


def _controllers(controllers: ControllersConfig, found: Problems, where: str) -> None:
    node = controllers.node
    if node is not None:
        found.duration(f"{where}.node.reconcilerPeriod", node.reconcilerPeriod)
        found.one_of(f"{where}.node.syncLabels", node.syncLabels, SWITCH)
        found.duration(f"{where}.node.leakGracePeriod", node.leakGracePeriod)
        if node.hostEndpoint is not None:
            _host_endpoint(node.hostEndpoint, found, f"{where}.node.hostEndpoint")
    for name in _PERIODIC:
        one = getattr(controllers, name)
        if one is not None:
            found.duration(f"{where}.{name}.reconcilerPeriod", one.reconcilerPeriod)
    if controllers.loadBalancer is not None:
        choices = ("AllServices", "RequestedServicesOnly")
        found.one_of(f"{where}.loadBalancer.assignIPs", controllers.loadBalancer.assignIPs, choices)
    if controllers.policyMigration is not None:
        found.one_of(
            f"{where}.policyMigration.enabled", controllers.policyMigration.enabled, SWITCH
        )
    if controllers.migration is not None:
        switch = controllers.migration.policyNameMigrator
        found.one_of(f"{where}.migration.policyNameMigrator", switch, SWITCH)


def _host_endpoint(config: AutoHostEndpointConfig, found: Problems, where: str) -> None:
    found.one_of(f"{where}.autoCreate", config.autoCreate, SWITCH)
    found.one_of(f"{where}.createDefaultHostEndpoint", config.createDefaultHostEndpoint, SWITCH)
    _templates(config.templates, found, f"{where}.templates")


def _templates(templates: Sequence[Template], found: Problems, field: str) -> None:
    names = [template.generateName for template in templates]
    for index, template in enumerate(templates):
        where = f"{field}[{index}]"
        if not template.generateName:
            found.add(f"{where}.generateName", "", "a template needs a name")
        elif template.generateName in names[:index]:
            rule = "another template has this name"
            found.add(f"{where}.generateName", template.generateName, rule)
        found.name(f"{where}.generateName", template.generateName)
        found.cidrs(f"{where}.interfaceCIDRs", template.interfaceCIDRs)
        found.expression(f"{where}.interfacePattern", template.interfacePattern)
        if not template.interfaceCIDRs and not template.interfacePattern:
            rule = "interfaceCIDRs or interfacePattern must say which interfaces"
            found.add(where, "...", rule)
        found.labels(f"{where}.labels", template.labels)
        found.annotations(f"{where}.annotations", template.annotations)
        found.selector(f"{where}.nodeSelector", template.nodeSelector)
