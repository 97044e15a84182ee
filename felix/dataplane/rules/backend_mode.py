"""Which back end writes the rules, and whether it is time for the other one.

Calico's parameter decides (docs/reference/data-model.md#felixconfiguration,
docs/reference/dataplane.md#nftables): `Enabled` is nftables, `Disabled` iptables, `Auto` follows
kube-proxy: nftables where kube-proxy has its table there, or where rules in iptables cannot be: the
programs are lacking, or the kernel refuses xtables or IP sets, though the image has the programs
(RHEL 10).
Tested in tests/felix/kernel/test_backend_switch.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

from felix.config.parameters import Config
from felix.dataplane.rules.chain_target import Family
from linux import programs
from linux.ipset import has_ipsets
from linux.nftables.connection import Connection
from linux.xtables import has_match

NATIVE = "nftables"
_KUBE_PROXY = "kube-proxy"
LOOK_EVERY = 15.0
"""Seconds between two looks at what kube-proxy uses."""
_SET_REVISION = 4
"""The oldest form of the match `set` that our rules need (Linux 3.19)."""
_LEGACY: dict[Family, Path] = {
    4: Path("/proc/net/ip_tables_names"),
    6: Path("/proc/net/ip6_tables_names"),
}

log = logging.getLogger(__name__)


def native(config: Config) -> bool:
    """Whether rules belong into nftables. Raises `KernelError` where it cannot be found out."""
    if config.nftables_mode != "Auto":
        return config.nftables_mode == "Enabled"
    families: tuple[Family, ...] = (4, 6)
    with connected() as connection:
        if connection is None:
            return False
        if any(connection.has_chains(family, _KUBE_PROXY) for family in families):
            return True
    names = ("iptables-nft-restore", "iptables-legacy-restore", "iptables-restore")
    return not any(map(programs.find, names)) or bool(lacking_for_iptables())


@cache
def lacking_for_iptables() -> str:
    """What this kernel lacks for rules in iptables, "" for nothing; looked at once, for a module
    that comes later moves no rules. Raises `KernelError` where it cannot be found out.
    """
    lacks = []
    if not (any(map(legacy_tables, _LEGACY)) or has_match("set", _SET_REVISION)):
        lacks.append("xtables with the match set (xt_set)")
    if not has_ipsets():
        lacks.append("IP sets (ip_set)")
    lack = " and ".join(lacks)
    if lack:
        log.info("nftablesMode Auto: rules go into nftables, for this kernel has no %s", lack)
    return lack


def legacy_tables(family: Family) -> list[str]:
    """The tables of legacy iptables that the kernel has now."""
    with suppress(OSError):
        return _LEGACY[family].read_text().split()
    return []


@contextmanager
def connected() -> Iterator[Connection | None]:
    """A connection to nf_tables; None where the kernel has none, and so nothing of ours."""
    with ExitStack() as stack:
        connection: Connection | None = None
        with suppress(OSError):
            connection = stack.enter_context(Connection())
        yield connection if connection is not None and connection.available() else None


class Mode:
    """Which back end is used, and whether it is time for the other one.

    `wanted`: nftables, as of the last look; `used`: what rules are written to since, None before.
    """

    def __init__(self) -> None:
        self.wanted = False
        self.used: bool | None = None
        self._config: Config | None = None
        self._look_at = 0.0
        self._known: tuple[Config, bool, Config] | None = None

    def differs(self, config: Config, now: float) -> bool:
        """Whether tables are to be opened. Looks at once when the parameters are new."""
        if self.used is None or config is not self._config or now >= self._look_at:
            self.wanted = native(config)
            self._config, self._look_at = config, now + LOOK_EVERY
        return self.wanted is not self.used

    def parameters(self, config: Config) -> Config:
        """The parameters as the rules read them: nftables has some of its own."""
        used = bool(self.used)
        if self._known is None or self._known[0] is not config or self._known[1] is not used:
            self._known = (config, used, effective(config, in_nftables=used))
        return self._known[2]


def effective(config: Config, *, in_nftables: bool) -> Config:
    """The parameters as the rules read them: in nftables those of nftables stand for iptables'."""
    if not in_nftables:
        return config
    return replace(
        config,
        iptables_refresh_interval=config.nftables_refresh_interval,
        iptables_filter_allow_action=config.nftables_filter_allow_action,
        iptables_mangle_allow_action=config.nftables_mangle_allow_action,
        iptables_filter_deny_action=config.nftables_filter_deny_action,
        iptables_mark_mask=config.nftables_mark_mask,
    )


def has_ipv6() -> bool:
    """Whether this kernel speaks IPv6 at all."""
    return Path("/proc/net/if_inet6").exists()
