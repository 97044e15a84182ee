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
from libcalico.model.validation.checks import Problems, indexed

SWITCH = ("Enabled", "Disabled")
LOG_LEVELS = ("None", "Debug", "Info", "Warning", "Error", "Fatal", "Panic")
MAX_PORT = 65535
_PERIODIC = ("policy", "workloadEndpoint", "serviceAccount", "namespace")


def check(config: KubeControllersConfiguration, problems: Problems) -> None:
    """Check the controllers' settings."""
    problems.only_default(config.metadata.name)
    spec = config.spec
    problems.one_of("spec.logSeverityScreen", spec.logSeverityScreen, LOG_LEVELS)
    problems.one_of("spec.healthChecks", spec.healthChecks, SWITCH)
    problems.duration("spec.etcdV3CompactionPeriod", spec.etcdV3CompactionPeriod)
    problems.limits("spec.prometheusMetricsPort", spec.prometheusMetricsPort, 0, MAX_PORT)
    problems.limits("spec.debugProfilePort", spec.debugProfilePort, 0, MAX_PORT)
    _controllers(spec.controllers, problems, "spec.controllers")


def _controllers(controllers: ControllersConfig, problems: Problems, where: str) -> None:
    node = controllers.node
    if node is not None:
        problems.duration(f"{where}.node.reconcilerPeriod", node.reconcilerPeriod)
        problems.one_of(f"{where}.node.syncLabels", node.syncLabels, SWITCH)
        problems.duration(f"{where}.node.leakGracePeriod", node.leakGracePeriod)
        if node.hostEndpoint is not None:
            _host_endpoint(node.hostEndpoint, problems, f"{where}.node.hostEndpoint")
    for name in _PERIODIC:
        one = getattr(controllers, name)
        if one is not None:
            problems.duration(f"{where}.{name}.reconcilerPeriod", one.reconcilerPeriod)
    if controllers.loadBalancer is not None:
        choices = ("AllServices", "RequestedServicesOnly")
        problems.one_of(
            f"{where}.loadBalancer.assignIPs", controllers.loadBalancer.assignIPs, choices
        )
    if controllers.policyMigration is not None:
        problems.one_of(
            f"{where}.policyMigration.enabled", controllers.policyMigration.enabled, SWITCH
        )
    if controllers.migration is not None:
        switch = controllers.migration.policyNameMigrator
        problems.one_of(f"{where}.migration.policyNameMigrator", switch, SWITCH)


def _host_endpoint(config: AutoHostEndpointConfig, problems: Problems, where: str) -> None:
    problems.one_of(f"{where}.autoCreate", config.autoCreate, SWITCH)
    problems.one_of(f"{where}.createDefaultHostEndpoint", config.createDefaultHostEndpoint, SWITCH)
    _templates(config.templates, problems, f"{where}.templates")


def _templates(templates: Sequence[Template], problems: Problems, field: str) -> None:
    names = [template.generateName for template in templates]
    for index, (where, template) in enumerate(indexed(field, templates)):
        name = template.generateName
        if name and name in names[:index]:
            problems.add(f"{where}.generateName", name, "another template has this name")
        problems.name(f"{where}.generateName", name, "a template needs a name")
        problems.cidrs(f"{where}.interfaceCIDRs", template.interfaceCIDRs)
        problems.expression(f"{where}.interfacePattern", template.interfacePattern)
        if not template.interfaceCIDRs and not template.interfacePattern:
            rule = "interfaceCIDRs or interfacePattern must say which interfaces"
            problems.add(where, "...", rule)
        problems.labels(f"{where}.labels", template.labels)
        problems.annotations(f"{where}.annotations", template.annotations)
        problems.selector(f"{where}.nodeSelector", template.nodeSelector)
