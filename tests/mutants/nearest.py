"""Which tests are nearest to a module: those that import it, directly or by few steps."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

TOP = (
    "linux", "libcalico", "ipam", "flows", "felix", "bgp", "cni", "controllers", "node",
    "calicoctl", "web", "lab", "tests",
)  # fmt: skip
NAMED = re.compile(r"tests/[a-z_0-9/]+/test_[a-z_0-9]+\.py")
WORD = re.compile(r"\w+")
FAR = 4
"""Import steps beyond which a test says nothing of a module."""
OUTSIDE = re.compile(r"etcd|netns|subprocess|\bworld\b|\blab\b|\bprocess\b|\bnode_server\b")
"""What a file of tests says that needs the system around it, and so takes longer."""


def modules(root: Path) -> dict[str, Path]:
    """Module name -> path below the root, of everything that is ours."""
    files = (file.relative_to(root) for top in TOP for file in (root / top).rglob("*.py"))
    return {".".join(_parts(file)): file for file in files}


def _parts(file: Path) -> tuple[str, ...]:
    plain = file.with_suffix("").parts
    return plain[:-1] if plain[-1] == "__init__" else plain


def imports(text: str, known: Iterable[str]) -> set[str]:
    """Which known modules a source imports. Pure."""
    ours = known if isinstance(known, (set, dict)) else set(known)
    return {name for name in _named(ast.parse(text)) if name in ours}


def _named(tree: ast.AST) -> Iterator[str]:
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement, at any depth. Expressions, which are most of a tree, hold none."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        inside = getattr(tree, name, None)
        for node in inside if isinstance(inside, list) else ():
            yield node
            yield from _statements(node)


def _said(where: str) -> list[str]:
    """The names of a qualified name that a test may say: plain ones alone. Pure."""
    return [one for one in where.split(".") if one and not one.startswith(("_", "("))]


class Nearest:
    """The import graph of a tree, asked for tests.

    What it answers goes by the texts alone, so it is the same on every machine.
    """

    def __init__(self, root: Path) -> None:
        self._files = modules(root)
        self._texts = {name: (root / file).read_text() for name, file in self._files.items()}
        self._importers: dict[str, set[str]] = defaultdict(set)
        for name, text in self._texts.items():
            for imported in imports(text, self._files):
                self._importers[imported].add(name)

    def tests(self, file: str, most: int, where: str = "") -> list[str]:
        """Files of tests, the nearest first, at most `most`; of equally near ones quick ones first.

        A test of the same room is two steps nearer, one that has the module's name one; so is one
        that says a name of `where`, the qualified name of what is changed.
        """
        module = ".".join(_parts(Path(file)))
        distances = self._distances(module)
        named = set(NAMED.findall(self._texts[module]))
        said = _said(where)
        ranked = sorted(
            (
                self._rank(module, name, steps, str(self._files[name]) in named)
                - len(self._words(name).intersection(said)),
                not self._alone(name),
                str(self._files[name]),
            )
            for name, steps in distances.items()
            if self._files[name].name.startswith("test_")
        )
        return [path for _, _, path in ranked[:most]]

    def quick(self, file: str) -> bool:
        """Whether a file of tests needs no more than itself."""
        return self._alone(".".join(_parts(Path(file))))

    @cache  # noqa: B019
    def _alone(self, name: str) -> bool:
        return not OUTSIDE.search(self._texts[name])

    @cache  # noqa: B019
    def _words(self, name: str) -> set[str]:
        return set(WORD.findall(self._texts[name]))

    def _rank(self, module: str, test: str, steps: int, named: bool) -> float:
        own = module.split(".")[0] in test.split(".")[1:2]
        stem = module.split(".")[-1]
        alike = stem in test.split(".")[-1]
        return steps - 1.5 * named - 2 * own - alike

    def _distances(self, module: str) -> dict[str, int]:
        found, edge = {module: 0}, {module}
        for steps in range(1, FAR + 1):
            edge = {i for name in edge for i in self._importers[name]} - found.keys()
            found |= dict.fromkeys(edge, steps)
        return found
