"""Counts what a reader of the product's code stumbles over; `./run lint --count` prints it.

The product is the Python files of the shipped rooms, without generated stubs. Each figure is a
goal of its own: large files, long functions, wide classes, words that name nothing. Tested in
tests/support/test_counters.py.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Mapping
from io import StringIO
from pathlib import Path, PurePath

from tests import prose

ROOMS = (
    "linux",
    "libcalico",
    "ipam",
    "flows",
    "felix",
    "bgp",
    "cni",
    "controllers",
    "node",
    "calicoctl",
    "web",
)
LARGE, MEDIUM = 450, 250
LONG_FUNCTION, WIDE_CLASS, COMPLEX, FULL_FOLDER = 60, 20, 20, 25
VAGUE = frozenset(("found", "wanted", "held", "told"))
SHARE = 0.9
"""Of the files so many must be shorter than `MEDIUM`."""
MOST = {"vague names": 100, "Any": 150, "take": 3, "pronouns": 19}
"""Budgets: uses of names that name nothing, of `Any`, files that define `take`, and the words
nobody, somebody, anybody, whoever, whatever in docstrings, comments and docs."""

Source = Mapping[str, str]
Function = ast.FunctionDef | ast.AsyncFunctionDef
SILENT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip


def product(root: Path, names: list[Path]) -> dict[str, str]:
    """The text of the product's files among these, by path below the root."""
    relative = [path.relative_to(root) for path in names]
    ours = [path for path in relative if path.parts[0] in ROOMS and "_pb2" not in path.name]
    return {str(path): (root / path).read_text() for path in ours}


def report(root: Path, names: list[Path]) -> list[str]:
    """One line for each counter of prose and code, then the long sentences by place."""
    source = product(root, names)
    written = prose.pages(root)
    measure = prose.measured(prose.all_sentences(written))
    lengths = [len(text.splitlines()) for text in source.values()]
    small = sum(length < MEDIUM for length in lengths)
    return [
        f"prose: sentences {measure.sentences}",
        f"prose: mean words a sentence {measure.mean:.1f}",
        f"prose: sentences above {prose.LONGEST} words {len(measure.long)}",
        f"prose: pronouns in docs {sum(prose.pronouns(text) for text in written.values())}",
        "prose: pronouns in docstrings and comments "
        f"{sum(prose.pronouns(prose.remarks(text)) for text in source.values())}",
        f"code: files {len(source)}",
        f"code: files over {LARGE} lines {sum(length > LARGE for length in lengths)}",
        f"code: files over {MEDIUM} lines {sum(length > MEDIUM for length in lengths)}",
        f"code: share of files under {MEDIUM} lines {small / len(lengths):.1%}",
        f"code: functions over {LONG_FUNCTION} lines {len(long_functions(source))}",
        f"code: classes with over {WIDE_CLASS} attributes {len(wide_classes(source))}",
        f"code: functions of complexity over {COMPLEX} {complex_functions(root, list(source))}",
        f"code: folders with over {FULL_FOLDER} files {len(full_folders(source))}",
        f"code: lines of code {sum(code_lines(text) for text in source.values())}",
        f"code: uses of {'/'.join(sorted(VAGUE))} "
        f"{sum(uses(text, VAGUE) for text in source.values())}",
        f"code: uses of Any {sum(uses(text, {'Any'}) for text in source.values())}",
        f"code: files that define take {len(definers(source, 'take'))}",
        *(f"{one.place}: {one.words} words" for one in measure.long),
        *long_functions(source),
        *wide_classes(source),
        *full_folders(source),
    ]


def complaints(root: Path, names: list[Path]) -> list[str]:
    """What `./run lint` refuses of these counts."""
    source = product(root, names)
    lengths = {name: len(text.splitlines()) for name, text in source.items()}
    small = sum(length < MEDIUM for length in lengths.values())
    wrong = [f"{name}: {n} lines, at most {LARGE}" for name, n in lengths.items() if n > LARGE]
    if small < SHARE * len(lengths):
        wrong.append(f"{len(lengths) - small} of {len(lengths)} files have {MEDIUM} lines or more")
    wrong += [f"{one}: over {LONG_FUNCTION} lines" for one in long_functions(source)]
    wrong += [f"{one}: over {WIDE_CLASS} attributes" for one in wide_classes(source)]
    wrong += [f"{one}, at most {FULL_FOLDER}" for one in full_folders(source)]
    if many := complex_functions(root, list(source)):
        wrong.append(f"{many} functions are more complex than {COMPLEX}: ruff's C901 names them")
    remarks = sum(prose.pronouns(prose.remarks(text)) for text in source.values())
    counts = {
        "vague names": sum(uses(text, VAGUE) for text in source.values()),
        "Any": sum(uses(text, {"Any"}) for text in source.values()),
        "take": len(definers(source, "take")),
        "pronouns": remarks + sum(prose.pronouns(text) for text in prose.pages(root).values()),
    }
    wrong += over_budget(counts)
    return wrong


def over_budget(counts: Mapping[str, int]) -> list[str]:
    """Complaints about counts that are larger than their budget. Pure."""
    return [f"{what}: {n}, at most {MOST[what]}" for what, n in counts.items() if n > MOST[what]]


def long_functions(source: Source) -> list[str]:
    """Functions that have too many lines, decorators not counted. Pure."""
    return [
        f"{name}:{node.lineno}: {node.name}"
        for name, text in source.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, Function) and _length(node) > LONG_FUNCTION
    ]


def wide_classes(source: Source) -> list[str]:
    """Classes that assign more attributes to `self` than a reader keeps in mind. Pure."""
    return [
        f"{name}:{node.lineno}: {node.name}"
        for name, text in source.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef) and len(_assigned(node)) > WIDE_CLASS
    ]


def full_folders(source: Source) -> list[str]:
    """Folders that hold too many files of the product. Pure."""
    files = Counter(str(PurePath(name).parent) for name in source)
    return [f"{folder}/: {n} files" for folder, n in sorted(files.items()) if n > FULL_FOLDER]


def code_lines(text: str) -> int:
    """Lines with code: no blank line, no comment, no docstring. Pure."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if token.type not in SILENT:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - _docstring_lines(ast.parse(text)))


def uses(text: str, names: frozenset[str] | set[str]) -> int:
    """How often the syntax tree has one of these as a name, parameter or keyword. Pure."""
    return sum(_named(node) in names for node in ast.walk(ast.parse(text)))


def definers(source: Source, function: str) -> list[str]:
    """Files that define a function or method of this name. Pure."""
    return [
        name
        for name, text in source.items()
        if any(
            isinstance(node, Function) and node.name == function
            for node in ast.walk(ast.parse(text))
        )
    ]


def complex_functions(root: Path, names: list[str]) -> int:
    """How many functions ruff calls too complex (C901)."""
    ruff = Path(sys.executable).parent / "ruff"
    limit = f"lint.mccabe.max-complexity={COMPLEX}"
    options = ["--isolated", "--select", "C901", "--config", limit, "--output-format", "concise"]
    done = subprocess.run(
        [str(ruff), "check", *options, *names],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return sum(" C901 " in line for line in done.stdout.splitlines())


def _length(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _assigned(node: ast.ClassDef) -> set[str]:
    """Attributes that are stored on a name `self` anywhere in the class."""
    return {
        one.attr
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute)
        and isinstance(one.ctx, ast.Store)
        and isinstance(one.value, ast.Name)
        and one.value.id == "self"
    }


def _docstring_lines(tree: ast.Module) -> set[int]:
    """Lines of strings that stand alone: docstrings of modules, classes, functions, attributes."""
    strings = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    return {line for node in strings for line in range(node.lineno, (node.end_lineno or 0) + 1)}


def _named(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name):
            return name
        case ast.arg(arg=name) | ast.keyword(arg=name):
            return name
        case _:
            return None
