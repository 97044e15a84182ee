"""The parser of Calico's selector language: a text to the tree of its nodes, in one pass.

docs/reference/data-model.md#selectors: `k == 'v'`, `!=`, `in {...}`, `not in`, `contains`, `starts
with`, `ends with`, `has(k)`, `all()`, `global()`, `!`, `&&`, `||`, parentheses.
Tested in tests/libcalico/test_selector_grammar.py.
"""

from __future__ import annotations

import re

from libcalico.errors import InvalidValue
from libcalico.selectors.nodes import And, Compare, Constant, Has, InSet, Node, Not, Or, depth

MAX_LABEL = 512
MAX_DEPTH = 350
"""A deeper tree is refused, before Python's stack is. No text of 1024 characters, Calico's
limit for a selector in a resource, makes one."""

_LABEL = re.compile(r"[A-Za-z0-9_./-]+")
_STRING = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_SPACE = re.compile(r"[ \t]*")
_END = r"(?![A-Za-z0-9_./-])"
_OPERATORS = (
    (re.compile(r"=="), "=="),
    (re.compile(r"!="), "!="),
    (re.compile(rf"not[ \t]*in[ \t]*{_END}"), "not in"),
    (re.compile(rf"in{_END}"), "in"),
    (re.compile(rf"contains{_END}"), "contains"),
    (re.compile(rf"starts[ \t]*with[ \t]*{_END}"), "starts with"),
    (re.compile(rf"ends[ \t]*with[ \t]*{_END}"), "ends with"),
)
_FUNCTIONS = re.compile(r"(has|all|global)\([ \t]*")


def tree(text: str) -> Node:
    """The tree of a selector's text; the empty text selects all. Raises InvalidValue."""
    return _Parser(text).whole()


class _Level:
    """The text between two parentheses: alternatives of conjunctions, the last one open."""

    __slots__ = ("alternatives", "negated", "operands")

    def __init__(self, negated: bool) -> None:
        self.negated = negated
        self.alternatives: list[Node] = []
        self.operands: list[Node] = []

    def next_alternative(self) -> None:
        operands = tuple(self.operands)
        self.alternatives.append(operands[0] if len(operands) == 1 else And(operands))
        self.operands = []

    def node(self) -> Node:
        self.next_alternative()
        nodes = tuple(self.alternatives)
        node = nodes[0] if len(nodes) == 1 else Or(nodes)
        return Not(node) if self.negated else node


class _Parser:
    """One pass over the text with a stack of its own, so parentheses nest without limit."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def whole(self) -> Node:
        if not self._text.strip(" \t"):
            return Constant("all()")
        levels = [_Level(False)]
        while True:
            negated = False
            while self._taken("!"):
                negated = not negated
            if self._taken("("):
                levels.append(_Level(negated))
                continue
            node = self._primary()
            levels[-1].operands.append(Not(node) if negated else node)
            while len(levels) > 1 and self._taken(")"):
                closed = levels.pop().node()
                levels[-1].operands.append(closed)
            if self._taken("||"):
                levels[-1].next_alternative()
            elif not self._taken("&&"):
                break
        self._space()
        if len(levels) > 1:
            raise self._error("expected ')'")
        if self._at < len(self._text):
            raise self._error("unexpected text")
        root = levels[0].node()
        if depth(root) > MAX_DEPTH:
            raise self._error(f"more than {MAX_DEPTH} levels deep")
        return root

    def _primary(self) -> Node:
        function = _FUNCTIONS.match(self._text, self._at)
        if function:
            self._at = function.end()
            if function[1] == "has":
                label = self._label()
                self._expect(")")
                return Has(label)
            self._expect(")")
            return Constant(f"{function[1]}()")
        return self._comparison(self._label())

    def _comparison(self, label: str) -> Node:
        self._space()
        for pattern, name in _OPERATORS:
            match = pattern.match(self._text, self._at)
            if match:
                self._at = match.end()
                if name in ("in", "not in"):
                    return InSet(label, self._set(), name == "not in")
                return Compare(label, name, self._string())
        raise self._error("expected an operator behind the label")

    def _set(self) -> frozenset[str]:
        self._expect("{")
        values: list[str] = []
        while not self._taken("}"):
            if values:
                self._expect(",")
                if self._taken("}"):
                    break
            values.append(self._string())
        return frozenset(values)

    def _label(self) -> str:
        self._space()
        match = _LABEL.match(self._text, self._at)
        if match is None or len(match[0]) > MAX_LABEL:
            raise self._error("expected a label")
        self._at = match.end()
        return match[0]

    def _string(self) -> str:
        self._space()
        match = _STRING.match(self._text, self._at)
        if match is None:
            raise self._error("expected a value in quotes")
        self._at = match.end()
        return match[1] if match[1] is not None else match[2]

    def _space(self) -> None:
        match = _SPACE.match(self._text, self._at)
        if match is not None:
            self._at = match.end()

    def _taken(self, word: str) -> bool:
        self._space()
        if not self._text.startswith(word, self._at):
            return False
        self._at += len(word)
        return True

    def _expect(self, word: str) -> None:
        if not self._taken(word):
            raise self._error(f"expected {word!r}")

    def _error(self, rule: str) -> InvalidValue:
        return InvalidValue("selector", self._text, f"{rule} at character {self._at + 1}")
