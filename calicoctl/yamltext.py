"""YAML in and out: reading is libcalico's, writing follows Go's `sigs.k8s.io/yaml`.

Keys sorted, sequences not indented, double quotes where a plain word would read as something
else. Tested in `tests/calicoctl/test_yamltext.py`.
"""

from __future__ import annotations

import re

import yaml

from libcalico.yamltext import Document, load

__all__ = ["Document", "dump", "load"]


AMBIGUOUS = re.compile(
    r"(?:~|null|true|false|yes|no|on|off|y|n|<<|=)?"
    r"|[-+]?(?:[0-9][0-9_]*|0x[0-9a-f_]+|0o?[0-7_]+|0b[01_]+)"
    r"|[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9_]+)(?:e[-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf)|\.nan"
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:t|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}.*)?",
    re.IGNORECASE,
)
"""What a YAML 1.1 reader would not take for text: quoted on output, so that Go reads it back."""


class _Dumper(yaml.CSafeDumper):
    """Writes as Go does; a class of its own so that no global representer changes."""


def _text(dumper: yaml.CSafeDumper, value: str) -> yaml.ScalarNode:
    style = None
    if "\n" in value:
        style = "|"
    elif AMBIGUOUS.fullmatch(value):
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def dump(value: object) -> str:
    """`value` as one YAML document, with a newline at its end.

    Without the mark `...`, which libyaml sets behind a text that ends with empty lines: Go sets
    none, and between the items of a list it would end the document.
    """
    text = yaml.dump(
        value,
        Dumper=_Dumper,
        default_flow_style=False,
        sort_keys=True,
        allow_unicode=True,
        width=1 << 30,
    )
    end = "\n...\n"
    return f"{text.removesuffix(end)}\n" if text.endswith(end) else str(text)
