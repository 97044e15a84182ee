"""Documents as YAML text, of many alike: what PyYAML writes, faster.

`yamltext.dump` decides how a word is written; here its answers are remembered, and the lines put
together from them. A value that needs more than one line, or a long key, goes through it whole.
Tested in `tests/calicoctl/test_yamltext.py` against `yamltext.dump`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from calicoctl import yamltext

# Signs that need no quotes, wherever they stand in such a word; what it begins or ends with counts.
_SIMPLE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_./-]|:(?=[A-Za-z0-9]))*")
_KEY = 100
"""A longer key is written in another way (libyaml: 128)."""
_REMEMBERED = 1 << 16


class _Elsewhere(Exception):
    """PyYAML has to write this value."""


class YamlWriter:
    """Writes values of JSON's types; remembers how words were written."""

    def __init__(self) -> None:
        self._words: dict[object, str] = {}

    def items(self, values: Iterable[object]) -> Iterator[str]:
        """Each value as an item of a sequence at the left margin."""
        for value in values:
            lines: list[str] = []
            try:
                self._item(value, "", lines)
            except _Elsewhere:
                yield yamltext.dump([value])
            else:
                yield "".join(lines)

    def _item(self, value: object, margin: str, lines: list[str]) -> None:
        if isinstance(value, dict) and value:
            at = len(lines)
            self._mapping(value, margin + "  ", lines)
            lines[at] = f"{margin}- {lines[at][len(margin) + 2 :]}"
        elif isinstance(value, list) and value:
            raise _Elsewhere
        else:
            lines.append(f"{margin}- {self._word(value)}\n")

    def _mapping(self, mapping: dict[str, object], margin: str, lines: list[str]) -> None:
        word = self._word
        for key in sorted(mapping):
            value = mapping[key]
            if len(key) > _KEY:
                raise _Elsewhere
            if value.__class__ is dict and value:
                lines.append(f"{margin}{word(key)}:\n")
                self._mapping(value, margin + "  ", lines)
            elif value.__class__ is list and value:
                lines.append(f"{margin}{word(key)}:\n")
                for one in value:
                    self._item(one, margin, lines)
            else:
                lines.append(f"{margin}{word(key)}: {word(value)}\n")

    def _word(self, value: object) -> str:
        """How a word or a number stands behind a key. Raises _Elsewhere."""
        if value.__class__ is not str:
            return self._other(value)
        written = self._words.get(value)
        if written is None:
            text = str(value)
            written = self._new_word(text)
            if len(self._words) < _REMEMBERED:
                self._words[text] = written
        return written

    @staticmethod
    def _new_word(text: str) -> str:
        if _SIMPLE.fullmatch(text):
            return f'"{text}"' if yamltext.AMBIGUOUS.fullmatch(text) else text
        if "\n" in text:
            raise _Elsewhere
        return yamltext.dump({"k": text})[3:-1]

    @staticmethod
    def _other(value: object) -> str:
        # Not remembered beside the words: 1 and True are one key of a dict.
        if value is None or isinstance(value, bool):
            return {None: "null", True: "true", False: "false"}[value]
        return str(value) if isinstance(value, int) else yamltext.dump({"k": value})[3:-1]
