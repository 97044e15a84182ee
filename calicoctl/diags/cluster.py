"""`cluster diags`: the datastore's objects, and what kubectl can tell where there is one.

Source: docs/reference/data-model.md#calicoctls-commands. Tested in `tests/calicoctl/test_diags.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from calicoctl import versions
from calicoctl.diags import files, programs, store
from calicoctl.diags.archive import Archive, Form, stamp
from calicoctl.diags.redact import Redactor
from calicoctl.session import Options
from libcalico import apiconfig
from libcalico.errors import MuslinError
from libcalico.process.progress import Progress

NAMESPACES = ("kube-system", "calico-system", "calico-apiserver", "tigera-operator")
COMPONENTS = (
    "calico-node",
    "calico-kube-controllers",
    "calico-typha",
    "calico-apiserver",
    "tigera-operator",
    "kube-proxy",
)
"""Values of the label `k8s-app` whose pods' logs are of interest."""
LISTINGS: dict[str, tuple[str, ...]] = {
    "kubernetes/version.json": ("version", "-o", "json"),
    "kubernetes/nodes.json": ("get", "nodes", "-o", "json"),
    "kubernetes/pods.txt": ("get", "pods", "-A", "-o", "wide"),
    "kubernetes/services.txt": ("get", "services", "-A", "-o", "wide"),
    "kubernetes/networkpolicies.json": ("get", "networkpolicies", "-A", "-o", "json"),
    "kubernetes/events.txt": ("get", "events", "-A", "--sort-by=.lastTimestamp"),
    "kubernetes/crds.txt": ("get", "customresourcedefinitions"),
}
PER_NAMESPACE = ("pods", "daemonsets", "deployments", "configmaps", "serviceaccounts")
NO_KUBECTL = "kubectl is not installed: only the datastore's objects are in the archive"
LIMIT = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagsSettings:
    """The flags. `since` as kubectl takes it (`2h30m`, empty: everything)."""

    options: Options
    since: str = ""
    max_logs: int = 5
    max_parallelism: int = 10
    focus_nodes: tuple[str, ...] = ()
    keep_folder: bool = False
    output: Path | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """The archive, the folder if it was kept, and the notes that are told aloud."""

    archive: Archive
    folder: Path | None
    notes: list[str]


class PodMetadata(TypedDict, total=False):
    """What is read of a pod's metadata."""

    namespace: str
    name: str
    labels: dict[str, str] | None


class PodSpec(TypedDict, total=False):
    """What is read of a pod's spec."""

    nodeName: str


class Pod(TypedDict, total=False):
    """A pod as kubectl prints it."""

    metadata: PodMetadata
    spec: PodSpec | None


Ask = Callable[..., Awaitable[programs.Output]]


def chosen_pods(pods: Sequence[Pod], settings: DiagsSettings) -> list[tuple[str, str]]:
    """(namespace, name) of the pods whose logs are taken: `max_logs` of each component, those on
    the nodes in focus first."""
    chosen: list[tuple[str, str]] = []
    for component in COMPONENTS:
        mine = [one for one in pods if _component(one) == component]
        mine.sort(key=lambda one: (_place(one, settings.focus_nodes), one["metadata"]["name"]))
        chosen += [
            (one["metadata"]["namespace"], one["metadata"]["name"])
            for one in mine[: settings.max_logs]
        ]
    return chosen


def _component(pod: Pod) -> str:
    return str((pod["metadata"].get("labels") or {}).get("k8s-app", ""))


def _place(pod: Pod, focus: Sequence[str]) -> int:
    node = (pod.get("spec") or {}).get("nodeName", "")
    return focus.index(node) if node in focus else len(focus)


async def collect(settings: DiagsSettings, progress: Progress) -> Done:
    """Write the archive. Raises `MuslinError` when it cannot be written or nothing was found."""
    notes: list[str] = []
    config, why = _configuration(settings.options)
    kubeconfigs = [config.kubeconfig if config else "", os.environ.get("KUBECONFIG", "")]
    merged = [part for one in kubeconfigs for part in one.split(os.pathsep)]
    documents = [Path(one) for one in (settings.options.config, *merged) if one]
    home = Path.home() / ".kube" / "config"
    redactor = Redactor(files.secrets(config, [dict(os.environ)], [*documents, home]))
    name = f"calico-diags-{stamp()}"
    base = Path(tempfile.mkdtemp(prefix="calico-"))
    folder = base / name if settings.keep_folder else None
    path = settings.output or base / f"{name}.tar.gz"
    try:
        archive = Archive(path, name, redactor, folder)
    except OSError as error:
        raise MuslinError(f"{path} cannot be written: {error.strerror}") from None
    try:
        if programs.find("kubectl") is None:
            archive.missing("kubernetes", NO_KUBECTL)
            notes.append(NO_KUBECTL)
        else:
            notes += await _kubernetes(archive, settings, config, progress)
        if config is None:
            archive.missing("datastore", why)
            answered = False
        elif config.datastore_type != apiconfig.ETCD:
            why = "no etcd is configured: its objects are read through kubectl only"
            archive.missing("datastore", why)
            answered = False
        else:
            progress.begin("reading the datastore")
            answered = await store.add(archive, config)
            why = next((text for _, text in archive.errors()[::-1]), "") if not answered else ""
        if not answered:
            notes.append(f"the datastore is not in it: {why}")
        archive.finish({"version": versions.CALICO, "time": stamp(), "notes": notes})
    except BaseException:
        archive.abandon()
        raise
    if settings.output is not None and folder is None:
        base.rmdir()
    return Done(archive, folder, notes)


def _configuration(options: Options) -> tuple[apiconfig.DatastoreConfig | None, str]:
    try:
        return apiconfig.load(options.config, os.environ), ""
    except MuslinError as error:
        return None, str(error)


async def _kubernetes(
    archive: Archive,
    settings: DiagsSettings,
    config: apiconfig.DatastoreConfig | None,
    progress: Progress,
) -> list[str]:
    """What kubectl tells; returns what there is to note."""
    head = ["kubectl"]
    # Several files kubectl takes from its environment alone.
    if config is not None and config.kubeconfig and os.pathsep not in config.kubeconfig:
        head.append(f"--kubeconfig={config.kubeconfig}")
    if settings.options.context:
        head.append(f"--context={settings.options.context}")
    turn = asyncio.Semaphore(settings.max_parallelism)

    async def ask(*words: str) -> programs.Output:
        async with turn:
            output = await programs.run([*head, *words], LIMIT)
        progress.done += 1
        return output

    first = await ask("version", "-o", "json")
    if first.error:
        archive.missing("kubernetes", first.error, "kubectl version")
        return [f"kubectl reaches no cluster: {archive.redactor.text(first.error)}"]
    commands = dict(LISTINGS)
    for namespace in NAMESPACES:
        for kind in PER_NAMESPACE:
            name = f"kubernetes/{namespace}/{kind}.json"
            commands[name] = ("get", kind, "-n", namespace, "-o", "json")
    resources = await ask("api-resources", "--api-group=crd.projectcalico.org", "-o", "name")
    for resource in resources.text.split():
        commands[f"kubernetes/crds/{resource}.json"] = ("get", resource, "-A", "-o", "json")
    progress.begin("asking kubectl", len(commands))
    outputs = await asyncio.gather(*(ask(*words) for words in commands.values()))
    for (name, words), output in zip(commands.items(), outputs, strict=True):
        _put(archive, name, output, f"kubectl {' '.join(words)}")
    await _logs(archive, settings, ask, progress)
    return []


async def _logs(archive: Archive, settings: DiagsSettings, ask: Ask, progress: Progress) -> None:
    progress.begin("reading the pods' logs")
    listed = await ask(
        "get", "pods", "-A", "-l", f"k8s-app in ({','.join(COMPONENTS)})", "-o", "json"
    )
    try:
        pods = json.loads(listed.text)["items"]
    except (ValueError, KeyError, TypeError):
        archive.missing("logs", listed.error or "kubectl's answer is no list of pods")
        return
    commands: dict[str, list[str]] = {}
    for namespace, name in chosen_pods(pods, settings):
        words = ["logs", "-n", namespace, name, "--all-containers", "--prefix", "--timestamps"]
        if settings.since:
            words.append(f"--since={settings.since}")
        commands[f"logs/{namespace}/{name}.log"] = words
        commands[f"logs/{namespace}/{name}.previous.log"] = [*words, "--previous"]
    progress.done, progress.total = 0, len(commands)
    outputs = await asyncio.gather(*(ask(*words) for words in commands.values()))
    for (name, words), output in zip(commands.items(), outputs, strict=True):
        _put(archive, name, output, f"kubectl {' '.join(words)}")


def _put(archive: Archive, name: str, output: programs.Output, source: str) -> None:
    if output.error and not output.text:
        archive.missing(name, output.error, source)
        return
    form: Form = "document" if name.endswith(".json") else "text"
    archive.add(name, output.text, form, source)


def run(settings: DiagsSettings) -> None:
    """Collect, and say what is missing and where it lies."""
    with Progress("cluster diags") as progress:
        done = asyncio.run(collect(settings, progress))
    for note in done.notes:
        print(f"WARNING: {note}", file=sys.stderr)
    if done.folder is not None:
        print(f"The unpacked files are in {done.folder}")
    print(f"Diags saved to {done.archive.path}")
