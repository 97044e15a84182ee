"""Measures the prose of the documentation: sentences, their length, pronouns without a referent.

Prose is what stands in paragraphs and list items of the pages that people write. Headings, tables,
code blocks, lists of links and the generated pages are left out. A code span counts as one word, a
link as the words of its text. Used by `./run lint`; tested in tests/support/test_prose.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

LONGEST = 30
"""Words that a sentence may have."""
MEAN = 16.0
"""Words that the sentences may have in the mean."""

MOST_PRONOUNS = 19
"""Uses of nobody, somebody, anybody, whoever and whatever in all pages."""

GENERATED = frozenset(
    f"docs/{page}.md"
    for page in (
        "cni-conformance",
        "felix-configuration",
        "invariants",
        "fields",
        "promises",
        "rbac",
        "where-is",
    )
)
"""Pages that a command writes, or that are one table."""

PRONOUNS = re.compile(r"\b(?:nobody|somebody|anybody|whoever|whatever)\b", re.IGNORECASE)
ABSENT = re.compile(r"\b(?:not yet|this release|ours does not)\b", re.IGNORECASE)
REFERENCE = re.compile(r"\b(?:[MF]-\d+|PAIN-\d+|ADV-[\w-]+)|roadmap\.md")

_INDENT = " " * 4  # of code, where no paragraph goes on
_FENCE = re.compile(r"\s*(?:```|~~~)")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"(`+)(?:(?!\1).)+\1")
_END = re.compile(r"""(?<=[.!?])["'*_)]*\s+""")
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|No|St)\.$")
_WORD = re.compile(r"\w")


@dataclass(frozen=True)
class Sentence:
    """A sentence and the place where it begins."""

    file: str
    line: int
    text: str

    @property
    def words(self) -> int:
        """How many words it has: a code span is one, a sign without a letter is none."""
        plain = _LINK.sub(r"\1", _CODE.sub("code", self.text))
        return sum(1 for word in plain.split() if _WORD.search(word))

    @property
    def place(self) -> str:
        """`file:line`, as an editor opens it."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Measure:
    """What the counter says of a set of sentences."""

    sentences: int
    mean: float
    long: tuple[Sentence, ...]


def sentences(file: str, text: str) -> list[Sentence]:
    """The sentences of one page of Markdown, in order. Pure."""
    return [
        sentence
        for first, lines in _paragraphs(text)
        if not _is_list_of_links(" ".join(lines))
        for sentence in _divided(file, first, lines)
    ]


def measured(found: Iterable[Sentence]) -> Measure:
    """Number, mean length, and the sentences above the limit, the longest first. Pure."""
    counted = [(one.words, one) for one in found if one.words]
    total = sum(words for words, _ in counted)
    long = sorted((pair for pair in counted if pair[0] > LONGEST), key=lambda pair: -pair[0])
    mean = total / len(counted) if counted else 0.0
    return Measure(len(counted), mean, tuple(one for _, one in long))


def pronouns(text: str) -> int:
    """How often the text says nobody, somebody, anybody, whoever or whatever. Pure."""
    return len(PRONOUNS.findall(text))


def unreferenced(found: Iterable[Sentence]) -> list[Sentence]:
    """Sentences that say what is missing, and name no promise and no row of the roadmap. Pure."""
    return [one for one in found if ABSENT.search(one.text) and not REFERENCE.search(one.text)]


def complaints(written: Mapping[str, str]) -> list[str]:
    """What `./run lint` refuses in these pages (text by path). Pure."""
    counted = all_sentences(written)
    measure = measured(counted)
    said = sum(pronouns(text) for text in written.values())
    wrong = [f"{one.place}: {one.words} words, at most {LONGEST}" for one in measure.long]
    wrong += [
        f"{one.place}: name the promise, or the row of docs/roadmap.md: {one.text}"
        for one in unreferenced(counted)
    ]
    if measure.mean > MEAN:
        wrong.append(f"a sentence has {measure.mean:.1f} words in the mean, at most {MEAN:.0f}")
    if said > MOST_PRONOUNS:
        wrong.append(
            f"nobody, somebody, anybody, whoever, whatever: {said}, at most {MOST_PRONOUNS}"
        )
    return wrong


def remarks(source: str) -> str:
    """All docstrings and comments of a Python file, one below the other. Pure."""
    places = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documented = [node for node in ast.walk(ast.parse(source)) if isinstance(node, places)]
    texts = [ast.get_docstring(node) or "" for node in documented]
    comments = [line.partition("# ")[2] for line in source.splitlines() if "# " in line]
    return "\n".join([*texts, *comments])


def pages(root: Path) -> dict[str, str]:
    """The pages that people write, by their path below the root."""
    paths = [root / "README.md", root / "CONTRIBUTING.md", *sorted(root.glob("docs/**/*.md"))]
    named = {str(path.relative_to(root)): path for path in paths}
    return {name: path.read_text() for name, path in named.items() if name not in GENERATED}


def all_sentences(written: Mapping[str, str]) -> list[Sentence]:
    """The sentences of these pages (text by path). Pure."""
    return [one for name, text in written.items() for one in sentences(name, text)]


def _paragraphs(text: str) -> Iterator[tuple[int, list[str]]]:
    """Paragraphs and list items, each with the number of its first line."""
    block: list[str] = []
    first, fenced = 1, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fence = _FENCE.match(line) is not None
        item = _ITEM.match(line)
        code = fence or fenced or (not item and not block and line.startswith(_INDENT))
        breaks = code or not line.strip() or line.lstrip().startswith(("|", "#", "<"))
        if block and (breaks or item):
            yield first, block
            block = []
        fenced ^= fence
        if not breaks:
            first = first if block else number
            block.append(line[item.end() :] if item else line.strip())


def _is_list_of_links(paragraph: str) -> bool:
    """Whether links are most of the words."""
    links = _LINK.findall(paragraph)
    inside = sum(len(text.split()) for text in links)
    outside = len(_LINK.sub("", paragraph).split())
    return len(links) > 3 and inside > outside / 2


def _divided(file: str, first: int, lines: list[str]) -> Iterator[Sentence]:
    """The sentences of one paragraph, each with the line on which it begins."""
    text = "\n".join(lines)
    hidden = _CODE.sub(lambda code: re.sub(r"[.!?\s]", "x", code.group()), text)
    begin = 0
    for end in _END.finditer(hidden):
        if _ABBREVIATION.search(hidden[begin : end.start()]):
            continue
        yield _sentence(file, first, text, begin, end.end())
        begin = end.end()
    yield _sentence(file, first, text, begin, len(text))


def _sentence(file: str, first: int, text: str, begin: int, end: int) -> Sentence:
    line = first + text.count("\n", 0, begin)
    return Sentence(file, line, " ".join(text[begin:end].split()))
