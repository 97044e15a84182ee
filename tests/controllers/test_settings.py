"""The configuration and the environment over it; the status file and its probe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from controllers import status
from controllers.main import main
from controllers.settings import NEVER, default, effective
from libcalico.errors import InvalidValue
from libcalico.model.resources.controllers import KubeControllersConfigurationSpec
from libcalico.model.validation.validate import problems

MANIFEST = "policy,namespace,serviceaccount,workloadendpoint,node,loadbalancer"


def test_without_an_environment_the_object_counts_and_everything_runs() -> None:
    found = effective(default().spec, {})
    assert found.running == default().spec
    assert (found.environment, found.compaction, found.grace) == ({}, 600.0, 900.0)
    assert found.period("policy") == 300.0
    assert found.running.prometheusMetricsPort is None
    assert problems(default()) == []


def test_the_environment_chooses_controllers_and_their_settings() -> None:
    environ = {
        "ENABLED_CONTROLLERS": "node, profile",
        "RECONCILER_PERIOD": "90s",
        "SYNC_NODE_LABELS": "false",
        "AUTO_HOST_ENDPOINTS": "enabled",
        "COMPACTION_PERIOD": "0",
        "HEALTH_ENABLED": "false",
        "LOG_LEVEL": "debug",
        "PROFILE_WORKERS": "3",
    }
    found = effective(default().spec, environ)
    controllers = found.controllers
    assert controllers.policy is None
    assert controllers.loadBalancer is None
    assert controllers.node is not None
    assert controllers.node.syncLabels == "Disabled"
    assert controllers.node.hostEndpoint is not None
    assert controllers.node.hostEndpoint.autoCreate == "Enabled"
    assert (found.period("namespace"), found.period("node")) == (90.0, 90.0)
    assert (found.compaction, found.health, found.workers["namespace"]) == (0.0, False, 3)
    assert found.running.logSeverityScreen == "Debug"
    assert set(found.environment) == set(environ)


def test_a_controller_that_the_object_leaves_out_runs_when_the_environment_names_it() -> None:
    from libcalico.model.resources.controllers import ControllersConfig

    spec = replace(default().spec, controllers=ControllersConfig())
    assert effective(spec, {}).controllers.node is None
    controllers = effective(spec, {"ENABLED_CONTROLLERS": MANIFEST}).controllers
    assert None not in (controllers.node, controllers.policy, controllers.loadBalancer)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ENABLED_CONTROLLERS", "node,nodes"),
        ("ENABLED_CONTROLLERS", "flannelmigration"),
        ("RECONCILER_PERIOD", "soon"),
        ("COMPACTION_PERIOD", "-1s"),
        ("HEALTH_ENABLED", "perhaps"),
        ("SYNC_NODE_LABELS", "on"),
        ("AUTO_HOST_ENDPOINTS", "true"),
        ("POLICY_WORKERS", "0"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidValue, match=name):
        effective(default().spec, {name: value})


@pytest.mark.parametrize("text", ["0", "0s"])
def test_a_period_of_zero_means_that_nothing_is_compared_besides_at_changes(text: str) -> None:
    """Calico: "if user has set duration to 0 then disable the reconciler job"."""
    assert effective(default().spec, {"RECONCILER_PERIOD": text}).period("policy") == NEVER
    assert effective(with_period("node", text), {}).period("node") == NEVER


@pytest.mark.parametrize("member", ["policy", "node", "namespace"])
@pytest.mark.parametrize("text", ["soon", "-1s"])
def test_a_period_of_the_object_that_cannot_be_is_refused_by_name(member: str, text: str) -> None:
    with pytest.raises(InvalidValue, match=f"spec.controllers.{member}.reconcilerPeriod"):
        effective(with_period(member, text), {})
    # What the environment sets is not read of the object.
    environ = {"RECONCILER_PERIOD": "90s"}
    assert effective(with_period(member, text), environ).period(member) == 90.0


def with_period(member: str, text: str) -> KubeControllersConfigurationSpec:
    spec = default().spec
    changed = replace(getattr(spec.controllers, member), reconcilerPeriod=text)
    return replace(spec, controllers=replace(spec.controllers, **{member: changed}))


def test_a_probe_reads_what_was_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "status" / "status.json"
    assert not status.check(path, liveness=True)[0]
    told = status.Status(path)
    told.tell("Startup", True)
    told.tell("KubeAPIServer", False, "no answer")
    assert not told.ready
    assert status.check(path, liveness=True) == (True, "Ready")
    assert status.check(path, liveness=False) == (False, "KubeAPIServer: no answer")
    assert main(["check-status", "-r", "-f", str(path)]) == 1
    assert "KubeAPIServer: no answer" in capsys.readouterr().out
    told.tell("KubeAPIServer", True)
    assert main(["check-status", "-r", "-f", str(path)]) == 0
    assert capsys.readouterr().out == "Ready\n"
    assert main(["check-status", "-l", "-f", str(path)]) == 0
    written = path.stat().st_mtime
    for stale in (written - status.STALE - 60, written + 3600):  # or the clock was set back
        os.utime(path, (stale, stale))
        assert main(["check-status", "-l", "-f", str(path)]) == 1
    path.write_text('{"Readiness": 3}')
    assert main(["check-status", "-r", "-f", str(path)]) == 1


def test_a_probe_imports_nothing_of_the_process(tmp_path: Path) -> None:
    """The kubelet starts two of them every ten seconds: their processor time is their imports."""
    script = (
        "import sys; from controllers.main import main; main(sys.argv[1:]); print(*sys.modules)"
    )
    words = ["check-status", "-l", "-f", str(tmp_path / "none")]
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=True
    )
    heavy = {"asyncio", "concurrent", "ctypes", "msgspec", "ssl"}
    assert not heavy & set(done.stdout.split())
