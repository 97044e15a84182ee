"""What a rule that a packet met stands for: policy, rule, place, by the stored objects. Pure.

Tested in tests/calicoctl/test_tracing_story.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from felix.explain import reverse
from felix.explain.chain_meaning import Meaning
from felix.explain.world import World
from libcalico.errors import MuslinError
from libcalico.local.packet_trace import Rule

OURS = "cali-"
_HASH = "cali:"


@dataclass(frozen=True, slots=True)
class Hit:
    """A rule that a packet met, and what it stands for.

    `title` says what the chain is, `field` which rule of a policy (`ingress[2]`), `written` that
    rule as it was written, `said` the comment or the text in the kernel. `ours`: one of felix's.
    """

    node: str
    rule: Rule
    ours: bool
    title: str = ""
    policy: str = ""
    tier: str = ""
    field: str = ""
    written: str = ""
    said: str = ""

    @property
    def place(self) -> str:
        """`filter cali-pi-np/shop/web:3`."""
        chain = plain(self.rule.chain) if self.ours else self.rule.chain
        number = f":{self.rule.number}" if self.rule.number else ""
        table = layer(self.rule.chain) or self.rule.table
        if not self.ours:
            table = f"{self.rule.family} {self.rule.table}"
        return f"{table} {chain}{number}"

    @property
    def denies(self) -> bool:
        """Whether the packet's way ended here."""
        return self.rule.verdict == "drop"

    def __str__(self) -> str:
        parts = [self.policy or self.title, self.field, self.said if not self.field else ""]
        return " ".join(filter(None, parts))


def plain(chain: str) -> str:
    """The name of a chain without the layer that nftables has in front."""
    return next(
        (chain.removeprefix(each) for each in reverse.LAYERS if _layered(chain, each)), chain
    )


def layer(chain: str) -> str:
    """The table of iptables that a chain of nftables stands for; empty where there is none."""
    return next((each[:-1] for each in reverse.LAYERS if _layered(chain, each)), "")


def _layered(chain: str, prefix: str) -> bool:
    return chain.startswith(prefix) and chain.removeprefix(prefix).startswith(OURS)


class Names:
    """Names rules; remembers chains. Without a world only what the kernel says is known."""

    def __init__(self, world: World | None, version: int) -> None:
        self._world, self._version = world, version
        self._chains: dict[str, list[Meaning]] = {}

    def hit(self, node: str, rule: Rule) -> Hit:
        """What a rule stands for on a node."""
        ours = plain(rule.chain).startswith(OURS)
        said = without_hash(rule.comment) or rule.text
        if not ours:
            # A jump of ours into our own chains, from the kernel's.
            return Hit(node, rule, ours, said=said)
        meaning = self._meaning(node, rule.chain)
        if meaning is None:
            return Hit(node, rule, ours, title=plain(rule.chain), said=said)
        kernel = next((each for each in meaning.rules if each.number == rule.number), None)
        key = meaning.policy
        named = ""
        if key is not None:
            named = f"{key.kind} {'/'.join(filter(None, (key.namespace, key.name)))}"
        return Hit(
            node,
            rule,
            ours,
            meaning.title,
            named,
            meaning.tier,
            "" if kernel is None else kernel.field,
            "" if kernel is None else kernel.written,
            said or ("" if kernel is None else kernel.text),
        )

    def _meaning(self, node: str, chain: str) -> Meaning | None:
        if self._world is None:
            return None
        if chain not in self._chains:
            try:
                self._chains[chain] = reverse.meanings(self._world, chain, self._version)
            except MuslinError:
                self._chains[chain] = []
        known = self._chains[chain]
        return next((each for each in known if each.node in ("", node)), None)


def without_hash(comment: str) -> str:
    """A comment without felix's own mark."""
    parts = [part.strip() for part in comment.split(";")]
    return "; ".join(part for part in parts if part and not part.startswith(_HASH))
