"""What the checks of one file share: calls of one build with the daemon up and away, a node.

The node (a namespace with etcd, and the daemon in a process) is made when a check first asks
for it, and serves all checks of the file: a check leaves it as it found it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import gc
import inspect
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from libcalico.datastore.interface import Put
from libcalico.model import ResourceKey
from libcalico.model.codec import decode_value
from tests.cni import executable
from tests.cni.executable import BUILDS, FULL_SIZE, Build, Done, accept, away_from_daemon, call
from tests.cni.world import World, node_world, pod_namespace, result_of, start_felix
from tests.cni_conformance.away import AS_UP, Beside
from tests.support.netns import Namespace

REFERENCE = Path("/usr/lib/cni")
AWAY_TOO = bool(FULL_SIZE or os.environ.get("MUSLIN_EVERY_ITEM"))
"""Make every call of a check with the daemon away, too (tests/cni_conformance/away.py)."""
_SHOWN: dict[tuple[str, str, str], tuple[str | None, set[str]]] = {}


class Stage:
    """One file's."""

    def __init__(self, folder: Path, felix: Mapping[str, str] | None = None) -> None:
        self._felix = felix
        self.build: Build = BUILDS[0]
        self.folder = folder
        self._stack = ExitStack()
        self._daemon: dict[tuple[object, str], set[str]] = {}
        self._used: set[str] = set()
        self._ended: dict[tuple[object, str], str | None] = {}
        self._node: World | None = None
        self.request: pytest.FixtureRequest

    def close(self) -> None:
        """End what was started."""
        self._stack.close()

    def once(self, check: Callable[[Stage], None]) -> None:
        """Run a check, or tell again how it ended for this build."""
        key = (check, self.build.label)
        if key not in self._ended:
            self._used = set()
            try:
                check(self)
                self._ended[key] = None
            except Exception as error:
                self._ended[key] = _told(error)
            self._daemon[key] = self._used
        self.request.node.user_properties += [("daemon", one) for one in self._daemon[key]]
        if found := self._ended[key]:
            pytest.fail(found, pytrace=False)

    # Calls without a node

    def fresh(self) -> Path:
        """A new empty folder."""
        return Path(tempfile.mkdtemp(dir=self.folder))

    @functools.cached_property
    def accepting(self) -> str:
        """The socket of a daemon that finds everything good."""
        path = self.fresh() / "cni.sock"
        self._stack.enter_context(executable.Daemon(path, accept))
        return str(path)

    def away(self, env: Mapping[str, str | None] | None = None) -> dict[str, str]:
        """An environment whose daemon is away; None unsets."""
        self._used.add("down: asked")
        return self._environment(env)

    def _environment(self, env: Mapping[str, str | None] | None) -> dict[str, str]:
        merged = away_from_daemon(self.fresh()) | dict(env or {})
        return {key: value for key, value in merged.items() if value is not None}

    def up(self, env: Mapping[str, str | None] | None = None) -> dict[str, str]:
        """The same with a daemon that accepts."""
        self._used.add("up")
        return self._environment(env) | {"CNI_CALICO_SOCKET": self.accepting}

    def refused(self, env: Mapping[str, str | None], stdin: Any, name: str = "calico") -> Any:
        """The error of a call, byte for byte the same with the daemon up and away."""
        return self.answered(env, stdin, name).error

    def answered(self, env: Mapping[str, str | None], stdin: Any, name: str = "calico") -> Done:
        """An answer that needs no daemon: the same with the daemon up and away."""
        done = call(self.build.plugin(name), self.up(env), stdin)
        assert call(self.build.plugin(name), self._environment(env), stdin) == done
        self._used.add(f"down: {AS_UP}")
        return done

    # A node

    @property
    def node(self) -> World:
        """The node of this file, with its daemon serving."""
        self._used.add("up")
        if self._node is None:
            self._node = self._stack.enter_context(node_world(self.fresh()))
            socket = None
            if self._felix is not None:
                felix = start_felix(self._node, **self._felix)
                self._stack.callback(felix.process.wait)
                self._stack.callback(felix.process.kill)
                socket = felix.socket
            self._stack.enter_context(_serving(self._node, socket))
        self._node.build, self._node.beside = self.build, self._beside(self._used)
        return self._node

    def _beside(self, used: set[str]) -> Beside | None:
        return Beside(self.build, used) if AWAY_TOO else None

    def pod(self) -> AbstractContextManager[Namespace]:
        """A container's namespace."""
        return pod_namespace("cc")

    def cni(self, command: str, pod: Namespace | None, name: str = "web-1", **options: Any) -> Done:
        """One call on the node."""
        return asyncio.run(self.node.cni(command, pod, name, **options))

    def add(self, pod: Namespace, name: str = "web-1", **options: Any) -> dict[str, Any]:
        """A successful ADD's result."""
        return result_of(self.cni("ADD", pod, name, **options))

    def error(self, command: str, pod: Namespace | None, name: str = "web-1", **more: Any) -> Any:
        """A failing call's error object."""
        return self.cni(command, pod, name, **more).error

    def delete(self, pod: Namespace | None, name: str = "web-1", **options: Any) -> None:
        """A successful DEL: silent."""
        done = self.cni("DEL", pod, name, **options)
        assert (done.status, done.stdout) == (0, b""), done

    @contextmanager
    def added(
        self, name: str = "web-1", **options: Any
    ) -> Iterator[tuple[Namespace, dict[str, Any]]]:
        """A pod with its result, deleted and found clean at the end."""
        with self.pod() as pod:
            try:
                yield pod, self.add(pod, name, **options)
            finally:
                options.get("config", {}).pop("prevResult", None)
                done = self.cni("DEL", pod, name, **options)
            assert done.status == 0, done
            self.node.assert_clean()

    def put(self, kind: str, name: str, spec: Mapping[str, Any]) -> None:
        """Write a cluster-wide resource."""
        tree = {"apiVersion": "projectcalico.org/v3", "kind": kind, "metadata": {"name": name}}
        key = ResourceKey(kind, name)
        value = decode_value(key, json.dumps(tree | {"spec": spec}).encode())

        async def write() -> None:
            async with self.node.etcd.connect() as store:
                await store.commit([Put(key, value)])

        asyncio.run(write())
        gc.collect()

    def remove(self, plural: str, name: str) -> None:
        """Remove a cluster-wide resource."""
        self.node.etcd.ctl("del", f"/calico/resources/v3/projectcalico.org/{plural}/{name}")

    # What tests/cni shows

    def show(self, test: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
        """Run a test of tests/cni with a node of its own, once a build."""
        self._used.add("up")
        key = (f"{test.__module__}.{test.__name__}", self.build.label, repr(sorted(arguments)))
        key = (key[0], key[1], key[2] + repr(list(arguments.values())))
        if key not in _SHOWN:
            used: set[str] = set()
            try:
                self._run(test, arguments, used)
                _SHOWN[key] = None, used
            except Exception as error:
                _SHOWN[key] = _told(error), used
            gc.collect()
        found, used = _SHOWN[key]
        self._used |= used
        if found:
            pytest.fail(f"{test.__name__}:\n{found}", pytrace=False)

    def _run(self, test: Callable[..., Any], arguments: Mapping[str, Any], used: set[str]) -> None:
        wanted = inspect.signature(test).parameters
        given: dict[str, Any] = dict(arguments)
        with ExitStack() as stack:
            patch = pytest.MonkeyPatch()
            stack.callback(patch.undo)
            folder = self.fresh()
            given |= {"exe": self.build, "tmp_path": folder, "monkeypatch": patch}
            if "away" in wanted:
                given["away"] = away_from_daemon(folder)
                used.add("down: asked")
            if "caplog" in wanted:
                given["caplog"] = self.request.getfixturevalue("caplog")
            if "env" in wanted and "env" not in arguments:
                given["env"] = _fixture(inspect.getmodule(test), "env")(folder)
            if "node" in wanted:
                world = stack.enter_context(node_world(folder))
                world.build, world.beside = self.build, self._beside(used)
                if "PLUGINS" in vars(inspect.getmodule(test)):
                    world.plugins = str(REFERENCE)
                given["node"] = world
            if "pod" in wanted:
                given["pod"] = stack.enter_context(self.pod())
            asyncio.run(_finish(test, wanted, given))


def _told(error: Exception) -> str:
    """A failure as text: its frames would keep connections open, and with them a namespace."""
    return "".join(traceback.format_exception(error))


async def _finish(
    test: Callable[..., Any], wanted: Mapping[str, Any], given: dict[str, Any]
) -> None:
    async with AsyncExitStack() as stack:
        if "daemon" in wanted:
            given["daemon"] = await stack.enter_async_context(given["node"].daemon())
        done = test(**{name: given[name] for name in wanted})
        if inspect.iscoroutine(done):
            await done


def _fixture(module: Any, name: str) -> Callable[[Path], Any]:
    """The function of a fixture that needs a folder only."""
    fixture: Any = getattr(module, name)
    function: Callable[[Path], Any] = (
        getattr(fixture, "_fixture_function", None) or fixture.__wrapped__
    )
    return function


@contextmanager
def _serving(node: World, felix: Path | None = None) -> Iterator[None]:
    """The daemon in a process of its own.

    In ours its connections would bind later ones, of other nodes, to this node's namespace.
    """
    settings = {
        key: str(value) if isinstance(value, Path) else value
        for key, value in dataclasses.asdict(node.settings).items()
    }
    if felix is not None:
        settings["felix_socket"] = str(felix)
    settings |= {"endpoint_status": str(node.folder / "endpoint-status")}
    if felix is None:
        settings |= {"check_seconds": 1.0}  # nobody repairs what is missing

    async def prepare() -> None:
        async with node.etcd.connect() as store:
            await node.prepare(store)

    asyncio.run(prepare())
    gc.collect()
    with (node.folder / "daemon.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.cni.mortal", json.dumps(settings), node.etcd.endpoint,
             "never"],
            stdout=subprocess.PIPE, stderr=log, cwd=Path(__file__).parents[2],
            env={"PATH": os.environ["PATH"]},
        )  # fmt: skip
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n", (node.folder / "daemon.log").read_text()
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def decoded(done: Done) -> Any:
    """The JSON on stdout."""
    return json.loads(done.stdout)
