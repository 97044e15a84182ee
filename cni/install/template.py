"""Placeholders of a configuration template, filled in once and completely.

Templates come from ConfigMaps that people wrote for Calico's installer: text that becomes JSON
when every `__NAME__` is replaced. Values are written as the inside of a JSON string, so that no
value can add a key. A placeholder without a value is an error that names it: half a configuration
would only fail later, in every pod. Pure.
Tested in tests/cni/test_install_variables.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from libcalico.errors import MuslinError

PLACEHOLDER = re.compile(r"__[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*__")


class TemplateError(MuslinError):
    """A template has a placeholder without a value, or does not become JSON."""


def names(text: str) -> list[str]:
    """The placeholders that `text` names, without underscores, each once, in order."""
    return list(dict.fromkeys(placeholder.strip("_") for placeholder in PLACEHOLDER.findall(text)))


def render(text: str, values: Mapping[str, str | Callable[[], str]], source: str) -> str:
    """`text` with every placeholder replaced. A value may be a function, called if it is named.

    `source` says where the template came from. Raises TemplateError naming every placeholder
    that has no value, and what the functions raise.
    """
    asked = names(text)
    if unknown := [name for name in asked if name not in values]:
        listed = ", ".join(f"__{name}__" for name in unknown)
        raise TemplateError(f"{source}: {listed}: no such placeholder; known are {_listed(values)}")
    chosen = {}
    for name in asked:
        value = values[name]
        chosen[name] = value if isinstance(value, str) else value()

    def fill(match: re.Match[str]) -> str:
        name = match.group().strip("_")
        inside = json.dumps(chosen[name], ensure_ascii=False)[1:-1]
        bare = ":" in inside and name == "KUBERNETES_SERVICE_HOST"
        # An IPv6 address stands in an URL, where only brackets tell it from its port.
        return f"[{inside}]" if bare and text[: match.start()][-1:] != "[" else inside

    return PLACEHOLDER.sub(fill, text)


def _listed(values: Mapping[str, object]) -> str:
    return " ".join(f"__{name}__" for name in sorted(values))
