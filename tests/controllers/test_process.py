"""`calico-kube-controllers` itself, twice, with the rights that the manifest gives."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.controllers.test_mirrors import DEFAULT_DENY, POLICY_PATH, RESOURCES
from tests.manifests.rendered import FOLDER, without_crds
from tests.support.apiserver import ApiServer
from tests.support.etcd import Etcd, free_ports
from tests.support.patience import HANG, wait_for

ACCOUNT = "calico-kube-controllers"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/calico-kube-controllers"
CONFIGURATION = f"{RESOURCES}kubecontrollersconfigurations/default"


def wait(check: Callable[[], object], what: object = "") -> None:
    wait_for(check, what, 0.1)


def rules() -> list[dict[str, Any]]:
    """The rules that the manifest gives."""
    there = without_crds((FOLDER / "calico-etcd.yaml").read_text())
    return [*there[f"ClusterRole/{ACCOUNT}"]["rules"], *there[f"Role/{ACCOUNT}"]["rules"]]


def wrong_clock(off: str) -> dict[str, str]:
    """The environment in which the wall clock is `+1h` or `-1h`; nobody sets the monotonic one.

    The program of that name would stand between a process and its signals.
    """
    command = ["faketime", "-m", "--exclude-monotonic", "-f", off, "env"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    kept = {name: value for name, value in found.items() if "FAKE" in name or name == "LD_PRELOAD"}
    kept.pop("FAKETIME_SHARED", None)
    return kept


class Running:
    """One process, its files and its ports."""

    def __init__(
        self,
        cluster: ApiServer,
        at: Path,
        name: str,
        clock: str = "",
        server: str = "",
        **environ: str,
    ) -> None:
        self.status, self.log = at / name / "status.json", at / f"{name}.log"
        (self.port,) = free_ports(1)
        token = cluster.account(ACCOUNT, rules(), "kube-system")
        kubeconfig = at / f"{name}.kubeconfig"
        ca = base64.b64encode(cluster.ca).decode()
        access = {
            "clusters": [
                {
                    "name": "c",
                    "cluster": {"server": server or cluster.url, "certificate-authority-data": ca},
                }
            ],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        kubeconfig.write_text(json.dumps(access))
        kubeconfig.chmod(0o600)
        command = [sys.executable, "-m", "controllers.main", f"--status-file={self.status}"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, f"--health-port={self.port}"],
                env={
                    "PATH": os.environ["PATH"],
                    "DATASTORE_TYPE": "etcdv3",
                    "ETCD_ENDPOINTS": cluster.etcd.endpoint,
                    "KUBECONFIG": str(kubeconfig),
                    "POD_NAME": name,
                    **environ,
                    **(wrong_clock(clock) if clock else {}),
                },
                stdout=log,
                stderr=log,
            )

    def check(self, kind: str) -> tuple[int, str]:
        """What `check-status` says."""
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "controllers.main",
                "check-status",
                kind,
                "-f",
                str(self.status),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout.strip()

    def get(self, path: str, port: int = 0) -> tuple[int, str]:
        """What HTTP says."""
        try:
            url = f"http://127.0.0.1:{port or self.port}{path}"
            with urllib.request.urlopen(url, timeout=HANG) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(HANG)
        # What the library of `wrong_clock` leaves of a process that was killed.
        for name in ("faketime_shm", "sem.faketime_sem"):
            Path(f"/dev/shm/{name}_{self.process.pid}").unlink(missing_ok=True)
        return code


@pytest.fixture
def start(cluster: ApiServer, tmp_path: Path) -> Iterator[Callable[..., Running]]:
    cluster.namespace("kube-system")
    cluster.delete(LEASE)
    found: list[Running] = []

    def begin(name: str, **environ: str) -> Running:
        found.append(Running(cluster, tmp_path, name, **environ))
        return found[-1]

    yield begin
    for one in found:
        one.stop(signal.SIGKILL)


def holder(cluster: ApiServer) -> str:
    """Who holds the lease."""
    try:
        found: str = cluster.call("GET", LEASE)["spec"].get("holderIdentity", "")
    except Exception:
        return ""
    return found.partition("_")[0]


@pytest.mark.promise("M-123")
@pytest.mark.promise("M-212")
def test_one_of_two_works_with_few_rights_and_the_other_takes_over(
    cluster: ApiServer, stored: Etcd, start: Callable[..., Running]
) -> None:
    cluster.namespace("twice")
    path = f"{RESOURCES}networkpolicies/twice/knp.default."

    def policy(name: str) -> None:
        body = {"metadata": {"name": name}, "spec": DEFAULT_DENY}
        cluster.ensure(POLICY_PATH.format("twice"), body)

    policy("one")
    first = start("first")
    wait(lambda: stored.keys(path) == [f"{path}one"], first.log.read_text)
    wait(lambda: first.check("-r") == (0, "Ready"), lambda: first.check("-r"))
    assert first.check("-l") == (0, "Ready")
    assert [first.get(f"/{kind}")[0] for kind in ("liveness", "readiness")] == [200, 200]
    second = start("second")
    wait(lambda: second.check("-r") == (0, "Ready"), second.log.read_text)
    assert "waits for the lease" in second.get("/readiness")[1]
    assert holder(cluster) == "first"
    # Asked to end, it gives the lease back; the other goes on at once.
    assert first.stop() == 0
    policy("two")
    wait(lambda: f"{path}two" in stored.keys(path), second.log.read_text)
    assert holder(cluster) == "second"
    # Killed, it does not; the next waits for the lease to run out.
    third = start("third")
    wait(lambda: third.check("-r") == (0, "Ready"), third.log.read_text)
    second.stop(signal.SIGKILL)
    cluster.delete(POLICY_PATH.format("twice") + "/one")
    wait(lambda: stored.keys(path) == [f"{path}two"], third.log.read_text)
    text = third.log.read_text()
    assert "RBAC" not in text, text
    # Without the API it is not ready, and says so; it comes back by itself.
    cluster.kill()
    wait(lambda: third.check("-r")[0] == 1 or third.process.poll() is not None)
    cluster.start()
    third.stop()


def test_the_configuration_is_made_told_and_taken_up(
    cluster: ApiServer, stored: Etcd, start: Callable[..., Running]
) -> None:
    cluster.namespace("told")
    one = start("one", RECONCILER_PERIOD="2m", ENABLED_CONTROLLERS="namespace,node")

    def tree() -> dict[str, Any]:
        return json.loads(stored.get(CONFIGURATION) or b"{}")  # type: ignore[no-any-return]

    wait(lambda: tree().get("status", {}).get("environmentVars"), one.log.read_text)
    found = tree()
    assert "prometheusMetricsPort" not in found["spec"]
    assert found["spec"]["controllers"]["policy"] == {"reconcilerPeriod": "5m0s"}
    running = found["status"]["runningConfig"]["controllers"]
    assert running["namespace"] == {"reconcilerPeriod": "2m0s"}
    assert "policy" not in running
    wait(lambda: stored.get(f"{RESOURCES}profiles/kns.told"), one.log.read_text)
    # A change of the object is taken up: metrics from now on.
    (port,) = free_ports(1)
    found["spec"]["prometheusMetricsPort"] = port
    stored.put(CONFIGURATION, json.dumps(found))
    wait(lambda: one.get("/metrics", port)[0] == 200, one.log.read_text)
    wait(lambda: "ipam_allocations_gc_reclamations" in one.get("/metrics", port)[1])
    text = one.get("/metrics", port)[1]
    assert "muslin_controllers_leading 1.0" in text
    assert 'muslin_controllers_queue{controller="namespace"} 0.0' in text
    # One that cannot be is refused, and what runs goes on.
    found["spec"]["controllers"]["node"]["leakGracePeriod"] = "soon"
    stored.put(CONFIGURATION, json.dumps(found))
    wait(lambda: "the configuration is not taken up" in one.log.read_text())
    assert one.get("/metrics", port)[0] == 200
    assert one.stop() == 0


def test_history_older_than_a_period_is_dropped(
    stored: Etcd, start: Callable[..., Running]
) -> None:
    revision = stored.revision()
    one = start("compacting", COMPACTION_PERIOD="500ms", ENABLED_CONTROLLERS="policy")

    def dropped() -> bool:
        try:
            stored.ctl("get", "/calico/none", f"--rev={revision}")
        except RuntimeError as error:
            return "compacted" in str(error)
        return False

    wait(dropped, one.log.read_text)


def test_without_a_datastore_it_says_so_and_a_wrong_variable_ends_it(
    start: Callable[..., Running],
) -> None:
    away = start("away", ETCD_ENDPOINTS="http://127.0.0.1:1")
    wait(lambda: "127.0.0.1:1" in away.check("-r")[1], lambda: away.check("-r"))
    assert away.check("-l")[0] == 0
    wrong = start("wrong", ENABLED_CONTROLLERS="polcy")
    assert wrong.process.wait(HANG) == 1
    assert "ENABLED_CONTROLLERS" in wrong.log.read_text()
