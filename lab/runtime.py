"""The container runtime's half of CNI, done as containerd with libcni does it.

Measured on containerd 1.6 and libcni 1.1: first the loopback network, then the first file in
lexical order; each plugin gets its object with `name` and `cniVersion` merged in, from the second
on `prevResult`; `runtimeConfig` holds declared capabilities only; CNI_ARGS comes in random order;
the result is cached and handed to DEL; a failed ADD is followed by one DEL; a removed pod gets a
second DEL with empty CNI_NETNS and no result. Plugins run in the node's namespaces, as children of
a runtime on that node would. Tested in tests/lab/test_runtime.py.
"""

from __future__ import annotations

import base64
import json
import random
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.errors import LabError
from lab.machine import Machine
from libcalico.process import paths

Json = dict[str, Any]
ANNOTATIONS = "io.kubernetes.cri.pod-annotations"
CACHE = "/var/lib/cni/results"
LOOPBACK: Json = {
    "cniVersion": "0.3.1",
    "name": "cni-loopback",
    "plugins": [{"type": "loopback"}],
}
PLUGIN_TIMEOUT = 120.0


class PluginError(LabError):
    """A plugin failed. `answer` is the CNI error object it printed (empty when it printed none)."""

    def __init__(self, plugin: str, command: str, answer: Json, output: str) -> None:
        self.answer = answer
        said = answer.get("msg") or output.strip()[-400:] or "no output"
        details = f"; {answer['details']}" if answer.get("details") else ""
        code = f" (code {answer['code']})" if "code" in answer else ""
        super().__init__(f"plugin {plugin} failed at {command}{code}: {said}{details}")


@dataclass(frozen=True)
class Sandbox:
    """The facts that the runtime has of a pod before its network."""

    container_id: str
    netns: str
    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    named_ports: Mapping[str, str] = field(default_factory=dict)

    @property
    def cni_args(self) -> list[tuple[str, str]]:
        """The set that containerd passes."""
        return [
            ("IgnoreUnknown", "1"),
            ("K8S_POD_NAMESPACE", self.namespace),
            ("K8S_POD_NAME", self.name),
            ("K8S_POD_INFRA_CONTAINER_ID", self.container_id),
            ("K8S_POD_UID", self.uid),
        ]


@dataclass(frozen=True)
class Answer:
    """One plugin call: what it printed and how long it took (milliseconds)."""

    plugin: str
    result: Json | None
    milliseconds: float


def plugin_input(network: Json, plugin: Json, sandbox: Sandbox, previous: Json | None) -> Json:
    """The stdin of one plugin. Pure."""
    given = {"name": network["name"], "cniVersion": network.get("cniVersion", "0.1.0")}
    config: Json = {**plugin, **given}
    declared = plugin.get("capabilities") or {}
    if declared.get(ANNOTATIONS) and sandbox.annotations:
        config["runtimeConfig"] = {ANNOTATIONS: dict(sandbox.annotations)}
    args: Json = {}
    if sandbox.labels:
        args["labels"] = [{"key": key, "value": value} for key, value in sandbox.labels.items()]
    if sandbox.named_ports:
        args["ports"] = [named_port(name, port) for name, port in sandbox.named_ports.items()]
    if args:
        config["args"] = {**(plugin.get("args") or {}), "cni": args}
    if previous is not None:
        config["prevResult"] = previous
    return config


def named_port(name: str, port: str) -> Json:
    """A container port as Kubernetes has it, from a name and `tcp:80`. Pure."""
    protocol, _, number = port.partition(":")
    return {"name": name, "protocol": protocol.upper(), "port": int(number)}


def environment(command: str, sandbox: Sandbox, interface: str, netns: str) -> dict[str, str]:
    """The CNI_* environment of one call; CNI_ARGS in random order as containerd's map gives it."""
    pairs = sandbox.cni_args
    random.shuffle(pairs)
    return {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": sandbox.container_id,
        "CNI_NETNS": netns,
        "CNI_IFNAME": interface,
        "CNI_ARGS": ";".join(f"{key}={value}" for key, value in pairs),
        "CNI_PATH": str(paths.CNI_BIN),
    }


@dataclass(frozen=True)
class Runtime:
    """The runtime of one node."""

    machine: Machine

    def network(self) -> Json:
        """The network of the first file in lexical order; LabError when there is none."""
        directory = self.machine.path(paths.CNI_NET)
        for path in sorted(directory.iterdir()):
            if path.suffix not in (".conflist", ".conf", ".json"):
                continue
            try:
                config: Json = json.loads(path.read_text())
            except ValueError as error:
                raise LabError(f"{paths.CNI_NET}/{path.name} is not JSON: {error}") from error
            if "plugins" not in config:
                config = {**config, "plugins": [config]}
            if not config.get("name") or not config["plugins"]:
                raise LabError(f"{paths.CNI_NET}/{path.name}: a network needs a name and plugins")
            return config
        raise LabError(f"{self.machine.name}: cni plugin not initialized: {paths.CNI_NET} is empty")

    def call(
        self, plugin: str, config: Json, environment: Mapping[str, str], *, timeout: float
    ) -> Answer:
        """Run one plugin; PluginError when it fails or answers no JSON."""
        program = f"{paths.CNI_BIN}/{plugin}"
        if not self.machine.path(program).exists() and not self.machine.path(program).is_symlink():
            raise LabError(f'failed to find plugin "{plugin}" in path [{paths.CNI_BIN}]')
        begun = time.perf_counter()
        done = self.machine.run(
            [program],
            stdin=json.dumps(config).encode(),
            environment=environment,
            check=False,
            timeout=timeout,
        )
        took = (time.perf_counter() - begun) * 1000
        return Answer(plugin, judge(done, plugin, environment["CNI_COMMAND"]), took)

    def add(
        self,
        network: Json,
        sandbox: Sandbox,
        interface: str = "eth0",
        *,
        timeout: float = PLUGIN_TIMEOUT,
    ) -> list[Answer]:
        """ADD through the whole list; on failure PluginError (the caller runs `delete`, once)."""
        answers: list[Answer] = []
        previous: Json | None = None
        settings = environment("ADD", sandbox, interface, sandbox.netns)
        for plugin in network["plugins"]:
            config = plugin_input(network, plugin, sandbox, previous)
            answer = self.call(plugin["type"], config, settings, timeout=timeout)
            answers.append(answer)
            previous = answer.result
        self._cache(network, sandbox, interface, previous)
        return answers

    def delete(
        self,
        network: Json,
        sandbox: Sandbox,
        interface: str = "eth0",
        *,
        netns: str | None = None,
        timeout: float = PLUGIN_TIMEOUT,
    ) -> list[Answer]:
        """DEL through the list in reverse, with the cached result where there is one."""
        previous = self._cached(network, sandbox, interface)
        place = sandbox.netns if netns is None else netns
        settings = environment("DEL", sandbox, interface, place)
        answers = []
        for plugin in reversed(network["plugins"]):
            config = plugin_input(network, plugin, sandbox, previous)
            answers.append(self.call(plugin["type"], config, settings, timeout=timeout))
        self.machine.path(cache_path(network, sandbox, interface)).unlink(missing_ok=True)
        return answers

    def _cache(self, network: Json, sandbox: Sandbox, interface: str, result: Json | None) -> None:
        path = self.machine.path(cache_path(network, sandbox, interface))
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        entry = {
            "kind": "cniCacheV1",
            "containerId": sandbox.container_id,
            "config": base64.b64encode(json.dumps(network).encode()).decode(),
            "ifName": interface,
            "networkName": network["name"],
            "cniArgs": [list(pair) for pair in sandbox.cni_args],
            "result": result,
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(entry))

    def _cached(self, network: Json, sandbox: Sandbox, interface: str) -> Json | None:
        try:
            text = self.machine.path(cache_path(network, sandbox, interface)).read_text()
        except FileNotFoundError:
            return None
        result: Json | None = json.loads(text)["result"]
        return result


def cache_path(network: Json, sandbox: Sandbox, interface: str) -> str:
    """The path at which libcni keeps the result of an ADD."""
    return f"{CACHE}/{network['name']}-{sandbox.container_id}-{interface}"


def judge(done: subprocess.CompletedProcess[str], plugin: str, command: str) -> Json | None:
    """The result that a plugin printed (None for an empty answer), or PluginError. Pure."""
    text = done.stdout.strip()
    try:
        parsed = json.loads(text) if text else None
    except ValueError as error:
        raise PluginError(plugin, command, {}, f"{text[:400]} {done.stderr[-400:]}") from error
    if done.returncode:
        answer = parsed if isinstance(parsed, dict) else {}
        raise PluginError(plugin, command, answer, done.stderr)
    return parsed if isinstance(parsed, dict) else None
