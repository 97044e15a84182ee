"""What the fast tier asks one back end, in turns; full size asks all of them.

A case of these files means the same on every back end, and each back end's writer has tests of
its own (tests/linux, tests/felix/kernel/test_backends.py). So of the products of cases and back
ends the fast tier takes every case once: the first case of a file on its first back end, the next
one on the next, shifted by one after each round: families, which often alternate too, meet every
back end. What a room thins itself (its conftest.py) is not in here: thinned twice, a back end would
meet next to nothing. What is named by hand (`./run test PATH`) meets them all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_BACKEND = re.compile(r"(?<![a-z])(?:nftables|nft|legacy)(?![a-z])")
# Files, or single tests of a file.
IN_TURNS = (
    "tests/advisories/test_router_advertisements.py",
    "tests/advisories/test_tunnels.py",
    "tests/cyclonus/test_families.py",
    "tests/felix/kernel/test_flows.py",
    "tests/felix/kernel/test_foreign_rules.py::test_two_writers_lose_nothing",
    "tests/felix/kernel/test_hosts.py",
    "tests/felix/kernel/test_limits.py",
    "tests/felix/kernel/test_policy_packets.py",
    "tests/felix/kernel/test_restart_matrix.py::test_the_probes_hear_a_leak_and_miss_what_is_lost",
    "tests/trace/test_trace_policy.py",
)


def left_out(nodeids: Sequence[str], in_turns: Sequence[str] = IN_TURNS) -> set[str]:
    """What another back end's turn stands for. Pure; a case of one back end alone stays."""
    cases: dict[str, dict[str, dict[str, str]]] = {}
    for nodeid in nodeids:
        test, _, words = nodeid.partition("[")
        file = test.partition("::")[0]
        found = _BACKEND.search(words)
        if found and (file in in_turns or test in in_turns):
            name = f"{test}[{words[: found.start()]}*{words[found.end() :]}"
            cases.setdefault(file, {}).setdefault(name, {})[found.group()] = nodeid
    left: set[str] = set()
    for named in cases.values():
        shared = [one for one in named.values() if len(one) > 1]
        for number, one in enumerate(shared):
            kept = list(one)[(number + number // len(one)) % len(one)]
            left |= {nodeid for backend, nodeid in one.items() if backend != kept}
    return left
