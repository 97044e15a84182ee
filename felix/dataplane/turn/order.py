"""What of a turn goes before which: rules first, or links and routes beside them. Pure.

A packet that comes by a link or a route must meet the rules that are meant for it (DPL-5, TDV-4).
An endpoint without its chains is dropped by the dispatch chains, so a route that is there first
opens nothing, and both may be written side by side. Except:

  | what is so                                       | order       | if the rules are refused      |
  |--------------------------------------------------|-------------|-------------------------------|
  | nothing was applied yet: no hook may stand       | RULES_FIRST | no endpoint gets a route      |
  | the kernel has chains for a new endpoint, which  | RULES_FIRST | these endpoints get no route  |
  | are not its own (it follows another)             |             |                               |
  | a tunnel would unwrap what no rule looks at      | RULES_FIRST | its device is not made        |
  | the back end wrote the rules at once             | WRITTEN     | it was not refused            |
  | none of these                                    | BESIDE      | the dispatch chains drop      |

Sets go before rules in any case, and what no rule asks any more goes last.
Tested in tests/felix/dataplane/test_order.py.
"""

from __future__ import annotations

from enum import Enum, auto


class Order(Enum):
    """When links and routes are written."""

    WRITTEN = auto()
    """Now: the rules are in the kernel."""
    RULES_FIRST = auto()
    """Once the rules have been written or refused."""
    BESIDE = auto()
    """While the rules are being written."""


def order(*, written: bool, applied: bool, exposed: bool, unguarded: bool) -> Order:
    """Which it is. `written`: the rules are in the kernel; `applied`: a commit went well once;
    `exposed`: an endpoint would meet the rules of another; `unguarded`: a tunnel's listener has
    no rules yet.
    """
    if written:
        return Order.WRITTEN
    if exposed or unguarded or not applied:
        return Order.RULES_FIRST
    return Order.BESIDE
