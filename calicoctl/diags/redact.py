"""Secrets out of text and documents before a byte of them reaches the disk. Pure.

Invariants:
  DIAG-1  No password, token or private key that is known, or that a name beside it gives away, is
          in an archive, in any spelling: plain, quoted, base64, in a URL.

Three nets, each of which alone would hold most: names of fields and variables, shapes (PEM keys,
tokens, credentials in URLs), and the values themselves once one net has caught them anywhere: a
password that stands in the environment is removed from the logs as well. Rather too much is
removed than too little. Tested in `tests/calicoctl/test_redact.py` and, on whole archives, in
`tests/calicoctl/test_diags.py`.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

from calicoctl.diags.secret_text import HIDDEN, is_secret_name, without_secrets

SHORTEST = 4
"""Values with fewer characters are not looked for elsewhere: they are in every word."""


class Redactor:
    """Removes secrets; `learn` adds values that must not appear anywhere."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self.learn(known)

    def learn(self, values: Iterable[str]) -> None:
        """Remember secrets, and the other spellings in which they may appear."""
        for value in values:
            for part in (value, value.strip()):
                if len(part) >= SHORTEST and part != HIDDEN:
                    self._known.update(_spellings(part))
        longest = sorted(self._known, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest))) if longest else None

    def known(self, text: str) -> str:
        """The text without the values that were learnt."""
        return self._pattern.sub(HIDDEN, text) if self._pattern else text

    def text(self, text: str) -> str:
        """Free text (logs, listings, settings) without secrets."""
        return self.known(without_secrets(text))

    def tree(self, value: object, name: str = "") -> object:
        """A document without secrets, by the names of its fields and the shapes of its texts."""
        if isinstance(value, dict):
            return self._mapping(value)
        if isinstance(value, list):
            return self._sequence(value)
        if isinstance(value, str):
            return self._leaf(value)
        return value

    def _mapping(self, value: dict[object, object]) -> dict[object, object]:
        holds_secrets = value.get("kind") == "Secret"
        named = value.get("name")
        variable = isinstance(named, str) and is_secret_name(named)
        clean: dict[object, object] = {}
        for key, inner in value.items():
            hidden = (
                is_secret_name(str(key))
                or (holds_secrets and key in ("data", "stringData"))
                or (variable and key == "value")
            )
            shown = self.known(key) if isinstance(key, str) else key
            clean[shown] = hide(inner) if hidden else self.tree(inner)
        return clean

    def _sequence(self, value: list[object]) -> list[object]:
        clean = []
        after_flag = False
        for one in value:
            clean.append(hide(one) if after_flag else self.tree(one))
            after_flag = (
                isinstance(one, str)
                and one.startswith("-")
                and "=" not in one
                and is_secret_name(one)
            )
        return clean

    def _leaf(self, text: str) -> str:
        if text[:1] in "{[":
            try:
                return self.known(json.dumps(self.tree(json.loads(text))))
            except (ValueError, RecursionError):
                return self.text(text)
        return self.text(text)

    def document(self, text: str) -> str:
        """A JSON or YAML file without secrets; a file that is neither counts as free text."""
        try:
            return self.known(json.dumps(self.tree(json.loads(text)), indent=2)) + "\n"
        except RecursionError:
            return self.text(text)
        except ValueError:
            pass
        trees = yaml_documents(text)
        if trees is None:
            return self.text(text)
        import yaml

        return self.known(yaml.safe_dump_all([self.tree(one) for one in trees], sort_keys=False))


def yaml_documents(text: str) -> list[object] | None:
    """The documents of a YAML text, None unless every one of them is a mapping."""
    import yaml

    from libcalico.errors import MuslinError
    from libcalico.yamltext import check_bounds

    try:
        check_bounds(text, "")
        trees = [one for one in yaml.safe_load_all(text) if one is not None]
    except (yaml.YAMLError, MuslinError, ValueError, OverflowError, AttributeError):
        return None  # the last three: what constructors raise for dates and tags
    return trees if trees and all(isinstance(one, dict) for one in trees) else None


def hide(value: object) -> object:
    """Every text and number inside `value` hidden; names stay, so that one sees what was set.

    A reference to a secret (`secretKeyRef: {name, key}`) is no secret.
    """
    if isinstance(value, dict):
        return {
            key: inner if str(key) in ("name", "namespace") else hide(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [hide(one) for one in value]
    if value is None or isinstance(value, bool) or value == "":
        return value
    return HIDDEN


def harvest(value: object) -> Iterator[str]:
    """The secrets in a document: what `Redactor.tree` hides because of a name."""
    if isinstance(value, dict):
        named = value.get("name")
        variable = isinstance(named, str) and is_secret_name(named)
        for key, inner in value.items():
            if is_secret_name(str(key)) or (variable and key == "value"):
                yield from _texts(inner)
            else:
                yield from harvest(inner)
    elif isinstance(value, list):
        for one in value:
            yield from harvest(one)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if str(key) not in ("name", "namespace"):
                yield from _texts(inner)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
        yield str(value)


def _spellings(value: str) -> Iterator[str]:
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield quote(value, safe="")
    yield quote_plus(value)
    for code in (base64.b64encode, base64.urlsafe_b64encode):
        yield code(value.encode()).decode()
        yield code(value.encode()).decode().rstrip("=")
    # A key of several lines also appears line by line.
    for line in value.splitlines():
        if len(line) >= 16 and not line.startswith("-----"):
            yield line
