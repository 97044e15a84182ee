"""Rule hashes: a rule's comment names the rule, its place and all rules before it.

Problem: iptables rewrites what it is given (order of matches, spelling of masks), so text that
was written cannot be compared with text read back. Each rule therefore carries a hash in a
comment, and two chains are equal if their lists of hashes are.

h(0) = SHA224(chain), h(i) = SHA224(h(i-1) + text(i)); the published hash is the first 16
characters of unpadded base64url. The text holds the word HASH where the comment will stand. This
is the scheme of the reference (docs/reference/dataplane.md#chain-names-and-hashes), so a node taken
over keeps equal rules. In a chain whose rules exclude each other the order means nothing: there
h(i) = SHA224(h(0) + text(i)) with another h(0), so a rule can come and go without touching its
neighbours.

IPT-1: equal hash lists mean equal chains, position included.
Tested in tests/linux/test_iptables_plan.py against a dump of a real node.
"""

from __future__ import annotations

import binascii
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

HASH_LENGTH = 16
APPENDS = "*appends*"
UNORDERED = "*unordered*"
JUMP = r"(?:-j|--jump|-g|--goto) "
"""What stands before the target of a rule, as a pattern."""
_BYTES = HASH_LENGTH * 3 // 4
_URLSAFE = bytes.maketrans(b"+/", b"-_")


@dataclass(frozen=True, slots=True)
class HashScheme:
    """How our rules are recognised.

    `prefix` stands before each hash in the comment ("our:" gives "our:Cz_u1IQiXIMmKD4c");
    chains whose name starts with one of `chain_prefixes` are ours as a whole.
    """

    prefix: str
    chain_prefixes: tuple[str, ...]
    _pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)
    _jump: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        word = re.escape(self.prefix)
        put(
            self,
            "_pattern",
            re.compile(rf'--comment "?{word}([A-Za-z0-9_-]{{{HASH_LENGTH}}})"?(?:\s|$)'),
        )
        chains = "|".join(re.escape(prefix) for prefix in self.chain_prefixes)
        put(self, "_jump", re.compile(rf"{JUMP}(?:{chains})"))

    def owns(self, chain: str) -> bool:
        """Whether a chain is ours by its name."""
        return chain.startswith(self.chain_prefixes)

    def hashes(self, chain: str, rules: Sequence[str]) -> tuple[str, ...]:
        """The 16-character hash of each rule (text without "-A CHAIN")."""
        sha224 = hashlib.sha224
        digest, place = sha224(chain.encode()).digest(), f"-A {chain} HASH ".encode()
        digests = []
        for rule in rules:
            digest = sha224(digest + place + rule.encode()).digest()
            digests.append(digest)
        return _short(digests)

    def unordered(self, chain: str, rules: Sequence[str]) -> tuple[str, ...]:
        """The hash of each rule of a chain whose order means nothing."""
        sha224 = hashlib.sha224
        start = sha224((chain + UNORDERED).encode()).digest() + f"-A {chain} HASH ".encode()
        return _short([sha224(start + rule.encode()).digest() for rule in rules])

    def comment(self, rule_hash: str) -> str:
        """The match that carries a hash in the rule."""
        return f'-m comment --comment "{self.prefix}{rule_hash}"'

    def hash_in(self, rule: str) -> str:
        """The hash a saved rule carries, "" if it carries none of ours."""
        match = self._pattern.search(rule)
        return match.group(1) if match else ""

    def jumps_to_ours(self, rule: str) -> bool:
        """Whether a saved rule sends packets into one of our chains."""
        return self._jump.search(rule) is not None


def _short(digests: Sequence[bytes]) -> tuple[str, ...]:
    """The beginning of each digest, as text: of all of them at once, since each takes whole bytes
    of the base64 text."""
    packed = b"".join([digest[:_BYTES] for digest in digests])
    text = binascii.b2a_base64(packed, newline=False).translate(_URLSAFE).decode("ascii")
    return tuple([text[at : at + HASH_LENGTH] for at in range(0, len(text), HASH_LENGTH)])
