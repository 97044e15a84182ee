"""The pools and settings objects that a cluster gets when its first node starts. Pure.

An existing value is never overwritten: a field is filled only where it is unset.
Source: docs/reference/data-model.md#start-of-a-node, #default-pools. Tested in
`tests/node/test_defaults.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ipaddress import IPv6Network, ip_network

from msgspec.structs import replace

from ipam.admin import overlap
from ipam.records.pools import Pool
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model.base.meta import Metadata
from libcalico.model.keys import IPNetwork
from libcalico.model.resources.bgp import BGPConfiguration
from libcalico.model.resources.felixconfig import FelixConfiguration
from libcalico.model.resources.ipam import IPAMConfiguration, IPAMConfigurationSpec
from libcalico.model.resources.pool import IPPool, IPPoolSpec
from node.settings.environment import ALLOW_OVERLAP
from node.settings.pools import PoolSetting

POOL_NAMES = {4: "default-ipv4-ippool", 6: "default-ipv6-ippool"}
IPV4_POOL = ip_network("192.168.0.0/16")
IPV4_FALLBACKS = tuple(ip_network(f"172.{second}.0.0/16") for second in range(16, 32))


def default_pool(
    version: int,
    setting: PoolSetting,
    existing: Iterable[Pool],
    taken: Iterable[IPNetwork],
    random_bytes: Callable[[int], bytes],
    cluster_networks: Iterable[IPNetwork] = (),
) -> IPPool | None:
    """The pool to create for a family, None when it has one already or none is desired.

    `taken` are the networks in use: the default range avoids them. `cluster_networks` are the pods'
    ranges that the cluster was made with (kubeadm's podSubnet). Raises `InvalidValue` for a wrong
    CIDR, `MuslinError` when every default is taken.
    """
    if setting.cidr.lower() == "none":
        return None
    if any(pool.family == version for pool in existing):
        return None
    of_cluster = next((one for one in cluster_networks if one.version == version), None)
    if setting.cidr:
        cidr = _wished(version, setting.cidr)
    else:
        cidr = of_cluster or _free(version, taken, random_bytes)
    return IPPool(
        metadata=Metadata(name=POOL_NAMES[version]),
        spec=IPPoolSpec(
            cidr=str(cidr),
            ipipMode=setting.ipip_mode,
            vxlanMode=setting.vxlan_mode,
            natOutgoing=setting.nat_outgoing,
            blockSize=setting.block_size,
            nodeSelector=setting.node_selector,
            disableBGPExport=setting.disable_bgp_export,
        ),
    )


def _wished(version: int, text: str) -> IPNetwork:
    variable = f"CALICO_IPV{version}POOL_CIDR"
    try:
        cidr = ip_network(text)
    except ValueError as error:
        raise InvalidValue(variable, text, f"must be a CIDR without host bits: {error}") from None
    if cidr.version != version:
        raise InvalidValue(variable, text, f"must be an IPv{version} CIDR")
    return cidr


def _free(
    version: int, taken: Iterable[IPNetwork], random_bytes: Callable[[int], bytes]
) -> IPNetwork:
    if version == 6:
        # A unique local prefix (RFC 4193): fd, 40 random bits, a /48.
        return IPv6Network((b"\xfd" + random_bytes(5) + bytes(10), 48))
    busy = [network for network in taken if network.version == 4]
    for candidate in (IPV4_POOL, *IPV4_FALLBACKS):
        if not any(candidate.overlaps(network) for network in busy):
            return candidate
    facts = overlap.Facts(hosts=tuple(overlap.Taken(network, "") for network in busy))
    free = ", ".join(str(one) for one in overlap.candidates(IPV4_POOL, facts))
    raise MuslinError(
        "every default IPv4 pool overlaps a network of this cluster: set CALICO_IPV4POOL_CIDR,"
        f" for example to one of {free or 'a smaller size'}"
    )


def check_pool(version: int, pool: IPPool, facts: overlap.Facts, allow_overlap: bool) -> None:
    """Refuse a default pool that overlaps a network in use. Raises InvalidValue."""
    try:
        overlap.check(pool, facts, allow_overlap, f"{ALLOW_OVERLAP}=true")
    except InvalidValue as error:
        if error.field != "spec.cidr":
            raise
        raise InvalidValue(f"CALICO_IPV{version}POOL_CIDR", error.value, error.rule) from None


def felix_default(stored: FelixConfiguration | None) -> FelixConfiguration:
    """FelixConfiguration `default`, its two start-up values filled in where unset."""
    return _filled(stored, "default", {"logSeverityScreen": "Info", "reportingInterval": "0s"})


def felix_node(stored: FelixConfiguration | None, node: str) -> FelixConfiguration:
    """FelixConfiguration `node.<node>`: traffic from pods to it meets the node's own rules."""
    return _filled(stored, f"node.{node}", {"defaultEndpointToHostAction": "Return"})


def _filled(
    stored: FelixConfiguration | None, name: str, values: dict[str, str]
) -> FelixConfiguration:
    config = stored or FelixConfiguration(metadata=Metadata(name=name))
    missing = {key: value for key, value in values.items() if not getattr(config.spec, key)}
    return replace(config, spec=replace(config.spec, **missing)) if missing else config


def bgp_default() -> BGPConfiguration:
    """BGPConfiguration `default`, empty."""
    return BGPConfiguration(metadata=Metadata(name="default"))


def ipam_default() -> IPAMConfiguration:
    """The v3 IPAMConfiguration `default`; the allocator keeps other settings."""
    return IPAMConfiguration(
        metadata=Metadata(name="default"),
        spec=IPAMConfigurationSpec(
            strictAffinity=False, autoAllocateBlocks=True, kubeVirtVMAddressPersistence="Enabled"
        ),
    )
