"""The oracle's own reading of the selector language (docs/reference/data-model.md#selectors), naive
on purpose.

It shares nothing with `libcalico.selectors`: recursive descent over the text, nested tuples as
tree, evaluation by walking the tree. Tested against hand-written tables in test_oracle.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

Tree = tuple[Any, ...]
Labels = dict[str, str]
LABEL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-")
NAMESPACE = "projectcalico.org/namespace"

# Of an absent label (None) only the two negative ones are true.
OPERATORS: dict[str, Callable[[str | None, Any], bool]] = {
    "==": lambda have, want: have is not None and have == want,
    "!=": lambda have, want: have is None or have != want,
    "in": lambda have, want: have is not None and have in want,
    "not in": lambda have, want: have is None or have not in want,
    "contains": lambda have, want: have is not None and want in have,
    "starts with": lambda have, want: have is not None and have[: len(want)] == want,
    "ends with": lambda have, want: have is not None and want == have[len(have) - len(want) :],
    "has": lambda have, want: have is not None,
}


class BadSelector(ValueError):
    """The text is no selector."""


class Reader:
    """Recursive descent: or -> and -> not -> primary."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0

    def blank(self) -> None:
        while self.text[self.place : self.place + 1] in {" ", "\t"}:
            self.place += 1

    def sees(self, word: str) -> bool:
        self.blank()
        return self.text[self.place :].startswith(word)

    def take(self, word: str) -> bool:
        if self.sees(word):
            self.place += len(word)
            return True
        return False

    def need(self, word: str) -> None:
        if not self.take(word):
            raise BadSelector(f"{word} expected at {self.place} of {self.text}")

    def everything(self) -> Tree:
        self.blank()
        if self.place == len(self.text):
            return ("all",)
        tree = self.disjunction()
        self.blank()
        if self.place != len(self.text):
            raise BadSelector(f"end expected at {self.place} of {self.text}")
        return tree

    def disjunction(self) -> Tree:
        tree = self.conjunction()
        while self.take("||"):
            tree = ("or", tree, self.conjunction())
        return tree

    def conjunction(self) -> Tree:
        tree = self.negation()
        while self.take("&&"):
            tree = ("and", tree, self.negation())
        return tree

    def negation(self) -> Tree:
        if self.take("!"):
            return ("not", self.negation())
        return self.primary()

    def primary(self) -> Tree:
        if self.take("("):
            tree = self.disjunction()
            self.need(")")
            return tree
        for name in ("all", "global"):
            if self.take(f"{name}("):
                self.need(")")
                return (name,)
        if self.take("has("):
            tree = ("has", self.word(), None)
            self.need(")")
            return tree
        label = self.word()
        if self.take("=="):
            return ("==", label, self.string())
        if self.take("!="):
            return ("!=", label, self.string())
        operator = self.word()
        if operator in {"not", "starts", "ends"}:
            operator = f"{operator} {self.word()}"
        operator = {"notin": "not in", "startswith": "starts with", "endswith": "ends with"}.get(
            operator, operator
        )
        if operator in {"in", "not in"}:
            return (operator, label, self.strings())
        if operator in {"contains", "starts with", "ends with"}:
            return (operator, label, self.string())
        raise BadSelector(f"no operator {operator!r} in {self.text}")

    def word(self) -> str:
        self.blank()
        begin = self.place
        while self.place < len(self.text) and self.text[self.place] in LABEL:
            self.place += 1
        if begin == self.place:
            raise BadSelector(f"name expected at {begin} of {self.text}")
        return self.text[begin : self.place]

    def string(self) -> str:
        self.blank()
        quote = self.text[self.place : self.place + 1]
        end = self.text.find(quote, self.place + 1) if quote in {"'", '"'} else -1
        if end < 0:
            raise BadSelector(f"quoted value expected at {self.place} of {self.text}")
        value = self.text[self.place + 1 : end]
        self.place = end + 1
        return value

    def strings(self) -> frozenset[str]:
        self.need("{")
        found: set[str] = set()
        while not self.take("}"):
            found.add(self.string())
            if not self.take(","):
                self.need("}")
                break
        return frozenset(found)


@lru_cache(maxsize=65536)
def parse(text: str) -> Tree:
    """The tree of a selector; BadSelector when it is none."""
    return Reader(text).everything()


def holds(
    tree: Tree, labels: Labels, *, prefix: str = "", all_means: Callable[[Labels], bool] | None
) -> bool:
    """Whether the labels satisfy the tree.

    `prefix` stands before every label of the tree (pcns., pcsa.); `all_means` is what `all()`
    says about labels where it does not say yes to everything
    (docs/reference/data-model.md#selectors-as-enforced).
    """
    match tree[0]:
        case "all":
            return all_means is None or all_means(labels)
        case "global":
            return NAMESPACE not in labels
        case "and":
            return all(holds(one, labels, prefix=prefix, all_means=all_means) for one in tree[1:])
        case "or":
            return any(holds(one, labels, prefix=prefix, all_means=all_means) for one in tree[1:])
        case "not":
            return not holds(tree[1], labels, prefix=prefix, all_means=all_means)
    return OPERATORS[tree[0]](labels.get(prefix + tree[1]), tree[2])


def operators(tree: Tree) -> Iterator[str]:
    """The operators of a tree, `all` and `global` included."""
    yield tree[0]
    if tree[0] in {"and", "or", "not"}:
        for one in tree[1:]:
            yield from operators(one)
