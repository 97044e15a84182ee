"""Which controllers run and how: the configuration object, with the environment over it.

The object is KubeControllersConfiguration `default`
(docs/reference/data-model.md#kubecontrollersconfiguration); the variables are Calico's (8.1). What
comes out is shown in the object's status. Pure. Tested in tests/controllers/test_settings.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from libcalico import durations, parsing
from libcalico.errors import InvalidValue
from libcalico.model import KubeControllersConfiguration, Metadata
from libcalico.model.resources.controllers import (
    AutoHostEndpointConfig,
    ControllersConfig,
    KubeControllersConfigurationSpec,
    LoadBalancerControllerConfig,
    MigrationControllerConfig,
    NodeControllerConfig,
    PeriodicControllerConfig,
)

NAME = "default"
PERIOD, GRACE, COMPACTION = "5m0s", "15m0s", "10m0s"
NEVER = durations.LONGEST
MEMBERS = {
    "policy": "policy",
    "namespace": "namespace",
    "profile": "namespace",
    "serviceaccount": "serviceAccount",
    "workloadendpoint": "workloadEndpoint",
    "node": "node",
    "loadbalancer": "loadBalancer",
}
"""Names in ENABLED_CONTROLLERS and the member of `spec.controllers` that each is."""
WORKERS = {
    "policy": "POLICY_WORKERS",
    "namespace": "PROFILE_WORKERS",
    "serviceAccount": "PROFILE_WORKERS",
    "workloadEndpoint": "WORKLOAD_ENDPOINT_WORKERS",
    "node": "NODE_WORKERS",
}
MAX_WORKERS = 64


@dataclass(frozen=True, slots=True)
class Settings:
    """Times in seconds. `running` is the configuration in effect, `environment` what changed it."""

    running: KubeControllersConfigurationSpec
    environment: Mapping[str, str] = field(default_factory=dict)
    workers: Mapping[str, int] = field(default_factory=dict)
    compaction: float = 600.0
    health: bool = True

    @property
    def controllers(self) -> ControllersConfig:
        """The controllers; those that do not run are None."""
        return self.running.controllers

    def period(self, member: str) -> float:
        """Seconds between two full comparisons; `NEVER` where the setting is 0."""
        text = getattr(self.controllers, member).reconcilerPeriod or PERIOD
        return durations.parse(text) or NEVER

    @property
    def grace(self) -> float:
        """How long an address must look unused; 0 is for ever."""
        node = self.controllers.node
        return durations.parse((node.leakGracePeriod if node else None) or GRACE)


def default() -> KubeControllersConfiguration:
    """The object as it is created where there is none."""
    every = PeriodicControllerConfig(reconcilerPeriod=PERIOD)
    return KubeControllersConfiguration(
        metadata=Metadata(name=NAME),
        spec=KubeControllersConfigurationSpec(
            logSeverityScreen="Info",
            healthChecks="Enabled",
            etcdV3CompactionPeriod=COMPACTION,
            controllers=ControllersConfig(
                node=NodeControllerConfig(
                    reconcilerPeriod=PERIOD,
                    syncLabels="Enabled",
                    hostEndpoint=AutoHostEndpointConfig(
                        autoCreate="Disabled", createDefaultHostEndpoint="Enabled"
                    ),
                    leakGracePeriod=GRACE,
                ),
                policy=every,
                workloadEndpoint=every,
                serviceAccount=every,
                namespace=every,
                loadBalancer=LoadBalancerControllerConfig(assignIPs="AllServices"),
                migration=MigrationControllerConfig(policyNameMigrator="Enabled"),
            ),
        ),
    )


T = TypeVar("T")


class Read(Protocol):
    """Parse a variable of the environment; None where it is not set."""

    def __call__(self, name: str, parse: Callable[[str, str], T], /) -> T | None: ...


def effective(spec: KubeControllersConfigurationSpec, environ: Mapping[str, str]) -> Settings:
    """The settings in effect. Raises InvalidValue naming the variable or field."""
    used: dict[str, str] = {}

    def read(name: str, parse: Callable[[str, str], T]) -> T | None:
        text = environ.get(name, "").strip()
        if not text:
            return None
        used[name] = text
        return parse(name, text)

    changes: dict[str, Any] = {}
    members = _enabled(spec.controllers, read("ENABLED_CONTROLLERS", _names))
    if (period := read("RECONCILER_PERIOD", _duration)) is not None:
        members = {name: _with_period(one, period) for name, one in members.items()}
    for name, one in members.items():
        if text := getattr(one, "reconcilerPeriod", None):
            _seconds(f"spec.controllers.{name}.reconcilerPeriod", text)
    if (node := members.get("node")) is not None:
        members["node"] = _node(node, read)
    changes["controllers"] = ControllersConfig(**members)
    if (period := read("COMPACTION_PERIOD", _duration)) is not None:
        changes["etcdV3CompactionPeriod"] = period
    if (health := read("HEALTH_ENABLED", _boolean)) is not None:
        changes["healthChecks"] = "Enabled" if health else "Disabled"
    if (level := read("LOG_LEVEL", lambda _, text: text.capitalize())) is not None:
        changes["logSeverityScreen"] = level
    workers = {member: read(name, _count) or 1 for member, name in WORKERS.items()}
    running = replace(spec, **changes)
    return Settings(
        running=running,
        environment=used,
        workers=workers,
        compaction=_seconds(
            "spec.etcdV3CompactionPeriod", running.etcdV3CompactionPeriod or COMPACTION
        ),
        health=running.healthChecks != "Disabled",
    )


def _enabled(spec: ControllersConfig, names: list[str] | None) -> dict[str, Any]:
    every = default().spec.controllers
    fields = {member: getattr(spec, member) for member in spec.__struct_fields__}
    if names is None:
        return fields
    chosen = set(names)
    for member in set(MEMBERS.values()):
        if member not in chosen:
            fields[member] = None
        elif fields[member] is None:
            fields[member] = getattr(every, member)
    return fields


def _node(node: NodeControllerConfig, read: Read) -> NodeControllerConfig:
    if (sync := read("SYNC_NODE_LABELS", _boolean)) is not None:
        node = replace(node, syncLabels="Enabled" if sync else "Disabled")
    if (create := read("AUTO_HOST_ENDPOINTS", _switch)) is not None:
        config = node.hostEndpoint or AutoHostEndpointConfig()
        node = replace(node, hostEndpoint=replace(config, autoCreate=create))
    _seconds("spec.controllers.node.leakGracePeriod", node.leakGracePeriod or GRACE)
    return node


def _with_period(one: Any, period: str) -> Any:
    if one is None or not hasattr(one, "reconcilerPeriod"):
        return one
    return replace(one, reconcilerPeriod=period)


def _names(variable: str, text: str) -> list[str]:
    members = []
    for word in (part.strip().lower() for part in text.split(",")):
        if word == "flannelmigration":
            raise InvalidValue(variable, word, "is not offered: see docs/migration for the way")
        if word not in MEMBERS:
            raise InvalidValue(variable, word, f"must be one of {', '.join(MEMBERS)}")
        members.append(MEMBERS[word])
    return members


def _duration(variable: str, text: str) -> str:
    return durations.text(_seconds(variable, text))


def _seconds(variable: str, text: str) -> float:
    return parsing.seconds(variable, text)


def _boolean(variable: str, text: str) -> bool:
    if text.lower() in ("true", "t", "1"):
        return True
    if text.lower() in ("false", "f", "0"):
        return False
    raise InvalidValue(variable, text, "must be true or false")


def _switch(variable: str, text: str) -> str:
    if text.lower() in ("enabled", "disabled"):
        return text.capitalize()
    raise InvalidValue(variable, text, "must be enabled or disabled")


def _count(variable: str, text: str) -> int:
    return parsing.number(variable, text, 1, MAX_WORKERS)
