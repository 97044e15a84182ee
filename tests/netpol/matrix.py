"""Who should reach whom, who does, and the two side by side for a person to read.

An expectation starts with every pair open and is narrowed or widened by lines in order:
`no */* -> x/*` closes, `yes y/* -> x/a` opens again. A pod to itself is left out, since systems
differ there and the Kubernetes suite leaves it out too.
Pure; tested in tests/netpol/test_matrix.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import permutations

Pair = tuple[str, str]
SILENT = "silent"


def expectation(pods: Sequence[str], lines: Iterable[str]) -> dict[Pair, bool]:
    """Ordered pair -> whether it should be open; ValueError for a line that names no pair."""
    expected = dict.fromkeys(permutations(pods, 2), True)
    for line in lines:
        word, _, pattern = line.partition(" ")
        source, arrow, target = pattern.partition(" -> ")
        hit = [
            pair
            for pair in expected
            if fnmatchcase(pair[0], source) and fnmatchcase(pair[1], target)
        ]
        if word not in ("yes", "no") or not arrow or not hit:
            raise ValueError(f"{line!r}: allowed is `yes|no NS/POD -> NS/POD`, `*` for any")
        expected.update(dict.fromkeys(hit, word == "yes"))
    return expected


def as_wanted(expected: bool, answer: str, target: str) -> bool:
    """Open means that the target itself answered; closed means silence and nothing else."""
    return answer == (f"ok {target}" if expected else SILENT)


def differences(expected: Mapping[Pair, bool], observed: Mapping[Pair, str]) -> list[Pair]:
    """The pairs that are not as expected."""
    return [
        pair for pair, open_ in expected.items() if not as_wanted(open_, observed[pair], pair[1])
    ]


def mark(answer: str, target: str) -> str:
    """One letter for an answer."""
    if answer == f"ok {target}":
        return "."
    return {SILENT: "X", "refused": "R"}.get(answer, "?")


def table(expected: Mapping[Pair, bool], observed: Mapping[Pair, str]) -> str:
    """Rows are sources, columns targets; a wrong cell shows `expected>observed`."""
    pods = list(dict.fromkeys(pair[0] for pair in expected))
    width = max(5, *(len(pod) + 1 for pod in pods))
    lines = [" " * width + "".join(f"{pod:>{width}}" for pod in pods)]
    wrong = set(differences(expected, observed))
    for source in pods:
        cells = []
        for target in pods:
            pair = source, target
            if source == target:
                cells.append("-")
                continue
            seen = mark(observed[pair], target)
            cells.append(f"{'.' if expected[pair] else 'X'}>{seen}" if pair in wrong else seen)
        lines.append(f"{source:<{width}}" + "".join(f"{cell:>{width}}" for cell in cells))
    said = [f"{source} -> {target}: {observed[source, target]}" for source, target in sorted(wrong)]
    legend = ". open, X silence, R refused, ? other; expected>observed where they differ"
    return "\n".join([*lines, legend, *said])
