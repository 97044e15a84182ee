"""Fixtures that all rooms share: real servers, started once, clean before every test."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings

from linux import netns
from tests.spread import pytest_xdist_make_scheduler  # noqa: F401
from tests.support.etcd import Etcd
from tests.support.logging_state import logging_restored
from tests.support.patience import wait_for
from tests.turns import left_out

if TYPE_CHECKING:
    from tests.netpol.world import World

# On a busy machine a short command is a long one: what it says must not depend on that.
os.environ["MUSLIN_PROGRESS"] = "never"

# Where CI is set, Hypothesis starts from a profile that takes the same examples each time; `./run
# test` prints the seed of the run instead, so that a failure can be repeated (tests/tiers.py).
# Whether the drawing of examples is slow is a matter of the machine, and how many of them a filter
# lets pass one of the seed.
_of_no_test = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)
_new_each_time = settings(
    deadline=None, derandomize=False, print_blob=True, suppress_health_check=_of_no_test
)
settings.register_profile("fast", _new_each_time, max_examples=30)
# A mutant is to be noticed, not to be understood: the smallest example is not looked for.
_unshrunk = settings(_new_each_time, phases=[Phase.explicit, Phase.generate], database=None)
settings.register_profile("mutants", _unshrunk, max_examples=30)
settings.register_profile("full", _new_each_time, max_examples=1000)
# What is named by hand, and every tier of `./run test --full`, runs at full size (tests/tiers.py).
settings.load_profile("full" if os.environ.get("MUSLIN_FULL_SIZE") else "fast")

_home = netns.current()

# A run in the background of a script has SIGINT ignored, which every process that the tests start
# would inherit, and could then not be interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def set_aside() -> None:
    """What there is stays: no collection of garbage visits it again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays: no collector of garbage walks it, then or in a test.

    `gc.collect`, which many worlds call, took 0.3 s for it.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        set_aside()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The fast tier asks one back end in turns, after the rooms have chosen (tests/turns.py)."""
    if os.environ.get("MUSLIN_FULL_SIZE"):
        return
    others = left_out([item.nodeid for item in items])
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in others])
    items[:] = [item for item in items if item.nodeid not in others]


def grpc_elsewhere() -> list[str]:
    """Threads of gRPC's that live in another network namespace than this process began in."""
    found = []
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it ends
            name = (thread / "comm").read_text().strip()
            if name.startswith(("event_engine", "lifeguard", "grpc_")):
                space = os.open(thread / "ns/net", os.O_RDONLY)
                try:
                    if not netns.same(space, _home):
                        found.append(name)
                finally:
                    os.close(space)
    return found


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """No room leaves the thread in a namespace of its own: the next would run in there unseen.

    Nor any thread of gRPC's, which a later file's connections would be made by.
    """
    yield
    if (nextitem is None or nextitem.path != item.path) and grpc_elsewhere():

        def ended() -> bool:
            # A channel ends with what refers to it: errors and their frames do so in circles.
            gc.collect()
            return not grpc_elsewhere()

        wait_for(ended, lambda: f"{item.path.name}: {grpc_elsewhere()}", pause=0.5)
    if nextitem is not None and nextitem.path != item.path and not gc.get_freeze_count():
        set_aside()  # a test has thawed what it had frozen, and with it the rest
    if nextitem is not None and nextitem.path.parent == item.path.parent:
        return
    here = netns.current()
    strayed = not netns.same(here, _home)
    os.close(here)
    if strayed:
        netns.enter(_home)
        raise AssertionError(f"{item.path.parent.name} left its thread in another namespace")


@pytest.fixture(autouse=True)
def _logging_restored() -> Iterator[None]:
    with logging_restored():
        yield


@pytest.fixture(scope="session")
def _session_etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    server = Etcd(tmp_path_factory.mktemp("etcd")).start()
    yield server
    server.stop()


@pytest.fixture
def etcd(_session_etcd: Etcd) -> Etcd:
    """The session's etcd, empty. Do not stop it: take `private_etcd` for that."""
    _session_etcd.delete("")
    return _session_etcd


@pytest.fixture
def private_etcd(tmp_path: Path) -> Iterator[Etcd]:
    """An etcd of this test's own, to kill, pause, restart and compact."""
    server = Etcd(tmp_path / "etcd").start()
    yield server
    server.stop()


@pytest.fixture
def make_etcd(tmp_path: Path) -> Iterator[Callable[..., Etcd]]:
    """Makes further servers, not started: `make_etcd("name", extra_flags)`."""
    made: list[Etcd] = []

    def make(name: str, extra: Sequence[str] = (), scheme: str = "http") -> Etcd:
        made.append(Etcd(tmp_path / name, extra, scheme))
        return made[-1]

    yield make
    for server in made:
        server.stop()


@pytest.fixture(scope="session")
def nine_pods() -> Iterator[World]:
    """The lab of tests/netpol, which tests/cyclonus uses too."""
    from tests.netpol.world import world

    with world(f"netpol{os.getpid()}") as made:
        yield made
