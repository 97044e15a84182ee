"""Felix is killed at 40 points, one after the other, while traffic is judged by its rules.

client, guest --.
other ----------+-- node -- server, visitor

The policy of `server` and `visitor` lets clients in and nobody else. In each round the world
changes (the endpoints of `guest` and `visitor` and a second policy come, or go) and felix is
killed on the way (tests/felix/killpoints.py); the next felix has to bring the change to its end.
Required in every round: no datagram from `client` to `server` is lost, none from `other` to
`server` or `visitor` arrives, and afterwards the kernel holds, line by line, what a felix makes
that finds the same datastore when it starts and has nothing to take away.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator

import pytest

from tests.felix.in_kernel import BACKENDS, mode
from tests.felix.kernel.test_restart import kernel_state
from tests.felix.killpoints import POINTS, Point, point
from tests.felix.probes import PORT, Probes
from tests.felix.world import Pod, World, make_world
from tests.support import stopping
from tests.support.patience import HANG, wait_for

FAST = {
    "nft": ("start-during-Tables.commit", "less-after-KernelSets.delete"),
    "nftables": ("more-after-RouteTable._write", "less-during-Table.write"),
}
ROUNDS = [
    (backend, each.name)
    for backend in BACKENDS
    for each in POINTS
    if "MUSLIN_FULL_SIZE" in os.environ or each.name in FAST[backend]
]


class Matrix:
    """The world, which of its two states the datastore is in, and what the kernel holds then."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pods: dict[str, Pod] = {}
        self.more = False
        self.states: dict[bool, list[str]] = {}

    def build(self) -> None:
        """Five pods, three of them with an endpoint for good, and the policy."""
        for number, name in enumerate(("client", "other", "server", "guest", "visitor"), 1):
            pod = self.world.wire(f"cali{number}{name}", f"10.65.0.{number}", f"fd65::{number}")
            self.pods[name] = pod
        for name in ("client", "other", "server"):
            self._endpoint(name, name)
        self._policy("case", 100, "role == 'client'")
        self.world.start_felix()
        self.world.wait_ready()

    def _endpoint(self, name: str, role: str) -> None:
        self.world.put_endpoint(name, self.pods[name], labels={"role": role})

    def _policy(self, name: str, order: int, source: str) -> None:
        rule = {
            "action": "Allow",
            "protocol": "UDP",
            "source": {"selector": source},
            "destination": {"ports": [PORT]},
        }
        spec = {"order": order, "selector": "role == 'server'", "types": ["Ingress"]}
        self.world.put(
            "globalnetworkpolicies", name, "GlobalNetworkPolicy", spec | {"ingress": [rule]}
        )

    def flip(self) -> None:
        """Things come, or go again."""
        self.more = not self.more
        if self.more:
            self._endpoint("visitor", "server")
            self._endpoint("guest", "client")
            self._policy("second", 50, "role == 'guest' || role == 'client'")
        else:
            self.world.delete("globalnetworkpolicies", "second")
            self.world.delete_endpoint("guest")
            self.world.delete_endpoint("visitor")

    def learn(self) -> None:
        """What a felix that nobody kills makes of both states.

        The larger one comes second and each has a felix of its own, so nothing is ever removed:
        sets are removed some time after the rules that used them, and a read in between would
        take a kernel for the wanted one that still holds them.
        """
        self.states[False] = in_kernel(self.world)
        self.world.stop_felix()
        self.flip()
        self.world.start_felix()
        self.world.wait_ready()
        self.states[True] = in_kernel(self.world)

    def settles(self) -> None:
        """The kernel holds exactly what belongs to the state."""
        wanted = self.states[self.more]
        try:
            wait_for(lambda: in_kernel(self.world) == wanted)
        except AssertionError:
            found = in_kernel(self.world)
            stale = "\n".join(line for line in found if line not in wanted)
            missing = "\n".join(line for line in wanted if line not in found)
            pytest.fail(f"stale:\n{stale}\nmissing:\n{missing}\n{self.world.log()[-2000:]}")

    def killed_at(self, chosen: Point) -> None:
        """Start the felix that dies at this point, have it die, start its successor."""
        world = self.world
        world.stop_felix(signal.SIGKILL)
        armed, reached = world.folder / "armed", world.folder / "reached"
        reached.unlink(missing_ok=True)
        world.program = ("tests.felix.killpoints", chosen.name, str(world.folder))
        if chosen.occasion == "start":
            self.flip()
            armed.touch()
            world.start_felix()
        else:
            world.start_felix()
            world.wait_ready()
            armed.touch()
            self.flip()
        assert world.process is not None
        try:
            assert world.process.wait(HANG) == -signal.SIGKILL, world.log()[-3000:]
        finally:
            armed.unlink()
            world.program = ("felix.main",)
        assert reached.read_text()
        world.start_felix()
        world.wait_ready()


def in_kernel(world: World) -> list[str]:
    """What felix could have left, in an order that does not depend on its history."""
    text = re.sub(r"elements = \{([^}]*)\}", _in_order, kernel_state(world), flags=re.S)
    return sorted(line.strip() for line in text.split("\n") if "cali" in line or "10" in line)


def _in_order(found: re.Match[str]) -> str:
    return "elements = " + ", ".join(sorted(found.group(1).replace("\n", " ").split(", ")))


@pytest.fixture(scope="module")
def matrix(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Matrix]:
    """The world on one back end, with both states learned."""
    with make_world(tmp_path_factory.mktemp("world")) as world:
        world.environment |= mode(request.param)
        world.etcd.start()
        world.write_cluster()
        made = Matrix(world)
        made.build()
        made.learn()
        yield made


@pytest.fixture(scope="module")
def probes(matrix: Matrix) -> Iterator[Probes]:
    """Traffic all the time."""
    pods = matrix.pods
    denied = [(pods["other"], pods["server"]), (pods["other"], pods["visitor"])]
    with Probes([(pods["client"], pods["server"])], denied).running() as running:
        yield running


def test_forty_points() -> None:
    assert len({each.name for each in POINTS}) == 40


@pytest.mark.parametrize("matrix", BACKENDS, indirect=True, scope="module")
def test_the_probes_hear_a_leak_and_miss_what_is_lost(matrix: Matrix, probes: Probes) -> None:
    world = matrix.world
    assert world.process is not None
    probes.clear()
    # A felix that is awake would take the rule away.
    stopping.pause(world.process.pid)
    world.kernel.accept_all("cali-tw-cali3server")
    wait_for(lambda: any(way.arrived for way in probes.denied), "a leak")
    with pytest.raises(AssertionError, match="leaked"):
        probes.judge()
    world.process.send_signal(signal.SIGCONT)
    matrix.settles()
    probes.clear()
    world.ip("route add blackhole 10.65.0.3/32 metric 1")
    (way,) = probes.allowed
    before = len(way.sent)
    wait_for(lambda: len(way.sent) > before + 10, "datagrams to nowhere")
    with pytest.raises(AssertionError, match="lost"):
        probes.judge(patience=3.0)
    world.ip("route del blackhole 10.65.0.3/32 metric 1")


@pytest.mark.parametrize(("matrix", "name"), ROUNDS, indirect=["matrix"], scope="module")
def test_killed_while_traffic_is_judged(matrix: Matrix, probes: Probes, name: str) -> None:
    chosen = point(name)
    if chosen.occasion != "start" and matrix.more is (chosen.occasion == "more"):
        matrix.flip()
        matrix.settles()
    probes.clear()
    matrix.killed_at(chosen)
    matrix.settles()
    probes.judge()
