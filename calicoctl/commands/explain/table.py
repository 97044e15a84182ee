"""`explain`: why a packet is let in or dropped; `explain rule`: what a kernel rule stands for.

The first word decides which of the two is meant: `rule` is no name of a pod in a namespace
asked for unless it is written `NAMESPACE/rule`.
Tested in tests/calicoctl/test_explain.py.
"""

from __future__ import annotations

import click

from calicoctl.cli import LazyGroup, examples

_TABLE = {
    "flow": (
        "calicoctl.commands.explain.flow:flow",
        "SRC DST: why a packet is let in or dropped (the word flow may be left out).",
    ),
    "rule": (
        "calicoctl.commands.explain.rule:rule",
        "CHAIN[:N]: which policy and rule a rule of the kernel stands for.",
    ),
}


class _Explain(LazyGroup):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """SRC DST without a word in front is `flow`."""
        if args and args[0] not in (*_TABLE, "-h", "--help"):
            args = ["flow", *args]
        return super().parse_args(ctx, args)


explain = _Explain(
    "explain",
    table=_TABLE,
    help="Explain why a packet is let in or dropped.\n\n"
    "calicoctl explain SRC DST [--proto tcp --port 80]: who decides about a packet from SRC to"
    " DST, each NAMESPACE/POD, an address, node:NAME, or a host endpoint.\n\n"
    "calicoctl explain rule CHAIN[:N]: what a chain or rule of the kernel stands for.",
)
explain.epilog = examples(
    "calicoctl explain shop/web-1 shop/db-0 --proto tcp --port 5432",
    "calicoctl explain rule cali-pi-np/shop/web:3",
)
