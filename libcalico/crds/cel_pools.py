"""The rules in CEL of IP pools.

Tested in tests/libcalico/test_crds.py and tests/apiserver/test_crds.py.
"""

from __future__ import annotations

from libcalico.crds.cel_words import Rule, text, true
from libcalico.model.resources.pool import DEFAULT_BLOCK_SIZE
from libcalico.model.validation.pool import BLOCK_SIZES


def _on(name: str) -> str:
    return f"(has(self.{name}) && self.{name} != '' && self.{name} != 'Never')"


_SIZE = "(has(self.blockSize) && self.blockSize != 0 ? self.blockSize : {})"
_LOAD_BALANCER = "(has(self.allowedUses) && self.allowedUses.exists(u, u == 'LoadBalancer'))"
_TUNNEL = "(has(self.allowedUses) && self.allowedUses.exists(u, u == 'Tunnel'))"
_LENGTH = "int(self.cidr.split('/')[1])"


def _block_size(version: int) -> Rule:
    low, high = BLOCK_SIZES[version]
    other = "!" if version == 6 else ""
    size = _SIZE.format(DEFAULT_BLOCK_SIZE[version])
    return Rule(
        f"{other}self.cidr.contains(':') || ({size} >= {low} && {size} <= {high})",
        f"blockSize must be {low} to {high} for IPv{version}",
        "blockSize",
    )


def _room(version: int) -> Rule:
    other = "!" if version == 6 else ""
    size = _SIZE.format(DEFAULT_BLOCK_SIZE[version])
    return Rule(
        f"{other}self.cidr.contains(':') || {true('disabled')} || {_LENGTH} <= {size}",
        "cidr must hold at least one block: a prefix length of at most blockSize",
        "cidr",
    )


POOL = (
    Rule("self.cidr.contains('/')", "cidr must have a prefix length", "cidr"),
    Rule(
        f"!({_on('ipipMode')} && {_on('vxlanMode')})",
        "only one of ipipMode and vxlanMode may be on",
        "vxlanMode",
    ),
    Rule(
        f"!(self.cidr.contains(':') && {_on('ipipMode')})",
        "IP-in-IP is for IPv4 only",
        "ipipMode",
    ),
    *(_block_size(version) for version in (4, 6)),
    *(_room(version) for version in (4, 6)),
    Rule(
        f"!({text('namespaceSelector')} && {_TUNNEL})",
        "namespaceSelector is not allowed in a pool with allowedUse Tunnel",
        "namespaceSelector",
    ),
    Rule(
        f"!{_LOAD_BALANCER} || self.allowedUses.all(u, u == 'LoadBalancer')",
        "LoadBalancer cannot be mixed with other uses",
        "allowedUses",
    ),
    Rule(
        f"!{_LOAD_BALANCER} || !({_on('ipipMode')} || {_on('vxlanMode')})",
        "a LoadBalancer pool has no encapsulation",
        "ipipMode",
    ),
    Rule(
        f"!{_LOAD_BALANCER} || !{text('nodeSelector')} || self.nodeSelector == 'all()'",
        "nodeSelector must be all() in a LoadBalancer pool",
        "nodeSelector",
    ),
    Rule(
        f"!{_LOAD_BALANCER} || !{true('disableBGPExport')}",
        "disableBGPExport is not allowed in a LoadBalancer pool",
        "disableBGPExport",
    ),
    Rule("self.cidr == oldSelf.cidr", "cidr cannot be changed", "cidr"),
    Rule(
        "!has(oldSelf.blockSize) || (has(self.blockSize) && self.blockSize == oldSelf.blockSize)",
        "blockSize cannot be changed",
        "blockSize",
    ),
)
