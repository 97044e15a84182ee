"""Which of the two iptables back ends this host uses (calico-dataplane 2.12)."""

from __future__ import annotations

from typing import Literal

Backend = Literal["nft", "legacy"]


async def detect_backend(wanted: str = "auto") -> Backend:
    """"nft" or "legacy"; `wanted` may also name one of them (any case; "auto" looks).

    Order: a kubelet hint chain in nft's mangle table, the same in legacy's, else whichever has
    more rules. On an equal count: legacy if its tables exist in this kernel, else nft.
    """
    raise NotImplementedError
