"""Running a parsed template over data. Tested in tests/calicoctl/test_gotemplate.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from calicoctl.gotemplate.functions import BUILT_IN
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
from calicoctl.gotemplate.values import NO_VALUE, field, text, truth

_NOTHING = object()


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


class Evaluation:
    """One run: `out` collects the text; variables live as long as the block they stand in."""

    def __init__(self, data: object, functions: Mapping[str, Callable[..., object]]) -> None:
        self.out: list[str] = []
        self._functions = {**BUILT_IN, **functions}
        self._dot = data
        self._variables: list[tuple[str, object]] = [("$", data)]

    def run(self, nodes: Iterable[Node]) -> None:
        """Print every node; raises `TemplateError`."""
        for node in nodes:
            if isinstance(node, Text):
                self.out.append(node.text)
            elif isinstance(node, Jump):
                raise _Break if node.keyword == "break" else _Continue
            elif isinstance(node, Branch):
                with self._scope():
                    self._branch(node)
            else:
                value = self._pipeline(node)
                if not node.declares:
                    self.out.append(text(value))

    @contextmanager
    def _scope(self) -> Iterator[None]:
        depth, dot = len(self._variables), self._dot
        try:
            yield
        finally:
            del self._variables[depth:]
            self._dot = dot

    def _branch(self, node: Branch) -> None:
        if node.keyword == "range":
            self._range(node)
            return
        value = self._pipeline(node.pipeline)
        if not truth(value):
            self.run(node.otherwise)
            return
        if node.keyword == "with":
            self._dot = value
        self.run(node.body)

    def _range(self, node: Branch) -> None:
        names = node.pipeline.declares
        pairs = _pairs(self._value(node.pipeline))
        if not pairs:
            self.run(node.otherwise)
            return
        for key, item in pairs:
            with self._scope():
                self._dot = item
                values = (item,) if len(names) == 1 else (key, item)
                for name, value in zip(names, values, strict=False):
                    self._set(name, value, node.pipeline.assigns)
                try:
                    self.run(node.body)
                except _Continue:
                    continue
                except _Break:
                    return

    def _set(self, name: str, value: object, assigns: bool) -> None:
        if not assigns:
            self._variables.append((name, value))
            return
        for index in range(len(self._variables) - 1, -1, -1):
            if self._variables[index][0] == name:
                self._variables[index] = (name, value)
                return
        raise TemplateError(f"template: undefined variable {name}")

    def _pipeline(self, pipeline: Pipeline) -> object:
        value = self._value(pipeline)
        for name in pipeline.declares:
            self._set(name, value, pipeline.assigns)
        return value

    def _value(self, pipeline: Pipeline) -> object:
        value: object = _NOTHING
        for command in pipeline.commands:
            value = self._command(command, value)
        return value

    def _command(self, command: Command, last: object) -> object:
        first, *rest = command.words
        if not isinstance(first, Name):
            if last is not _NOTHING:
                raise TemplateError("template: only a function can stand behind a bar")
            return self._operand(first)
        if first.name in ("and", "or"):
            return self._early(first.name, rest, last)
        arguments = [self._operand(word) for word in rest]
        if last is not _NOTHING:
            arguments.append(last)
        return self._call(first.name, arguments)

    def _early(self, name: str, words: Sequence[Operand], last: object) -> object:
        value: object = _NOTHING
        for word in words:
            value = self._operand(word)
            if truth(value) == (name == "or"):
                return value
        value = last if last is not _NOTHING else value
        if value is _NOTHING:
            raise TemplateError(f"template: {name}: wrong number of arguments")
        return value

    def _call(self, name: str, arguments: Sequence[object]) -> object:
        function = self._functions.get(name)
        if function is None:
            raise TemplateError(f"template: function {name!r} is not available here")
        try:
            return function(*arguments)
        except TypeError as problem:
            raise TemplateError(f"template: {name}: wrong arguments: {problem}") from None

    def _operand(self, word: Operand) -> object:
        if isinstance(word, Constant):
            return word.value
        if isinstance(word, Name):
            return self._call(word.name, [])
        value = self._base(word)
        for name in word.fields:
            value = field(value, name)
        return value

    def _base(self, chain: Chain) -> object:
        if chain.base is None:
            return self._dot
        if isinstance(chain.base, Pipeline):
            return self._value(chain.base)
        for name, value in reversed(self._variables):
            if name == chain.base:
                return value
        raise TemplateError(f"template: undefined variable {chain.base}")


def _pairs(value: object) -> list[tuple[object, object]]:
    if value is None or value is NO_VALUE:
        return []
    if isinstance(value, Mapping):
        return [(key, value[key]) for key in sorted(value)]
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return [(index, index) for index in range(value)]
    raise TemplateError(f"template: range can't iterate over {text(value)}")
