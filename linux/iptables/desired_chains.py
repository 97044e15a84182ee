"""The desired rules of one table, chain by chain, and which chains changed since a commit: pure.

Tested in tests/linux/test_iptables.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from linux.iptables.render import Desired, Rendered, Renderer
from linux.iptables.save import Actual


class DesiredChains:
    """What one table should hold. A change costs what it touches."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self._desired = Rendered({}, {})
        self._changed: set[str] = set()

    def want(
        self, chain: str, rules: Sequence[str], *, unordered: bool = False, closed: bool = False
    ) -> None:
        """One of our chains, whole; nothing happens before the next commit.

        `unordered`: the rules exclude each other, so a new one may stand anywhere; `closed`: but
        for the last one, which takes what the others leave. Raises `ValueError` for what iptables
        could misread.
        """
        rendered = self._renderer.chain(chain, rules, unordered=unordered, closed=closed)
        if self._desired.chains.get(chain) is not rendered:
            self._desired.chains[chain] = rendered
            self._changed.add(chain)

    def unwant(self, chain: str) -> None:
        """The chain is not desired any more."""
        if self._desired.chains.pop(chain, None) is not None:
            self._renderer.forget(chain)
            self._changed.add(chain)

    def want_hooks(
        self, inserts: Mapping[str, Sequence[str]], appends: Mapping[str, Sequence[str]]
    ) -> None:
        """All our rules in the kernel's own chains. Raises `ValueError` as `want` does."""
        kernel = self._renderer.kernel(inserts, appends)
        if kernel != self._desired.kernel:
            self._changed |= kernel.keys() | self._desired.kernel.keys()
            self._desired.kernel.clear()
            self._desired.kernel.update(kernel)

    def want_all(self, desired: Desired) -> None:
        """Exactly this. Raises `ValueError` as `want` does; nothing is changed then."""
        # Rendered as a whole first, to find what is refused.
        self._renderer.render(desired)
        for name in [name for name in self._desired.chains if name not in desired.chains]:
            self.unwant(name)
        for name, rules in desired.chains.items():
            unordered, closed = name in desired.unordered, name in desired.closed
            self.want(name, rules, unordered=unordered, closed=closed)
        self.want_hooks(desired.inserts, desired.appends)

    @property
    def chains(self) -> int:
        """How many chains of ours are desired."""
        return len(self._desired.chains)

    @property
    def rules(self) -> int:
        """How many rules are desired in chains of ours."""
        return sum(len(chain.hashes) for chain in self._desired.chains.values())

    def _suspects(self, actual: Actual | None) -> dict[str, Sequence[str]]:
        """The rules of the chains that a commit would write."""
        present = actual.chains if actual is not None else {}
        return {
            name: chain.rules
            for name in self._changed
            if (chain := self._desired.chains.get(name)) and present.get(name) != chain.hashes
        }
