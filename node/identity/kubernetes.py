"""Facts from the Kubernetes API about this node and its cluster, for start-up.

They are the node's InternalIPs, kubeadm's ranges of pods, and the installer of the cluster. None
is worth a long wait: after two seconds start-up goes on without, and the log says so.
Source: docs/reference/data-model.md#start-of-a-node, #default-pools. Tested in
tests/node/test_kubernetes.py and, with a real API server, in tests/apiserver/test_node_startup.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING

from libcalico import parsing
from libcalico.apiconfig import DatastoreConfig
from libcalico.errors import MuslinError
from libcalico.model.keys import IPNetwork
from libcalico.process import paths
from node.identity.autodetect import IPAddress

if TYPE_CHECKING:
    from libcalico.kubernetes.client import Client

LIMIT = 2.0
"""Seconds for all requests together."""
SYSTEM = "kube-system"
MARKS = {"kubeadm-config": "kubeadm", "full-cluster-state": "rancher"}
"""ConfigMap of an installer to its word in CLUSTER_TYPE."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The facts; empty where there is no Kubernetes, or `problem` says why."""

    internal: tuple[IPAddress, ...] = ()
    pod_networks: tuple[IPNetwork, ...] = ()
    kinds: tuple[str, ...] = ()
    problem: str = ""


def configured(environ: Mapping[str, str], config: DatastoreConfig) -> bool:
    """Whether a Kubernetes API is configured."""
    return bool(
        environ.get("KUBERNETES_SERVICE_HOST") or config.kubeconfig or config.k8s_api_endpoint
    )


async def read(
    environ: Mapping[str, str],
    config: DatastoreConfig,
    name: str,
    account: Path = paths.SERVICE_ACCOUNT,
    *,
    node_only: bool = False,
) -> ClusterFacts:
    """The facts about the node that Kubernetes calls `name`; never raises MuslinError.

    `node_only`: only the node, for callers that ask again and again. The installer is asked for
    once, at the start: it does not change, and a cluster without kubeadm would answer 404 each
    time.
    """
    if not configured(environ, config):
        return ClusterFacts()
    # A late import: most of the standard library's network code comes with it.
    from libcalico.kubernetes.access import find
    from libcalico.kubernetes.client import Client

    try:
        client = Client(find(config, environ, account), timeout=LIMIT)
    except MuslinError as error:
        return ClusterFacts(problem=str(error))
    try:
        async with asyncio.timeout(LIMIT):
            return await _asked(client, name, {} if node_only else MARKS)
    except TimeoutError:
        return ClusterFacts(problem=f"no answer within {LIMIT:.0f} s")
    finally:
        await client.close()


async def _asked(client: Client, name: str, marks: Mapping[str, str]) -> ClusterFacts:
    from libcalico.kubernetes.errors import KubernetesError, ObjectNotFound
    from libcalico.kubernetes.objects import CONFIG_MAPS, NODES

    internal: tuple[IPAddress, ...] = ()
    networks: tuple[IPNetwork, ...] = ()
    kinds: list[str] = []
    problems: list[str] = []
    try:
        internal = addresses((await client.get(NODES, name)).addresses())
    except KubernetesError as error:
        problems.append(str(error))
    for mark, kind in marks.items():
        try:
            config_map = await client.get(CONFIG_MAPS, mark, SYSTEM)
        except ObjectNotFound:
            continue
        except KubernetesError as error:
            problems.append(str(error))
            continue
        kinds.append(kind)
        if kind == "kubeadm":
            networks = pod_subnets((config_map.data or {}).get("ClusterConfiguration", ""))
    return ClusterFacts(internal, networks, tuple(kinds), "; ".join(problems))


def addresses(texts: list[str]) -> tuple[IPAddress, ...]:
    """The texts that are addresses, in their order."""
    parsed = []
    for text in texts:
        with suppress(ValueError):
            parsed.append(ip_address(text))
    return tuple(parsed)


def pod_subnets(text: str) -> tuple[IPNetwork, ...]:
    """`networking.podSubnet` of kubeadm's ClusterConfiguration: one range, or one of each family.

    Empty for a text without it.
    """
    try:
        tree = parsing.yaml_tree(text)
    except ValueError:
        return ()
    networking = tree.get("networking") if isinstance(tree, dict) else None
    subnets = networking.get("podSubnet") if isinstance(networking, dict) else None
    parsed = []
    for part in str(subnets or "").split(","):
        with suppress(ValueError):
            parsed.append(ip_network(part.strip(), strict=False))
    return tuple(parsed)
