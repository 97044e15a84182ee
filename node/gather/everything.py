"""All facts of this machine, gathered in the order that keeps programs before gRPC.

Tested in tests/node/test_checksystem.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from ipaddress import ip_interface
from pathlib import Path

from libcalico import apiconfig
from libcalico.errors import InvalidValue
from libcalico.process import paths
from node.checks.datastore_facts import Store
from node.checks.facts import Facts
from node.gather import datastore, host, kernel, kubernetes, network, places, probes
from node.identity import kubernetes as cluster
from node.identity.autodetect import IPAddress
from node.settings import environment

NOWHERE = Path("/dev/null/unseen")
MOST_PROBES = 16
"""Other nodes that are probed; the first by name, so that two runs ask the same."""


@dataclass(frozen=True, slots=True)
class Options:
    """`config`: calicoctl's configuration file; `offline`: ask neither datastore nor nodes."""

    kernel_config: Path | None = None
    config: str | None = None
    offline: bool = False


async def gather(environ: Mapping[str, str], options: Options) -> Facts:
    """The facts. Raises `MuslinError` when `--kernel-config` cannot be read."""
    net_dir = Path(environ.get("CNI_NET_DIR") or paths.CNI_NET)
    bin_dir = Path(environ.get("CNI_BIN_DIR") or paths.CNI_BIN)
    settings, wrong = None, ""
    try:
        settings = environment.settings(environ)
    except InvalidValue as error:
        wrong = str(error)
    folders = (paths.RUN, paths.LIB, paths.LOG, net_dir, bin_dir)
    where: dict[Path, Path | None] = {folder: folder for folder in folders}
    if places.contained(environ):
        mounted = places.mounts()
        where = {folder: places.seen(folder, mounted) for folder in folders}
    of_kernel = await kernel.read(options.kernel_config, environ)
    of_host = await asyncio.to_thread(host.read, environ, where)
    if wrong and not of_host.name_error:
        of_host = replace(of_host, name_error=wrong)
    of_network = await asyncio.to_thread(network.read, settings, environ, paths.MTU)
    if of_network.pod_mtu is None:
        mtu = network.mtu_of_configuration(where[net_dir] or NOWHERE)
        of_network = replace(of_network, pod_mtu=mtu)
    of_kubernetes = await asyncio.to_thread(
        kubernetes.read, where[net_dir] or NOWHERE, where[bin_dir] or NOWHERE
    )
    of_kubernetes = replace(
        of_kubernetes,
        net_dir=str(net_dir),
        bin_dir=str(bin_dir),
        unseen=frozenset(str(folder) for folder in (net_dir, bin_dir) if where[folder] is None),
    )
    store = Store() if options.offline else await datastore.read(options.config, environ)
    own = next((one for one in store.nodes if one.name == of_host.node_name), None)
    others = sorted((one for one in store.nodes if one is not own), key=lambda one: one.name)
    internal: tuple[IPAddress, ...] = ()
    if settings is not None and not options.offline:
        config = apiconfig.of_node(environ)
        name = settings.kubernetes_name(of_host.node_name)
        internal = (await cluster.read(environ, config, name)).internal
    of_network = replace(
        of_network,
        choices=await asyncio.to_thread(network.choose, of_network, own, others, internal),
    )
    facts = Facts(
        now=datetime.now(UTC),
        kernel=of_kernel,
        host=of_host,
        network=of_network,
        store=store,
        kubernetes=of_kubernetes,
    )
    asked = await probes.probe(
        others[:MOST_PROBES], probe_sizes(facts), bgp=of_network.backend != "none"
    )
    return replace(facts, probes=tuple(asked))


def probe_sizes(facts: Facts) -> dict[int, int]:
    """The MTU of the interface with the node's address, by family."""
    sizes: dict[int, int] = {}
    for choice in facts.network.choices.values():
        for link in facts.network.links:
            if choice.address and link.name == choice.interface:
                sizes[ip_interface(choice.address).version] = link.mtu
    return sizes
