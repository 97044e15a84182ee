"""Probes in pods that are there: entered by a command of the user, without a kubelet.

Each chosen pod serves while the test runs, and asks the others. A server ends when its standard
input does, so none outlives this process, however that ends. Policies of the test lie in a tier of
their own whose default passes on, and deny the two ports of our servers and nothing else. Tested in
`tests/calicoctl/test_connectivity_lab.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import string
from collections.abc import Iterable, Sequence

from calicoctl.client import Client
from calicoctl.connectivity import leftovers
from calicoctl.connectivity.model import ALLOWED, DENIED, Place
from calicoctl.connectivity.running import PYTHON, program
from calicoctl.preparing import prepare
from libcalico.datastore.interface import Datastore
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model import WorkloadEndpoint
from libcalico.model.codec import resource_from_tree
from libcalico.model.keys import ResourceKey
from libcalico.selectors.selectors import parse

TIER = "muslin-connectivity-test"
POLICY = f"{TIER}.deny"
ORDER = -1_000_000
FIELDS = ("node", "pod", "namespace")
LISTEN_SECONDS = 60.0


def words_of(option: str, template: str, place: Place) -> list[str]:
    """The words of a `--via`, with the names of a place filled in. Raises InvalidValue."""
    rule = "a command whose words may hold {node}, {pod} and {namespace}"
    try:
        words = shlex.split(template)
        for word in words:
            fields = [
                field for _, field, _, _ in string.Formatter().parse(word) if field is not None
            ]
            if any(field not in FIELDS for field in fields):
                raise ValueError(f"{word!r} holds another name")
        filled = [
            word.format(node=place.node, pod=place.pod, namespace=place.namespace) for word in words
        ]
    except ValueError as error:
        raise InvalidValue(option, template, f"{rule}: {error}") from None
    if not filled:
        raise InvalidValue(option, template, rule)
    return filled


def places_of(
    endpoints: Iterable[WorkloadEndpoint], namespaces: Sequence[str], selector: str, most: int
) -> list[Place]:
    """The pods that take part: at most `most` of a node, in the order of their names."""
    chosen = parse(selector) if selector else None
    by_node: dict[str, list[Place]] = {}
    for one in sorted(endpoints, key=lambda one: (one.metadata.namespace, one.spec.pod)):
        if namespaces and one.metadata.namespace not in namespaces:
            continue
        labels = {**one.metadata.labels, "projectcalico.org/namespace": one.metadata.namespace}
        if chosen is not None and not chosen.matches(labels):
            continue
        pod = one.spec.pod or one.spec.workload
        address = one.spec.ipNetworks[0].partition("/")[0] if one.spec.ipNetworks else ""
        there = by_node.setdefault(one.spec.node, [])
        if pod and address and len(there) < most:
            there.append(Place(one.spec.node, pod, one.metadata.namespace, address))
    return [place for node in sorted(by_node) for place in by_node[node]]


class ViaStage:
    """Pods entered by `via`, nodes by `via_node` (empty: none are)."""

    def __init__(self, via: str, via_node: str) -> None:
        self._via, self._via_node = via, via_node
        self._servers: list[asyncio.subprocess.Process] = []

    def command(self, place: Place, words: Sequence[str]) -> list[str]:
        """The command that runs a program in a pod, or on a node."""
        if place.pod:
            return [*words_of("--via", self._via, place), *words]
        return [*words_of("--via-node", self._via_node, place), *words]

    async def serve(self, places: Sequence[Place], port: int) -> dict[Place, str]:
        """Start a server in each pod; why it does not run, for each where it does not."""
        errors: dict[Place, str] = {}

        async def one(place: Place) -> None:
            if error := await self._start(place, port):
                errors[place] = error

        async with asyncio.TaskGroup() as group:
            for place in places:
                group.create_task(one(place))
        return errors

    async def _start(self, place: Place, port: int) -> str:
        ports = [str(port), str(port + 1)]
        words = self.command(place, [*PYTHON, program(), "serve", place.title, "0", *ports])
        try:
            server = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return f"{words[0]}: {error.strerror}"
        self._servers.append(server)
        assert server.stdout is not None
        said = b""
        try:
            async with asyncio.timeout(LISTEN_SECONDS):
                while line := await server.stdout.readline():
                    if line.strip() == b"listening":
                        return ""
                    said += line
        except TimeoutError:
            return f"{words[0]}: the server did not start within {LISTEN_SECONDS:g} s"
        return f"{words[0]}: {said.decode(errors='replace').strip()[-300:] or 'it ended at once'}"

    async def stop(self) -> None:
        """End every server."""
        for server in self._servers:
            if server.stdin is not None:
                server.stdin.close()
        for server in self._servers:
            try:
                await asyncio.wait_for(server.wait(), 2.0)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    server.kill()
                await server.wait()
        self._servers.clear()


def policy_trees(phase: str, selector: str, port: int, expires: str) -> list[dict[str, object]]:
    """The tier and the policy of a phase."""
    denied = [port, port + 1] if phase == DENIED else [port + 1]
    metadata = {"labels": {leftovers.LABEL: "calicoctl"}, "annotations": {leftovers.UNTIL: expires}}
    version = "projectcalico.org/v3"
    rule = {"action": "Deny", "protocol": "TCP", "destination": {"ports": denied}}
    return [
        {
            "apiVersion": version,
            "kind": "Tier",
            "metadata": {"name": TIER, **metadata},
            "spec": {"order": ORDER, "defaultAction": "Pass"},
        },
        {
            "apiVersion": version,
            "kind": "GlobalNetworkPolicy",
            "metadata": {"name": POLICY, **metadata},
            "spec": {
                "tier": TIER,
                "order": 0,
                "selector": selector,
                "types": ["Ingress"],
                "ingress": [rule],
            },
        },
    ]


class Policies:
    """The policies of the test in the datastore. `selector`: the endpoints that they are over."""

    def __init__(self, store: Datastore, selector: str, port: int) -> None:
        self._client, self._store = Client(store), store
        self._selector, self._port = selector, port

    async def enter(self, phase: str) -> None:
        """Store what a phase needs; `OPEN` needs nothing."""
        if phase not in (DENIED, ALLOWED):
            await self.leave()
            return
        for tree in policy_trees(phase, self._selector, self._port, leftovers.expiry()):
            await self._client.apply(prepare(resource_from_tree(tree), ""))

    async def leave(self) -> None:
        """Take them away."""
        await forget(self._store)


async def forget(store: Datastore, *, expired_only: bool = False) -> list[str]:
    """Delete the policy and tier of a test, ours or a killed one's; the names of what went."""
    client = Client(store)
    gone = []
    for key in (ResourceKey("GlobalNetworkPolicy", POLICY), ResourceKey("Tier", TIER)):
        try:
            entry = await client.find(key)
            if entry is None or leftovers.LABEL not in entry.value.metadata.labels:
                continue
            expires = entry.value.metadata.annotations.get(leftovers.UNTIL, "")
            if expired_only and not leftovers.expired(expires):
                raise MuslinError(
                    f"{key} belongs to another test that may still run (until {expires}):"
                    " wait, or use --cleanup-only"
                )
            await client.delete(key)
        except InvalidValue:
            continue
        gone.append(str(key))
    return gone
