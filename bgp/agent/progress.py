"""How far the start of the agent has come. Nothing of it is ever taken back.

Tested in tests/bgp/test_agent.py and test_agent_routing.py.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Progress:
    """`complete`: the datastore has said everything once. `in_sync`: it is decided from that.

    `announced`: the speaker has our routes. `told_all`: it withholds nothing.
    """

    complete: bool = False
    in_sync: bool = False
    announced: bool = False
    told_all: bool = False
