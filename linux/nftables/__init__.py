"""Native nftables over packed netlink, in process: private tables, sets, verdict maps.

Public: `Ruleset` (chains and maps of both families), `NamedSets`, `Watch`, `Code` and `pack` for
rules, `expressions` and `statements` for what rules consist of.
"""

from linux.nftables.messages import Hook
from linux.nftables.rules import Code, Packed, pack, packing
from linux.nftables.ruleset import Ruleset
from linux.nftables.sets import NamedSets
from linux.nftables.watch import Watch

__all__ = [
    "Code",
    "Hook",
    "NamedSets",
    "Packed",
    "Ruleset",
    "Watch",
    "pack",
    "packing",
]
