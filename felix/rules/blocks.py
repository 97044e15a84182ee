"""A choice of many in a language that only knows "all of": blocks of rules over two scratch marks.

A rule of iptables is a conjunction. A policy rule may ask for one of several networks and one
of several ports at once. Each such choice becomes a block: its alternatives are rules that set
a mark, and the rule itself asks for the mark (docs/reference/dataplane.md#policy-chains).

`scratch0` says "all blocks so far hold", `scratch1` "this block holds". A negated block (none of
several networks) clears `scratch0` where one of them matches.

Invariants:
  MBK-1  `scratch0` is set after the blocks exactly if every positive block had a matching
         alternative and no negated block had one; the marks before do not matter.
  MBK-2  `scratch1` is cleared before each block that uses it: what an earlier block found
         never speaks for a later one.
Tested in tests/felix/rules/test_policy_rules.py, test_policy_truth.py, test_policy_packets.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from felix.rules.model import Condition, Marks, Rule, SetMark, clear_bits, is_clear, set_bits

Alternative = tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """One of `alternatives` must hold; negated: none of them may."""

    alternatives: tuple[Alternative, ...]
    negated: bool = False


def block_rules(blocks: Sequence[Block], marks: Marks) -> list[Rule]:
    """The rules that leave `scratch0` set exactly if all blocks hold (MBK-1)."""
    if not blocks:
        return []
    both = marks.scratch0 | marks.scratch1
    # A negated block can only take back: in front, all is well so far.
    rules = [Rule(SetMark(marks.scratch0 if blocks[0].negated else 0, both))]
    for number, block in enumerate(blocks):
        if block.negated:
            rules += [Rule(clear_bits(marks.scratch0), each) for each in block.alternatives]
        elif number == 0:
            rules += [Rule(set_bits(marks.scratch0), each) for each in block.alternatives]
        else:
            if any(not earlier.negated for earlier in blocks[1:number]):
                rules.append(Rule(clear_bits(marks.scratch1)))
            rules += [Rule(set_bits(marks.scratch1), each) for each in block.alternatives]
            rules.append(Rule(clear_bits(marks.scratch0), (is_clear(marks.scratch1),)))
    return rules
