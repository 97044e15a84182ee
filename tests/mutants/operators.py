"""Small wrong changes to a source text, found in its syntax tree.

Each change replaces one stretch of the text, so lines, comments and everything else stay. What
only speaks is left out: log calls, the texts of exceptions, docstrings, annotations; and so are
numbers that are default lengths of time.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
SPEAKERS = frozenset({"log", "logger", "LOG", "logging", "warnings"})
# How long something waits by default, or how a text is laid out: no test is to hold such a number.
WAITS = re.compile(
    r"(?i)(^|_)(timeout|interval|patience|pause|delay|wait|linger|seconds|indent|stacklevel)s?$"
)
WORDS = frozenset({"debug", "info", "warning", "error", "exception", "critical"})


@dataclass(frozen=True, slots=True)
class Change:
    """Replace `text[start:end]` by `new`. `where` is the qualified name of the code around it."""

    where: str
    kind: str
    number: int
    start: int
    end: int
    new: str

    @property
    def name(self) -> str:
        """Names the place without file and line: `RouteTable.commit compare 2`."""
        return f"{self.where} {self.kind} {self.number}"

    def applied(self, text: str) -> str:
        """The source with the change in it."""
        return text[: self.start] + self.new + text[self.end :]


class _Finder(ast.NodeVisitor):
    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = text.split("\n")
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._path: list[str] = []
        self._counts: dict[tuple[str, str], int] = {}
        self.found: list[Change] = []

    # places

    def _offset(self, line: int, column: int) -> int:
        """The place in the text; the syntax tree counts columns in bytes."""
        before = self._lines[line - 1].encode()[:column].decode()
        return self._starts[line - 1] + len(before)

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._offset(node.lineno, node.col_offset)
        return start, self._offset(node.end_lineno, node.end_col_offset)

    def _add(self, kind: str, start: int, end: int, new: str) -> None:
        where = ".".join(self._path) or "(module)"
        number = self._counts.get((where, kind), 0)
        self._counts[where, kind] = number + 1
        self.found.append(Change(where, kind, number, start, end, new))

    def _between(self, kind: str, left: ast.expr, right: ast.expr, words: tuple[str, str]) -> None:
        """Replace an operator that stands between two operands."""
        start, end = self._span(left)[1], self._span(right)[0]
        gap = self._text[start:end]
        if gap.count(words[0]) == 1 and "#" not in gap:
            at = start + gap.index(words[0])
            self._add(kind, at, at + len(words[0]), words[1])

    # scopes

    def _scope(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name == "__repr__":
            return
        self._path.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._path.pop()

    visit_ClassDef = visit_FunctionDef = visit_AsyncFunctionDef = _scope

    def visit_Assign(self, node: ast.Assign) -> None:
        """A default length of time stays."""
        names = [one.id for one in node.targets if isinstance(one, ast.Name)]
        if not (isinstance(node.value, ast.Constant) and any(map(WAITS.search, names))):
            self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        """`timeout=5` likewise."""
        if not (isinstance(node.value, ast.Constant) and WAITS.search(node.arg or "")):
            self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Annotations stay."""
        if node.value is not None:
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        """A condition the other way round; blocks for type checkers stay."""
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._negated(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        """Conditions of loops are not turned round: most would never end."""
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Both ways of a conditional expression, exchanged."""
        self._negated(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        """What a comprehension lets through."""
        for test in node.ifs:
            self._negated(test)
        self.generic_visit(node)

    def _negated(self, test: ast.expr) -> None:
        if isinstance(test, ast.NamedExpr) or any(
            isinstance(one, ast.NamedExpr) for one in ast.walk(test)
        ):
            return
        start, end = self._span(test)
        self._add("negate", start, end, f"not ({self._text[start:end]})")

    # statements

    def visit_Expr(self, node: ast.Expr) -> None:
        """A call whose answer goes nowhere is left out."""
        if isinstance(node.value, ast.Constant) or _speaks(node.value):
            return
        if isinstance(node.value, (ast.Call, ast.Await)):
            self._add("drop call", *self._span(node), "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """`x += 1` is left out."""
        self._add("drop assignment", *self._span(node), "pass")
        self.visit(node.value)

    def visit_Delete(self, node: ast.Delete) -> None:
        """`del x[key]` is left out."""
        self._add("drop del", *self._span(node), "pass")

    def visit_Raise(self, node: ast.Raise) -> None:
        """An error is not raised; its text stays as it is."""
        self._add("drop raise", *self._span(node), "pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        """The loop goes on in its body."""
        self._add("drop continue", *self._span(node), "pass")

    def visit_Break(self, node: ast.Break) -> None:
        """The loop goes on."""
        self._add("drop break", *self._span(node), "pass")

    def visit_Assert(self, node: ast.Assert) -> None:
        """Assertions narrow types."""

    # expressions

    def visit_Compare(self, node: ast.Compare) -> None:
        """Each comparison becomes its opposite or its neighbour."""
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            self._between("compare", left, right, COMPARISONS[type(operator)])
            left = right
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """`and` becomes `or`, and the other way round."""
        words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between("logic", left, right, words)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Arithmetic and set operators."""
        words = ARITHMETIC.get(type(node.op))
        if words and not isinstance(node.left, (ast.JoinedStr, ast.Constant)):
            self._between("arithmetic", node.left, node.right, words)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """`not x` becomes `x`."""
        if isinstance(node.op, ast.Not):
            start, end = self._span(node)
            inner, stop = self._span(node.operand)
            self._add("drop not", start, end, f"bool({self._text[inner:stop]})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Truth values turned round, numbers one larger."""
        start, end = self._span(node)
        if isinstance(node.value, bool):
            self._add("constant", start, end, str(not node.value))
        elif isinstance(node.value, int):
            self._add("constant", start, end, str(node.value + 1))

    def visit_Call(self, node: ast.Call) -> None:
        """`min` and `max`, `any` and `all` exchanged."""
        if isinstance(node.func, ast.Name) and node.func.id in CALLS:
            self._add("call", *self._span(node.func), CALLS[node.func.id])
        if not _speaks(node):
            self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts stay: positions inside them are not to be had in every version of Python."""


def _speaks(node: ast.AST) -> bool:
    call = node.value if isinstance(node, ast.Await) else node
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    owner = call.func.value
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return name.lstrip("_") in SPEAKERS and (call.func.attr in WORDS or name == "warnings")


def changes(text: str) -> Iterator[Change]:
    """Every change that the operators know for a source, in its order. SyntaxError when broken."""
    finder = _Finder(text)
    finder.visit(ast.parse(text))
    yield from finder.found
