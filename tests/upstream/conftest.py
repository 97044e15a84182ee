"""Four clusters, one at a time; each suite runs once on each of its clusters, whole.

Every spec of a suite is a test of its own, found by asking the suite itself. What is named by hand
(`./run test -m upstream`, a path in here) builds what is missing; other runs only look.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cri.containerd import unusable
from tests.k8s import images, product, traces
from tests.k8s.binaries import BuildError
from tests.k8s.releases import CURRENT
from tests.upstream import binaries, image
from tests.upstream.clusters import Home, home
from tests.upstream.suites import Result, Suite, has_sctp, possible

HERE = Path(__file__).parent
ROOM = HERE.parts[-1]
PLAIN = ("test_reports.py",)
"""Files that need no cluster."""
FULL_SIZE = "MUSLIN_FULL_SIZE" in os.environ
NOTHING = "not-built"
"""The only case of a suite that cannot be asked for its specs."""


def named(config: pytest.Config) -> bool:
    """Whether somebody asked for this room, and not only for what there is in it."""
    if not FULL_SIZE or config.option.collectonly:
        return False
    mark = re.search(rf"\b{ROOM}\b", config.option.markexpr or "") is not None
    return mark or any(f"tests/{ROOM}" in str(one) for one in config.args)


def lacking(config: pytest.Config) -> str:
    """Why no suite can run here; empty when they can. Builds, where that was asked for."""
    if os.geteuid() != 0:
        return "a cluster needs root"
    if not images.busybox():
        return "Debian's busybox-static is not installed"
    if why := unusable():
        return why
    if named(config):
        try:
            for one in (CURRENT, *binaries.ALL):
                one.build()
        except BuildError as error:
            print(error, file=sys.stderr)
    return CURRENT.missing() or binaries.missing()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mine = [item for item in items if item.path.parent == HERE and item.path.name not in PLAIN]
    for item in mine:
        item.add_marker(pytest.mark.upstream)
    if not FULL_SIZE:
        left = set(mine)
        items[:] = [item for item in items if item not in left]
        config.hook.pytest_deselected(items=mine)
        return
    reason = config.stash.get(_WHY, "")
    for item in mine:
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


_WHY = pytest.StashKey[str]()
_HOMES = pytest.StashKey["list[Home]"]()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every spec that a test's suite says it has."""
    if "spec" not in metafunc.fixturenames:
        return
    if not FULL_SIZE:
        metafunc.parametrize("spec", [NOTHING])  # which is left out
        return
    config = metafunc.config
    if _WHY not in config.stash:
        config.stash[_WHY] = lacking(config)
    suite: Suite = metafunc.module.SUITE
    specs = [NOTHING] if config.stash[_WHY] else suite.specs()
    # Left to itself, pytest numbers what has long names.
    metafunc.parametrize("spec", specs, ids=[re.sub(r" ?\[[^]]*\]", "", one) for one in specs])


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The images of the suites' pods."""
    folder = tmp_path_factory.mktemp("images")
    return [*images.build(folder), *image.build(folder, sctp=has_sctp())]


@pytest.fixture(scope="session")
def mine(tmp_path_factory: pytest.TempPathFactory) -> product.Images:
    """Our images, built from the tree as it is."""
    return product.build_images(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="package")
def upstream_home(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    mine: product.Images,
    archives: list[Path],
) -> Iterator[Home]:
    """A cluster, by its name in `HOMES`."""
    folder = tmp_path_factory.mktemp("cluster")
    with home(request.param, folder, mine, archives) as here:
        request.config.stash.setdefault(_HOMES, []).append(here)
        yield here
    left = traces.of(here.world.cluster)
    assert not any(left.values()), f"the cluster left something behind: {left}"


def chosen(request: pytest.FixtureRequest, name: str) -> list[str]:
    """The specs of a module that this run asks for on a cluster: fewer where some are named."""
    found = [
        one.callspec.params
        for one in request.session.items
        if isinstance(one, pytest.Function) and one.module is request.module
    ]
    asked = {one["spec"] for one in found if one["upstream_home"] == name and "spec" in one}
    suite: Suite = request.module.SUITE
    every = suite.specs()
    return [one for one in every if (one in asked or not asked) and possible(one)]


@pytest.fixture
def told(request: pytest.FixtureRequest, upstream_home: Home) -> dict[str, Result]:
    """What the module's suite reported of this cluster."""
    return upstream_home.run(request.module.SUITE, chosen(request, upstream_home.name))


@pytest.fixture
def told_of_all(request: pytest.FixtureRequest, upstream_home: Home) -> dict[str, Result]:
    """The same, where every spec is asked for: a run of some tells nothing of the rest."""
    suite: Suite = request.module.SUITE
    asked = chosen(request, upstream_home.name)
    if left := [one for one in suite.specs() if possible(one) and one not in asked]:
        pytest.skip(f"this run leaves out {len(left)} of the suite's specs")
    return upstream_home.run(suite, asked)


@pytest.fixture
def outcome(told: dict[str, Result], spec: str) -> Result:
    """What the module's suite reported of one spec."""
    if not possible(spec):
        pytest.skip("this kernel has no SCTP")
    return told.get(spec) or Result("not run", said="the suite's report does not hold it")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """A line for each suite on each cluster, and what this kernel could not try."""
    for here in config.stash.get(_HOMES, []):
        for suite, found in here.told.items():
            states = Counter(one.state for one in found.values())
            numbers = ", ".join(f"{states[word]} {word}" for word in ("passed", "failed"))
            spent = here.minutes.get(suite, 0.0)
            terminalreporter.write_line(f"{suite} on {here.name}: {numbers} in {spent:.1f} min")
            for name, one in found.items():
                for case in one.excepted:
                    terminalreporter.write_line(
                        f"  ended at SCTP, which is not here: {name}/{case}"
                    )
