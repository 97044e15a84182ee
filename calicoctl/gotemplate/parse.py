"""From template text to nodes. Tested in tests/calicoctl/test_gotemplate.py."""

from __future__ import annotations

import json
import re

from calicoctl.gotemplate.functions import BUILT_IN, EXTRA
from calicoctl.gotemplate.nodes import (
    Branch,
    Chain,
    Command,
    Constant,
    Jump,
    Name,
    Node,
    Operand,
    Pipeline,
    TemplateError,
    Text,
)
from calicoctl.gotemplate.tokens import Token, pieces

REFUSED_ACTIONS = frozenset({"define", "template", "block"})
REFUSED_FUNCTIONS = frozenset({"call", "html", "js", "urlquery"})
KNOWN = frozenset(BUILT_IN) | EXTRA | {"and", "or"}


def parse(text: str) -> tuple[Node, ...]:
    """The nodes of a template; raises `TemplateError`."""
    parser = _Parser(list(pieces(text)))
    body, closing = parser.block(in_range=False)
    if closing:
        raise TemplateError(f"template: {{{{{closing[0][1]}}}}} without if, range or with")
    return body


class _Parser:
    def __init__(self, pieces: list[str | list[Token]]) -> None:
        self._pieces = pieces
        self._at = 0

    def block(self, in_range: bool) -> tuple[tuple[Node, ...], list[Token]]:
        """Nodes up to `end` or `else`, and that action's tokens; none at the end of the text."""
        nodes: list[Node] = []
        while self._at < len(self._pieces):
            piece = self._pieces[self._at]
            self._at += 1
            if isinstance(piece, str):
                if piece:
                    nodes.append(Text(piece))
                continue
            if not piece:
                raise TemplateError("template: {{ }} holds nothing")
            word = piece[0][1] if piece[0][0] == "word" else ""
            if word in ("end", "else"):
                return tuple(nodes), piece
            if word in ("break", "continue"):
                if not in_range:
                    raise TemplateError(f"template: {{{{{word}}}}} outside of range")
                nodes.append(Jump(word))
            elif word in ("if", "range", "with"):
                nodes.append(self._branch(word, piece[1:], in_range))
            elif word in REFUSED_ACTIONS:
                raise TemplateError(f"template: the action {word!r} is not served by calicoctl")
            else:
                nodes.append(_pipeline(piece))
        return tuple(nodes), []

    def _branch(self, word: str, tokens: list[Token], in_range: bool) -> Branch:
        pipeline = _pipeline(tokens, variables=2 if word == "range" else 1)
        body, closing = self.block(in_range or word == "range")
        otherwise: tuple[Node, ...] = ()
        if closing and closing[0][1] == "else":
            if len(closing) > 1:
                # `else if` and `else with` share the `end` of the first one.
                inner = closing[1][1]
                if inner not in ("if", "with") or inner != word:
                    raise TemplateError(f"template: unexpected {inner!r} behind else")
                return Branch(word, pipeline, body, (self._branch(inner, closing[2:], in_range),))
            otherwise, closing = self.block(in_range)
        if not closing or closing[0][1] != "end" or len(closing) > 1:
            raise TemplateError(f"template: {{{{{word}}}}} is not closed by {{{{end}}}}")
        return Branch(word, pipeline, body, otherwise)


def _pipeline(tokens: list[Token], variables: int = 1) -> Pipeline:
    names, assigns, rest = _declared(tokens)
    if len(names) > variables:
        raise TemplateError("template: two variables are for range only")
    reader = _Reader(rest)
    result = reader.pipeline(names, assigns)
    if reader.left():
        raise TemplateError(f"template: unexpected {reader.left()!r}")
    return result


def _declared(tokens: list[Token]) -> tuple[tuple[str, ...], bool, list[Token]]:
    texts = [text for _, text in tokens[:4]]
    if tokens and tokens[0][0] == "variable":
        if texts[1:2] in ([":="], ["="]):
            return (texts[0],), texts[1] == "=", tokens[2:]
        if texts[1:2] == [","] and texts[3:4] in ([":="], ["="]) and tokens[2][0] == "variable":
            return (texts[0], texts[2]), texts[3] == "=", tokens[4:]
    return (), False, tokens


class _Reader:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    def left(self) -> str:
        """The next token's text; empty at the end."""
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _peek(self) -> Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def pipeline(self, names: tuple[str, ...] = (), assigns: bool = False) -> Pipeline:
        """Commands between bars, up to a closing parenthesis or the end."""
        commands = [self._command()]
        while self._peek() == ("sign", "|"):
            self._at += 1
            commands.append(self._command())
        return Pipeline(tuple(commands), names, assigns)

    def _command(self) -> Command:
        words: list[Operand] = []
        while self._peek()[0] != "end" and self._peek()[1] not in ("|", ")"):
            words.append(self._operand())
        if not words:
            raise TemplateError("template: a value is missing")
        if len(words) > 1 and not isinstance(words[0], Name):
            raise TemplateError("template: only a function takes arguments")
        return Command(tuple(words))

    def _operand(self) -> Operand:
        kind, text = self._peek()
        self._at += 1
        if kind == "sign" and text == "(":
            inner = self.pipeline()
            if self._peek() != ("sign", ")"):
                raise TemplateError("template: a parenthesis is not closed")
            self._at += 1
            return Chain(inner, self._joined())
        if kind == "dot":
            return Chain(None, ())
        if kind in ("field", "join"):
            return Chain(None, (text[1:], *self._joined()))
        if kind == "variable":
            return Chain(text, self._joined())
        if kind == "word":
            return _word(text)
        if kind in ("string", "raw", "number"):
            return Constant(_constant(kind, text))
        if kind == "char":
            raise TemplateError("template: character constants are not served by calicoctl")
        raise TemplateError(f"template: unexpected {text!r}")

    def _joined(self) -> tuple[str, ...]:
        names = []
        while self._peek()[0] == "join":
            names.append(self._peek()[1][1:])
            self._at += 1
        return tuple(names)


def _word(text: str) -> Operand:
    if text in ("true", "false"):
        return Constant(text == "true")
    if text == "nil":
        return Constant(None)
    if text in REFUSED_FUNCTIONS:
        raise TemplateError(f"template: the function {text!r} is not served by calicoctl")
    if text not in KNOWN:
        served = ", ".join(sorted(KNOWN))
        raise TemplateError(f"template: function {text!r} not defined; the functions are {served}")
    return Name(text)


def _constant(kind: str, text: str) -> object:
    if kind == "raw":
        return text[1:-1]
    if kind == "string":
        try:
            return json.loads(text)
        except ValueError:
            raise TemplateError(f"template: cannot read the string {text}") from None
    if re.fullmatch(r"[-+]?(?:0[xX][0-9a-fA-F]+|[0-9]+)", text):
        return int(text, 16 if "x" in text.lower() else 10)
    return float(text)
