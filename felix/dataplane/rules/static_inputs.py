"""What rules and sets depend on beside policies: pools, nodes, tunnels, services. Pure.

Tested in tests/felix/dataplane/test_chain_store_steps.py, tests/felix/rules/test_ipvs.py and, with
packets, in tests/felix/kernel/test_node_rules.py, test_ipvs_link.py and test_vxlan.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from felix.calc.changes import Changes
from felix.calc.cluster_facts import ClusterFacts
from felix.calc.encapsulation import encapsulation
from felix.calc.endpoints import Endpoint
from felix.calc.policy_model import IPAddress
from felix.config.parameters import Config
from felix.dataplane.devices.mtu import IPIP, VXLAN, VXLAN_V6
from felix.dataplane.devices.work import Listener
from felix.dataplane.rules.chain_target import Family
from felix.dataplane.rules.floating import FloatingAddresses
from felix.rules import ipvs
from felix.rules.inputs import Facts, Senders
from felix.rules.limits import DSCP_SETS
from felix.rules.model import Marks
from felix.rules.nat import ALL_HOSTS, ALL_POOLS, MASQUERADED_POOLS
from felix.rules.tunnels import ALL_VTEPS, TunnelRules
from libcalico.model.keys import ResourceKey

OWN_SETS = frozenset(
    {ALL_POOLS, MASQUERADED_POOLS, ALL_HOSTS, ALL_VTEPS, ipvs.SERVICES, *DSCP_SETS.values()}
)


def tunnel_rules(
    family: Family, config: Config, cluster: ClusterFacts, listeners: frozenset[Listener]
) -> TunnelRules:
    """By what wrapped packets come in and go out, of one family."""
    used = encapsulation(cluster.pools, ipip=config.ipip_enabled, vxlan=config.vxlan_enabled)
    me = cluster.me
    device = VXLAN if family == 4 else VXLAN_V6
    ports = tuple(sorted(port for name, port in listeners if name == device))
    ipip = (IPIP, 0) in listeners and family == 4
    sources = []
    if ipip and used.ipip and me.ipip is not None:
        sources.append(IPIP)
    needed = used.vxlan if family == 4 else used.vxlan_v6
    if ports and needed and me.vtep(family) is not None:
        sources.append(device)
    return TunnelRules(ipip, ports, tuple(sources))


def unjudged(config: Config, services: bool) -> dict[ResourceKey, str]:
    """A mark mask that is too small for services in IPVS: they are shut (IPV-4). Pure."""
    bits = config.iptables_mark_mask.bit_count()
    if not services or Marks.allocate(config.iptables_mark_mask).served:
        return {}
    reason = (
        f"spec.iptablesMarkMask (nftablesMarkMask with rules in nftables):"
        f" {config.iptables_mark_mask:#x} has {bits} bits, and kube-proxy in ipvs mode"
        f" ({ipvs.LINK}) needs 7: pods and their node begin nothing with each other"
    )
    return {ResourceKey("FelixConfiguration", "default"): reason}


def static_facts(
    family: Family,
    config: Config,
    news: Changes,
    tunnels: TunnelRules,
    floating: FloatingAddresses,
    *,
    hosts: bool,
    in_ipvs: bool,
) -> Facts:
    """What the static rules of one family depend on. `hosts`: there are host endpoints in use;
    `in_ipvs`: kube-proxy has services in IPVS.
    """
    spoofing = config.workload_source_spoofing == "Any"
    return Facts(
        nat_outgoing=bool(news.cluster.masqueraded_members(family)),
        service_nets=tuple(sorted(news.cluster.service_nets, key=str)),
        spoofing=tuple(
            (name, endpoint.spoofable)
            for name, endpoint in (sorted(news.active.items()) if spoofing else ())
            if endpoint.spoofable
        ),
        tunnels=tunnels,
        hosts=hosts,
        floating=floating.of(family),
        ipvs=_senders(family, news) if in_ipvs else None,
        dscp=_dscp_numbers(family, news.active),
    )


def _senders(family: Family, news: Changes) -> Senders:
    """The endpoints that have a chain by which their packets to services are judged."""
    return Senders(
        tuple(
            (name, tuple(net for net in endpoint.networks if net.version == family))
            for name, endpoint in sorted(news.active.items())
            if news.policies.endpoint(endpoint.key) is not None
        )
    )


def dscp_members(active: Mapping[str, Endpoint]) -> dict[int, frozenset[str]]:
    """The addresses of the workloads that ask for each DSCP, spelled as the kernel lists them."""
    by_number: dict[int, set[str]] = {}
    for endpoint in active.values():
        if endpoint.limits.dscp is not None:
            members = by_number.setdefault(endpoint.limits.dscp, set())
            members.update(str(network.network_address) for network in endpoint.networks)
    return {number: frozenset(members) for number, members in by_number.items()}


def dscp_sets(marked: Mapping[int, frozenset[str]]) -> dict[str, frozenset[str] | None]:
    """The members of each DSCP's set; None: there is no such set."""
    return {name: marked.get(number) for number, name in DSCP_SETS.items()}


def _dscp_numbers(family: Family, active: Mapping[str, Endpoint]) -> tuple[int, ...]:
    numbers = {
        endpoint.limits.dscp
        for endpoint in active.values()
        if endpoint.limits.dscp is not None
        and any(network.version == family for network in endpoint.networks)
    }
    return tuple(sorted(numbers))


def own_sets(
    config: Config,
    cluster: ClusterFacts,
    tunnels: Mapping[Family, TunnelRules],
    services: Set[IPAddress] | None,
) -> dict[str, frozenset[str] | None]:
    """The members of the sets that static rules name, by set; None: there is no such set.

    `services`: the addresses of services in IPVS, None: there are none.
    """

    def both(members: Callable[[int], frozenset[str]]) -> frozenset[str]:
        return frozenset().union(*map(members, tunnels))

    external = frozenset(config.external_nodes_list)
    excluded = config.nat_outgoing_exclusions == "IPPoolsAndHostIPs"
    hosts = excluded or any(one.ipip for one in tunnels.values())
    vteps = any(one.vxlan_ports for one in tunnels.values())
    return {
        ALL_POOLS: both(cluster.pool_members),
        MASQUERADED_POOLS: both(cluster.masqueraded_members),
        ALL_HOSTS: both(cluster.host_members) | external if hosts else None,
        ALL_VTEPS: both(cluster.vtep_members) | external if vteps else None,
        ipvs.SERVICES: None if services is None else frozenset(map(str, services)),
    }
