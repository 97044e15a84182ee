"""Services in rules: a real felix, a real API server, packets.

client 10.65.0.1 and other .2 send to server .3; the API server is in the node's namespace, and
felix is a pod there to it: it has a service account and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.test_credentials import READ_SLICES
from tests.felix.stage import Stage, allow, both, conditions_of, make_stage
from tests.support.apiserver import ApiServer
from tests.support.patience import wait_for

PORT = 6443
SERVER, SERVER6 = "10.65.0.3", "fd65::3"
CLIENT_EGRESS: dict[str, Any] = {"selector": "role == 'client'", "types": ["Egress"]}


@dataclass
class Cluster:
    """The stage, and the API server that its felix is told of."""

    stage: Stage
    api: ApiServer
    token: str = ""

    @property
    def account(self) -> Path:
        """Where felix finds its service account."""
        return self.stage.world.folder / "run/secrets/kubernetes.io/serviceaccount"

    def log_in(self) -> None:
        """Mount felix's service account."""
        self.token = self.token or self.api.account("felix", READ_SLICES)
        self.api.mount_account(self.account, self.token)

    def to_web(self) -> None:
        """The client may reach the service `web`, and nothing else."""
        to = {"services": {"name": "web", "namespace": "default"}}
        self.stage.policy("case", [], **CLIENT_EGRESS, egress=[allow(destination=to)])

    def conditions(self) -> list[str]:
        return conditions_of(self.stage.world, "Kubernetes API")

    def restart_felix(self) -> None:
        world = self.stage.world
        world.stop_felix()
        world.start_felix()
        world.wait_ready()


@pytest.fixture(scope="module", params=["nftables", "nft"])
def built(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Felix knows where the API is from its start, as a pod does."""
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(PORT)}
    folder = tmp_path_factory.mktemp("world")
    with make_stage(folder, request.param, **environment) as stage:
        api = ApiServer(folder / "api", port=PORT)
        try:
            yield Cluster(stage, api.start())
        finally:
            api.stop()


@pytest.fixture
def cluster(built: Cluster) -> Iterator[Cluster]:
    """Running, logged in, without policies and slices of other tests."""
    if not built.api.running:
        built.api.start()
    built.log_in()
    for name in ("web", "web6", "more", "friends"):
        built.api.delete_slice(name)
    # What is of another service counts for nothing.
    built.api.slice("other", "other", [SERVER], [80, 81, 82])
    yield built
    built.stage.clear()


@pytest.mark.promise("F-74")
def test_a_policy_opens_exactly_the_endpoints_of_a_service(cluster: Cluster) -> None:
    stage, api = cluster.stage, cluster.api
    api.slice("web", "web", [SERVER], [80])
    api.slice("web6", "web", [SERVER6], [81, ("UDP", 53)])
    cluster.to_web()
    open_to = {"client 4 tcp 80", "client 6 tcp 81", "client 6 udp 53"}
    closed = {"client 4 tcp 81", "client 6 tcp 80", "client 4 udp 53", "client 4 ping"}
    # The policy is of the client alone.
    stage.comes_to({*open_to, "other 4 tcp 82"}, closed, within=15)
    assert not cluster.conditions()
    # It follows: another port, another slice, an endpoint that goes.
    api.slice("web", "web", [SERVER], [82])
    stage.comes_to({"client 4 tcp 82", "client 6 tcp 81"}, {"client 4 tcp 80", "client 4 ping"})
    api.slice("more", "web", [SERVER], [83], ready=False)
    stage.comes_to({"client 4 tcp 82", "client 4 tcp 83"}, {"client 4 tcp 80"})
    api.slice("web", "web", ["10.65.0.77"], [82])
    api.delete_slice("web6")
    now = {"client 4 tcp 83"}
    gone = {"client 4 tcp 82", "client 6 tcp 81"}
    stage.comes_to(now, gone)
    # While the API is away nothing changes, and that is said.
    api.kill()
    wait_for(lambda: any("what was known stays" in c for c in cluster.conditions()))
    stage.comes_to(now, gone)
    assert stage.world.ready()


@pytest.mark.promise("F-74")
def test_a_rule_takes_who_stands_behind_a_service_and_a_service_account(cluster: Cluster) -> None:
    stage, api = cluster.stage, cluster.api
    api.slice("friends", "friends", ["10.65.0.1"], [9999])
    source = {"services": {"name": "friends", "namespace": "default"}}
    stage.policy("case", [allow(source=source)])
    # As a source only addresses count, not ports; of one family, as the slice has it.
    stage.comes_to(
        {"client 4 tcp 80", "client 4 udp 53", "client 4 ping"},
        {"other 4 tcp 80", "client 6 tcp 80"},
        within=15,
    )
    world = stage.world
    world.put("profiles", "ksa.default.robot", "Profile", {"labelsToApply": {"pcsa.team": "blue"}})
    labels = {
        "role": "other",
        "projectcalico.org/namespace": "default",
        "projectcalico.org/serviceaccount": "robot",
    }
    profiles = ["kns.default", "ksa.default.robot"]
    try:
        world.put_endpoint("other", stage.other, labels=labels, profiles=profiles)
        for accounts in ({"names": ["robot"]}, {"selector": "team == 'blue'"}):
            stage.policy("case", [allow(source={"serviceAccounts": accounts})])
            stage.comes_to(both("other * tcp 80"), both("client * tcp 80"))
        stage.policy("case", [allow(source={"serviceAccounts": {"names": ["default"]}})])
        stage.comes_to(set(), both("other * tcp 80"))
    finally:
        world.put_endpoint("other", stage.other, labels={"role": "other"})
        world.delete("profiles", "ksa.default.robot")


@pytest.mark.parametrize("action", ["Allow", "Deny"])
def test_a_restart_while_the_api_is_away_is_closed_until_services_are_known(
    cluster: Cluster, action: str
) -> None:
    """An allow rule opens nothing meanwhile, and a deny rule closes more than the service."""
    stage, api = cluster.stage, cluster.api
    api.slice("web", "web", [SERVER], [80])
    to = {"services": {"name": "web", "namespace": "default"}}
    egress = [{"action": action, "destination": to}]
    passes, fails = "client 4 tcp 80", "client 4 tcp 81"
    if action == "Deny":
        egress.append(allow())
        passes, fails = fails, passes
    stage.policy("case", [], **CLIENT_EGRESS, egress=egress)
    stage.comes_to({passes, "other 4 tcp 80"}, {fails}, within=15)
    api.kill()
    cluster.restart_felix()
    assert not stage.through(passes, fails)
    wait_for(lambda: any("such rules stay closed" in c for c in cluster.conditions()))
    assert stage.through(passes, fails, "other 4 tcp 80") == {"other 4 tcp 80"}
    api.start()
    stage.comes_to({passes}, {fails}, within=30)
    wait_for(lambda: not cluster.conditions())


def test_a_restart_is_not_felt_where_the_api_answers(cluster: Cluster) -> None:
    stage, api = cluster.stage, cluster.api
    api.slice("web", "web", [SERVER], [80])
    cluster.to_web()
    stage.comes_to({"client 4 tcp 80"}, {"client 4 tcp 81"}, within=15)
    cluster.restart_felix()
    assert stage.through("client 4 tcp 80", "client 4 tcp 81") == {"client 4 tcp 80"}
    assert stage.world.rule_writes == 0


def test_without_credentials_rules_stay_closed_and_it_is_said_which_are_missing(
    cluster: Cluster,
) -> None:
    stage, api = cluster.stage, cluster.api
    api.slice("web", "web", [SERVER], [80])
    (cluster.account / "token").unlink()
    cluster.to_web()
    cluster.restart_felix()
    stage.comes_to({"other 4 tcp 80"}, {"client 4 tcp 80"}, within=15)
    said = wait_for(cluster.conditions)
    assert "serviceaccount/token" in said[0]
    assert "such rules stay closed" in said[0]
    cluster.log_in()
    stage.comes_to({"client 4 tcp 80"}, {"client 4 tcp 81"}, within=30)


def test_an_account_that_may_not_is_told(cluster: Cluster) -> None:
    stage, api = cluster.stage, cluster.api
    api.mount_account(cluster.account, api.account("nobody", []))
    cluster.to_web()
    cluster.restart_felix()
    try:
        wait_for(lambda: any("cannot list" in c for c in cluster.conditions()))
        stage.comes_to(set(), {"client 4 tcp 80"})
    finally:
        cluster.log_in()


def test_the_api_is_not_asked_while_no_rule_names_a_service(cluster: Cluster) -> None:
    world = cluster.stage.world
    cluster.restart_felix()
    assert world.process is not None

    def asks() -> bool:
        shown = world.node.run("ss", "-tnpH", f"dport = :{PORT}")
        return f"pid={world.process.pid}," in shown  # type: ignore[union-attr]

    cluster.stage.policy("case", [allow()])
    cluster.stage.comes_to({"client 4 tcp 80"}, set())
    assert not asks()
    cluster.to_web()
    wait_for(asks)
