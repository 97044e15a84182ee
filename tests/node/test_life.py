"""NODE-3: a name under which another machine lives is refused; honest starts go on.

A real etcd in a namespace; the other machine is its life signs, and the clock is the test's.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from libcalico import apiconfig
from libcalico.datastore import connect
from libcalico.datastore.interface import Put
from libcalico.datastore.leased_values import REWRITE
from libcalico.errors import MuslinError
from libcalico.model.keys import LifeSignKey
from libcalico.model.resources.status import LifeSign
from node import main
from node.identity import interfaces, life
from node.identity.life_sign import Signs
from node.start import modules, startup
from tests.node.world import RESOURCES, resource
from tests.support.etcd import Etcd
from tests.support.netns import Namespace
from tests.support.patience import wait_for

SIGN = "/calico/felix/v2/no-region/host/node1/machine"
THEIRS = LifeSign(
    time="2026-11-23T10:00:00Z", bootID="11111111-aaaa", network=4026531840, host="alpha",
    addresses=["10.99.1.77"], interval=life.INTERVAL,
)  # fmt: skip


class Clock:
    """Waits that take no time; `at` is called with the seconds that passed."""

    def __init__(self, at: Callable[[float], None] = lambda _: None) -> None:
        self.passed, self._at = 0.0, at

    async def wait(self, seconds: float) -> None:
        self.passed += seconds
        self._at(self.passed)


def give(etcd: Etcd, sign: LifeSign = THEIRS) -> None:
    """The other machine gives a sign."""
    etcd.put(SIGN, msgspec.json.encode(sign))


def register_other(etcd: Etcd, address: str = "10.99.1.77/24") -> None:
    """node1 is a machine with another address."""
    node = {
        "kind": "Node", "apiVersion": "projectcalico.org/v3", "metadata": {"name": "node1"},
        "spec": {"bgp": {"ipv4Address": address}},
    }  # fmt: skip
    etcd.put(RESOURCES + "nodes/node1", json.dumps(node))


def start(environ: dict[str, str], clock: Clock, **more: str) -> None:
    chosen = {"IP": "autodetect", "NO_DEFAULT_POOLS": "true"}
    asyncio.run(startup.start_up(environ | chosen | more, wait=clock.wait))


def address(etcd: Etcd) -> str:
    return str(resource(etcd, "nodes/node1")["spec"]["bgp"]["ipv4Address"])


@pytest.mark.parametrize("named", ["NODENAME", "a copied nodename file"])
def test_a_clone_and_a_typo_are_refused_and_both_machines_named(
    etcd_inside: Etcd, environ: dict[str, str], named: str
) -> None:
    """A clone has the machine id of the other one, and its nodename file; never its boot id."""
    register_other(etcd_inside)
    give(etcd_inside)
    if named != "NODENAME":
        file = Path(environ["CALICO_NODENAME_FILE"])
        file.parent.mkdir(parents=True)
        file.write_text("node1")
        del environ["NODENAME"]
    clock = Clock(lambda passed: give(etcd_inside) if passed == life.INTERVAL else None)
    with pytest.raises(MuslinError) as refused:
        start(environ, clock)
    told = str(refused.value)
    assert "Node(node1): another machine lives under this name" in told
    for part in ("host alpha", "10.99.1.77", "11111111-aaaa", "10.99.1.1", "NODENAME", "stop that"):
        assert part in told
    assert life.BOOT_ID.read_text().strip() in told
    assert address(etcd_inside) == "10.99.1.77/24"
    assert clock.passed == life.INTERVAL


def test_a_node_that_stands_is_not_doubted(etcd_inside: Etcd, environ: dict[str, str]) -> None:
    """A restart or reboot in 20 s with the same address: no wait, whatever signs say."""
    clock = Clock()
    start(environ, clock)
    give(etcd_inside)
    before = etcd_inside.revision()
    start(environ, clock)
    assert (etcd_inside.revision(), clock.passed) == (before, 0)


@pytest.mark.parametrize("what", ["DHCP while down", "installed anew", "the sign ended meanwhile"])
def test_a_machine_that_went_is_succeeded_within_one_interval(
    etcd_inside: Etcd, environ: dict[str, str], what: str
) -> None:
    """Its last sign still stands (its time to live) and moves no more; all else of it stays."""
    register_other(etcd_inside)
    node = resource(etcd_inside, "nodes/node1")
    node["metadata"]["labels"] = {"rack": "a"}
    etcd_inside.put(RESOURCES + "nodes/node1", json.dumps(node))
    etcd_inside.put("/calico/ipam/v2/handle/k8s.abc", '{"handleID":"k8s.abc","block":{}}')
    give(etcd_inside)
    if what == "installed anew":
        assert not Path(environ["CALICO_NODENAME_FILE"]).exists()
    ends = what == "the sign ended meanwhile"
    clock = Clock(lambda passed: etcd_inside.delete(SIGN) if ends and passed == 3 else None)
    start(environ, clock)
    assert address(etcd_inside) == "10.99.1.1/24"
    assert resource(etcd_inside, "nodes/node1")["metadata"]["labels"] == {"rack": "a"}
    assert etcd_inside.get("/calico/ipam/v2/handle/k8s.abc")
    assert clock.passed <= (3 if ends else life.INTERVAL + life.SLACK)


def test_the_same_machine_with_a_new_address_does_not_wait(
    etcd_inside: Etcd, environ: dict[str, str]
) -> None:
    """Its own signs, of the same boot: calico-node was started again after a renumbering."""
    register_other(etcd_inside)

    async def own_sign() -> None:
        store = await connect(apiconfig.from_environment(environ))
        await Signs(store, "node1").give()
        await store.close()

    asyncio.run(own_sign())
    clock = Clock()
    start(environ, clock)
    assert (address(etcd_inside), clock.passed) == ("10.99.1.1/24", 0)


KEPT = msgspec.structs.replace(THEIRS, interval=REWRITE, keptAlive=life.INTERVAL)


def register_kept(etcd: Etcd) -> str:
    """Another machine's node and its sign, under a lease, which is returned."""
    register_other(etcd)
    lease = etcd.ctl("lease", "grant", "600").decode().split()[1]
    etcd.ctl("put", f"--lease={lease}", SIGN, stdin=msgspec.json.encode(KEPT))
    return lease


def test_a_sign_that_is_only_kept_alive_is_of_a_machine_that_lives(
    etcd_inside: Etcd, environ: dict[str, str]
) -> None:
    """It is written once in five minutes, and judged within the interval of its lease."""
    lease = register_kept(etcd_inside)
    revision = etcd_inside.revision()

    def at(passed: float) -> None:
        if passed == 1:
            wait_for(lambda: seconds_left(etcd_inside, lease) < 597)
        elif passed >= life.INTERVAL:
            etcd_inside.ctl("lease", "keep-alive", "--once", lease)

    clock = Clock(at)
    with pytest.raises(MuslinError, match="host alpha"):
        start(environ, clock)
    assert clock.passed <= life.INTERVAL + life.SLACK
    assert etcd_inside.revision() == revision


def seconds_left(etcd: Etcd, lease: str) -> int:
    told = json.loads(etcd.ctl("lease", "timetolive", lease, "--write-out=json"))
    return int(told["ttl"])


def test_a_sign_that_is_kept_no_more_is_of_a_machine_that_went(
    etcd_inside: Etcd, environ: dict[str, str]
) -> None:
    register_kept(etcd_inside)
    clock = Clock()
    start(environ, clock)
    assert address(etcd_inside) == "10.99.1.1/24"
    assert clock.passed <= life.INTERVAL + life.SLACK


def test_a_reader_of_before_waits_for_the_next_write() -> None:
    """It knows nothing of leases: the interval that it reads is that of writes."""
    assert KEPT.interval == REWRITE
    assert life.of_sign(KEPT, "7", life.this_machine([])).interval == life.INTERVAL
    assert life.of_sign(THEIRS, "7", life.this_machine([])).interval == THEIRS.interval


def test_another_network_namespace_of_this_kernel_is_another_machine(
    etcd_inside: Etcd, environ: dict[str, str]
) -> None:
    register_other(etcd_inside)
    own = life.this_machine(interfaces.read())
    other = LifeSign(bootID=own.boot, network=own.network + 1, host="kind-2", interval=5)
    give(etcd_inside, other)
    clock = Clock(lambda _: give(etcd_inside, other))
    with pytest.raises(MuslinError, match="host kind-2"):
        start(environ, clock)


def test_agents_of_a_known_node_wait_while_its_name_is_doubted(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They start without a word from the datastore; never under another machine's name."""
    file = Path(environ["CALICO_NODENAME_FILE"])
    file.parent.mkdir(parents=True)
    file.write_text("node1")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    async def start_up(_environ: Any, *, doubt: Callable[[], None]) -> Any:
        doubt()
        await asyncio.sleep(0.3)
        raise MuslinError("another machine lives under this name")

    def supervisor(*_: Any) -> Any:
        raise AssertionError("agents were started")

    async def nothing(*_: Any) -> None:
        return None

    monkeypatch.setattr(main, "PATIENCE", 0.05)
    monkeypatch.setattr(main, "start_up", start_up)
    monkeypatch.setattr(main, "Supervisor", supervisor)
    monkeypatch.setattr(modules, "load", nothing)
    with pytest.raises(MuslinError, match="another machine lives"):
        asyncio.run(main._run(""))


@pytest.mark.asyncio
async def test_the_machine_that_has_the_name_hears_of_another_one(
    etcd_inside: Etcd, machine: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    warned: list[Any] = []
    async with etcd_inside.connect() as store:
        signs = Signs(store, "node1", lambda what, why: warned.append((what, why)))
        give(etcd_inside)
        await signs.give()
        assert not warned, "what start-up judged"
        entry = await store.get(LifeSignKey("node1"))
        assert entry is not None
        assert entry.value.addresses == ["10.99.1.1", "fd99:1::1"]
        await signs.give()
        assert not warned
        again = await store.get(LifeSignKey("node1"))
        assert again is not None
        assert again.revision == entry.revision, "its lease was kept alive, no more"
        with caplog.at_level(logging.ERROR):
            await store.commit([Put(LifeSignKey("node1"), THEIRS)])
            await signs.give()
        assert "another machine gives signs of life under the name node1: host alpha" in caplog.text
        assert [what for what, _ in warned] == ["node name"]
        entry = await store.get(LifeSignKey("node1"))
        assert entry is not None
        assert entry.value.addresses == ["10.99.1.1", "fd99:1::1"], "the other one sees ours, too"
        etcd_inside.delete(SIGN)
        await signs.give()
        assert etcd_inside.get(SIGN)
    leased = etcd_inside.ctl("lease", "list").decode()
    assert leased.splitlines()[0].startswith("found "), leased
