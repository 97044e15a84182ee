"""Write `docs/invariants.md`: what always holds, from the docstrings that say so.

A docstring of a module, or the first comment of a file in C, declares an invariant in a line of
its own (`ID  Sentence`, `ID: sentence`) or in a sentence (`Invariant ID: sentence`).
Below `tests` only the last form counts, and a block that begins with `Invariants:`. Every other
mention cites. Run by `./run invariants`; `--check` fails when the page is stale. `./run lint`
also looks whether ids are unique and whether each one that is cited is declared (`problems`).
Tested in tests/support/test_invariants.py.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.listed import ROOT, texts

PATTERNS = ("*.py", "*.c", "*.h", "*.md", "*.patch")
"""The files that may declare or cite."""
PAGE = "docs/invariants.md"
GENERATED = (PAGE, "docs/promises.md", "docs/promises.tsv", "docs/cni-conformance.md")
"""Pages whose ids come from elsewhere."""

_ID = r"[A-Z][A-Z0-9]*-[1-9][0-9]*"
_CITED = re.compile(r"(?<![\w-])([A-Z][A-Z0-9]*)-(\d+)(?![\w-])")
_LINE = re.compile(rf"(?P<indent> *)(?P<id>{_ID})(?:  +|: )(?P<text>\S.*)")
_SENTENCE = re.compile(rf"\bInvariant (?P<id>{_ID}):\s+(?P<text>.*)", re.DOTALL)
_BLOCK = re.compile(r"Invariants?\b.*:$")
_END = re.compile(r"\s*(?:\bTested in\b|\bSources?:|\bProtocol:|\(tests/).*", re.DOTALL)
_TEST = re.compile(r"(?:tests/[\w/]*?)?test_[\w*]+\.py")


class Invariant(NamedTuple):
    """What one docstring declares."""

    id: str
    sentence: str
    file: str
    tests: tuple[str, ...]
    """Those that the docstring names; paths where the file is known."""


def declared(files: Mapping[str, str]) -> list[Invariant]:
    """All invariants of these files, by id and file. Pure."""
    known: dict[str, list[str]] = {}
    for each in files:
        if each.startswith("tests/"):
            known.setdefault(each.rpartition("/")[2], []).append(each)
    found = [
        Invariant(name, sentence, file, _tests(doc, file, known))
        for file, text in files.items()
        if file.endswith((".py", ".c")) and not Path(file).name.startswith("test_")
        for doc in [_docstring(file, text)]
        for name, sentence in _declarations(doc, in_blocks=file.startswith("tests/"))
    ]
    return sorted(found, key=lambda each: (_order(each.id), each.file))


def _docstring(file: str, text: str) -> str:
    if file.endswith(".c"):
        comment = text.partition("/*")[2].partition("*/")[0]
        return "\n".join(re.sub(r"^ \* ?", "", line) for line in comment.splitlines())
    return ast.get_docstring(ast.parse(text)) or ""


def _declarations(doc: str, *, in_blocks: bool) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for paragraph in re.split(r"\n[ \t]*\n", doc):
        if whole := _SENTENCE.search(paragraph):
            found.append((whole["id"], _plain(whole["text"])))
            continue
        lines = paragraph.splitlines()
        counts = not in_blocks or any(_BLOCK.match(line) for line in lines)
        found += _in_lines(lines) if counts else []
    return found


def _in_lines(lines: Iterable[str]) -> list[tuple[str, str]]:
    """The declarations that begin a line; a line that is indented less ends the one before."""
    found: list[tuple[str, list[str]]] = []
    within = None
    for line in lines:
        if match := _LINE.fullmatch(line):
            within = len(match["indent"])
            found.append((match["id"], [match["text"]]))
        elif within is not None and _goes_on(line, within):
            found[-1][1].append(line.strip())
        else:
            within = None
    return [(name, _plain(" ".join(parts))) for name, parts in found]


def _goes_on(line: str, indent: int) -> bool:
    """Whether a line belongs to the declaration above, which has this indent."""
    return line.startswith(" " * indent) and not (indent == 0 and _END.match(line))


def _plain(text: str) -> str:
    """One line that begins with a capital, without what is said of tests and sources."""
    sentence = " ".join(_END.sub("", text).split())
    return sentence[:1].upper() + sentence[1:]


def _tests(doc: str, file: str, known: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The tests that the docstring names; a bare name is one of the folder before, or of the room.

    A file that names none has the test of its own name. `known`: the paths of each test's name.
    """
    found: dict[str, None] = {}
    folder = f"tests/{file.split('/')[0]}"
    for name in _TEST.findall(doc) or [f"test_{Path(file).stem}.py"]:
        if "/" in name:
            folder = name.rpartition("/")[0]
            found[name] = None
            continue
        places = known.get(name, ())
        near = [each for each in places if each.rpartition("/")[0] == folder]
        room = [each for each in places if each.split("/")[1] == file.split("/")[0]]
        found.update(dict.fromkeys((near or room or places)[:1]))
    return tuple(found)


def _order(name: str) -> tuple[str, int]:
    prefix, _, number = name.rpartition("-")
    return prefix, int(number)


def problems(
    invariants: Iterable[Invariant], files: Mapping[str, str], others: Iterable[str]
) -> list[str]:
    """Ids that two declare, and ids that nothing declares. Pure.

    `invariants` are those of the files. `others` are ids of other lists, promises and the CNI
    checklist: no invariant has one of them, with or without zeros in front of its number, and all
    of them may be cited.
    """
    place = {_order(name): "a promise or of the checklist" for name in others}
    found: list[str] = []
    for each in invariants:
        if first := place.get(_order(each.id)):
            found.append(f"{each.file}: {each.id} is an id of {first}, too")
        place.setdefault(_order(each.id), each.file)
    prefixes = {prefix for prefix, _ in place}
    for file, text in files.items():
        names = set() if file in GENERATED else {match[0] for match in _CITED.finditer(text)}
        orders = {name: _order(name) for name in names}
        lost = sorted(
            name for name, order in orders.items() if order[0] in prefixes and order not in place
        )
        found += [f"{file}: {name} is declared nowhere" for name in lost]
    return found


def render(invariants: Iterable[Invariant]) -> str:
    """The page, as Markdown. Pure."""
    rows = list(invariants)
    lines = [
        "# Invariants",
        "",
        "Generated by `./run invariants` from the docstrings of the files, which declare them.",
        "",
        f"{len(rows)} invariants. A docstring or a test that has an id in parentheses cites it.",
        "",
        "| id | what always holds | file | tests that the file names |",
        "|---|---|---|---|",
    ]
    for name, sentence, file, tests in rows:
        shown = "<br>".join(f"`{test}`" for test in tests)
        sentence = sentence.replace("|", "\\|")
        lines.append(f"| {name} | {sentence} | `{file}` | {shown} |")
    return "\n".join(lines) + "\n"


def other_ids() -> set[str]:
    """The ids of the promises and of the CNI checklist."""
    lists = (ROOT / "docs/promises.tsv", ROOT / "tests/cni_conformance/checklist.tsv")
    lines = [line for path in lists for line in path.read_text().splitlines()]
    return {line.split("\t")[0] for line in lines if line and not line.startswith("#")}


def complaints(files: Mapping[str, str]) -> list[str]:
    """What `./run lint` says: problems of ids, and a page that is stale."""
    invariants = declared(files)
    found = problems(invariants, files, other_ids())
    if files.get(PAGE) != render(invariants):
        found.append(f"{PAGE} is not what the docstrings say: ./run invariants writes it")
    return found


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` compare it."""
    files = texts(*PATTERNS)
    if "--check" not in arguments:
        (ROOT / PAGE).write_text(render(declared(files)))
        return 0
    found = complaints(files)
    sys.stderr.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
