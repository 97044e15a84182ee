"""Which of the two iptables back ends this host uses
(docs/reference/dataplane.md#chain-names-and-hashes).

Two programs of one name write to two places in the kernel, and rules in both apply. Ours must
stand where the host's other rules are. Tested in tests/linux/test_iptables.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from linux import programs
from linux.errors import CommandError

Backend = Literal["nft", "legacy"]

_HINTS = (":KUBE-IPTABLES-HINT ", ":KUBE-KUBELET-CANARY ")
_LEGACY_PRESENT = Path("/proc/net/ip_tables_names")


def program(family: Literal[4, 6], backend: Backend, verb: Literal["save", "restore"]) -> str:
    """The program for a family and back end; the unsuffixed one where no other is installed."""
    base = "iptables" if family == 4 else "ip6tables"
    name = f"{base}-{backend}-{verb}"
    return name if programs.find(name) else f"{base}-{verb}"


async def detect_backend(configured: str = "auto") -> Backend:
    """ "nft" or "legacy"; `configured` may also name one of them (any case; "auto" looks).

    Order: a kubelet's hint in nft's mangle table, the same in legacy's, else whichever has more
    rules. On an equal count: legacy if this kernel has it, else nft. Raises `ValueError`.
    """
    choice = configured.lower()
    if choice in ("nft", "legacy"):
        return "nft" if choice == "nft" else "legacy"
    if choice != "auto":
        raise ValueError(f"iptables backend {configured!r}: want auto, nft or legacy")
    # legacy-save without -t lists loaded tables only; naming one would load it.
    legacy_there = _LEGACY_PRESENT.exists() and programs.find("iptables-legacy-save") is not None
    nft = await _saved("iptables-nft-save")
    legacy = await _saved("iptables-legacy-save") if legacy_there else ""
    for backend, output in (("nft", nft), ("legacy", legacy)):
        if any(hint in _mangle(output) for hint in _HINTS):
            return "nft" if backend == "nft" else "legacy"
    if nft.count("\n-A ") > legacy.count("\n-A "):
        return "nft"
    return "legacy" if legacy_there else "nft"


def _mangle(output: str) -> str:
    _, _, rest = output.partition("*mangle\n")
    return rest.partition("\nCOMMIT")[0]


async def _saved(name: str) -> str:
    try:
        return (await programs.run([name])).decode(errors="replace")
    except CommandError:
        return ""
