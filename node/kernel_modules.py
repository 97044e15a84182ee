"""The kernel modules that a node uses, what Calico's own check also asks for, and their state.

Source: docs/reference/data-model.md#calicoctl-node-run. Calico requires `vfio-pci` and the IPVS
match as well; nothing here uses them, so their absence is shown and fails nothing. `option` is the
name in a kernel configuration. Tested in tests/node/test_checksystem.py and test_modules.py there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_XTABLES = ("ip_set", "ip_tables", "ip6_tables", "ipt_", "xt_")


@dataclass(frozen=True, slots=True)
class Module:
    """A module. `names`: any one will do. `rule`: iptables arguments that need it, for a trial."""

    names: tuple[str, ...]
    option: str
    purpose: str
    required: bool = True
    rule: tuple[str, ...] = ()

    @property
    def xtables(self) -> bool:
        """Whether only iptables and ipset use it."""
        return all(name.startswith(_XTABLES) for name in self.names)


def _match(name: str, *arguments: str) -> tuple[str, ...]:
    return ("-m", name, *arguments, "-j", "ACCEPT")


MODULES = (
    Module(("ip_set",), "CONFIG_IP_SET", "sets of addresses"),
    Module(("ip_tables",), "CONFIG_IP_NF_IPTABLES", "IPv4 rules"),
    Module(
        ("ipt_REJECT", "xt_REJECT"),
        "CONFIG_IP_NF_TARGET_REJECT",
        "rules that refuse with an answer",
        rule=("-j", "REJECT"),
    ),
    Module(
        ("xt_rpfilter",),
        "CONFIG_NETFILTER_XT_MATCH_RPFILTER|CONFIG_IP_NF_MATCH_RPFILTER",
        "protection against forged sources",
        rule=("-t", "raw", "-m", "rpfilter", "--invert", "-j", "DROP"),
    ),
    Module(
        ("nf_conntrack_netlink",), "CONFIG_NF_CT_NETLINK", "ending the flows of addresses in reuse"
    ),
    Module(
        ("xt_addrtype",),
        "CONFIG_NETFILTER_XT_MATCH_ADDRTYPE",
        "telling local addresses",
        rule=_match("addrtype", "--dst-type", "LOCAL"),
    ),
    Module(
        ("xt_conntrack",),
        "CONFIG_NETFILTER_XT_MATCH_CONNTRACK",
        "letting answers through",
        rule=_match("conntrack", "--ctstate", "ESTABLISHED"),
    ),
    Module(
        ("xt_mark",),
        "CONFIG_NETFILTER_XT_MATCH_MARK|CONFIG_NETFILTER_XT_MARK",
        "marks that carry verdicts between chains",
        rule=_match("mark", "--mark", "0x1/0x1"),
    ),
    Module(
        ("xt_multiport",),
        "CONFIG_NETFILTER_XT_MATCH_MULTIPORT",
        "rules over several ports",
        rule=("-p", "tcp", *_match("multiport", "--dports", "1,2")),
    ),
    Module(("xt_set",), "CONFIG_NETFILTER_XT_SET|CONFIG_IP_SET", "rules over sets"),
    Module(
        ("ipt_ipvs", "xt_ipvs"),
        "CONFIG_NETFILTER_XT_MATCH_IPVS",
        "kube-proxy in IPVS mode",
        required=False,
    ),
    Module(("vfio-pci",), "CONFIG_VFIO_PCI", "nothing of ours; Calico's check asks for it", False),
    Module(("ip6_tables",), "CONFIG_IP6_NF_IPTABLES", "IPv6 rules", required=False),
    Module(("xt_bpf",), "CONFIG_NETFILTER_XT_MATCH_BPF", "BPF matches", required=False),
    Module(("xt_u32",), "CONFIG_NETFILTER_XT_MATCH_U32", "u32 matches", required=False),
    Module(("ipip",), "CONFIG_NET_IPIP", "pools that encapsulate with IP in IP", required=False),
    Module(("vxlan",), "CONFIG_VXLAN", "pools that encapsulate with VXLAN", required=False),
)


def options(module: Module) -> tuple[str, ...]:
    """The configuration options any one of which brings the module."""
    return tuple(module.option.split("|"))


def present(
    modules: Iterable[Module], release: str, on: frozenset[str], root: Path = Path("/")
) -> tuple[dict[str, str], bool]:
    """The state of each module that is present, by name; and whether any list of modules was.

    `on`: the options of the kernel's configuration that are switched on.
    """
    loaded = {line.split()[0] for line in _lines(root / "proc/modules")}
    folder = root / "lib/modules" / release
    built_in = {_stem(line) for line in _lines(folder / "modules.builtin")}
    loadable = {_stem(line.partition(":")[0]) for line in _lines(folder / "modules.dep")}
    presence: dict[str, str] = {}
    for module in modules:
        for name in module.names:
            plain = name.replace("-", "_")
            if plain in loaded or (root / "sys/module" / plain).exists():
                presence[name] = "loaded"
            elif plain in built_in:
                presence[name] = "built in"
            elif plain in loadable:
                presence[name] = "can be loaded"
        if not any(name in presence for name in module.names) and set(options(module)) & on:
            presence[module.names[0]] = "built in"
    return presence, bool(built_in or loadable or on)


def _stem(path: str) -> str:
    return path.rsplit("/", 1)[-1].partition(".ko")[0].replace("-", "_")


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return []
