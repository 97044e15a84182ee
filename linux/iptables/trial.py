"""Finds the chains that the kernel refuses: their rules are tried where no packet comes.

The rules are written, without their jumps, to a chain that nothing leads to: all together, then
by halves. Where not even an empty chain is taken, the rules are not to blame (IPT-9).

Tested in tests/linux/test_iptables.py.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence

from linux.errors import CommandError
from linux.iptables.hashes import JUMP, HashScheme

_JUMP = re.compile(rf" ?{JUMP}(\S+)")


class Trial:
    """Tries rules in one table. `restore` writes lines; `left`: the trial chain may remain."""

    def __init__(
        self,
        scheme: HashScheme,
        restore: Callable[[Sequence[str]], Awaitable[None]],
        left: Callable[[], None],
    ) -> None:
        self._scheme, self._restore, self._left = scheme, restore, left

    async def refused(self, suspects: Mapping[str, Sequence[str]]) -> dict[str, str]:
        """The chains that are refused, and why; `suspects`: the rules of each chain."""
        reasons: dict[str, str] = {}
        if suspects and not await self._trial(()):
            await self._try(suspects, reasons)
        return reasons

    async def _try(self, suspects: Mapping[str, Sequence[str]], reasons: dict[str, str]) -> None:
        rules = [rule for each in suspects.values() for rule in each]
        reason = await self._trial(rules)
        if not reason:
            return
        if len(suspects) == 1:
            # A held lock or a lack of memory is no verdict on the rules.
            if not await self._trial(()) and await self._trial(rules):
                reasons[next(iter(suspects))] = reason
            return
        names = list(suspects)
        middle = len(names) // 2
        for half in (names[:middle], names[middle:]):
            await self._try({name: suspects[name] for name in half}, reasons)

    async def _trial(self, rules: Sequence[str]) -> str:
        """The kernel's objection to these rules; empty if there is none."""
        chain = f"{self._scheme.chain_prefixes[0]}trial"
        declare = f":{chain} - [0:0]"
        reason = ""
        try:
            await self._restore((declare, *(f"-A {chain} {self._tame(rule)}" for rule in rules)))
        except CommandError as error:
            reason = str(error)
        try:
            await self._restore((declare, f"-X {chain}"))
        except CommandError:
            # The next dump finds it, and the next sweep takes it away.
            self._left()
        return reason

    def _tame(self, rule: str) -> str:
        """The rule without its jump to a chain of ours, which may not exist yet."""
        own = self._scheme.owns
        return _JUMP.sub(lambda jump: "" if own(jump.group(1)) else jump.group(), rule)
