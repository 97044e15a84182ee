"""The settings of the default pools: the variables CALICO_IPV4POOL_* and CALICO_IPV6POOL_*.

Tested in tests/node/test_environment.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from libcalico import parsing
from libcalico.errors import InvalidValue
from node.settings.values import FALSE, flag

_MODES = {
    "": "Never",
    "never": "Never",
    "off": "Never",
    "always": "Always",
    "crosssubnet": "CrossSubnet",
    "cross-subnet": "CrossSubnet",
}


@dataclass(frozen=True, slots=True)
class PoolSetting:
    """The default pool of one family. `cidr` is empty for the default, `none` for no pool."""

    cidr: str
    block_size: int
    ipip_mode: str
    vxlan_mode: str
    nat_outgoing: bool
    node_selector: str
    disable_bgp_export: bool


def pool_setting(environ: Mapping[str, str], version: int) -> PoolSetting:
    """The setting of one family. Raises InvalidValue."""
    prefix = f"CALICO_IPV{version}POOL_"

    def get(name: str) -> str:
        return environ.get(prefix + name, "").strip()

    if version == 6 and get("IPIP") and _mode(prefix + "IPIP", get("IPIP")) != "Never":
        raise InvalidValue(prefix + "IPIP", get("IPIP"), "IP-in-IP exists for IPv4 only")
    size = get("BLOCK_SIZE") or ("26" if version == 4 else "122")
    low, high = (20, 32) if version == 4 else (116, 128)
    block_size = parsing.number(prefix + "BLOCK_SIZE", size, low, high)
    ipip = _mode(prefix + "IPIP", get("IPIP"))
    vxlan = _mode(prefix + "VXLAN", get("VXLAN"))
    if ipip != "Never" and vxlan != "Never":
        raise InvalidValue(prefix + "VXLAN", get("VXLAN"), "a pool has IPIP or VXLAN, not both")
    # Calico reads anything but these as true.
    nat = get("NAT_OUTGOING").lower() or ("true" if version == 4 else "false")
    return PoolSetting(
        cidr=get("CIDR"),
        block_size=block_size,
        ipip_mode=ipip,
        vxlan_mode=vxlan,
        nat_outgoing=nat not in FALSE,
        node_selector=get("NODE_SELECTOR") or "all()",
        disable_bgp_export=flag(environ, prefix + "DISABLE_BGP_EXPORT", False),
    )


def _mode(name: str, text: str) -> str:
    mode = _MODES.get(text.lower())
    if mode is None:
        raise InvalidValue(name, text, "allowed: Never, Always, CrossSubnet")
    return mode
