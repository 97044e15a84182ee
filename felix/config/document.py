"""`docs/felix-configuration.md`: every parameter of Felix's, written from the table.

Run by `./run fields`. Tested in tests/felix/config/test_config_table.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from felix.config.others import CLUSTER, DATASTORE, OTHERS, TYPHA
from felix.config.parameters import PARAMETERS
from felix.config.rows import Parameter
from libcalico.model.enforcement.table import felix_parameter
from libcalico.model.resources.felixconfig import FelixConfigurationSpec

PROTOCOLS = {6: "tcp", 17: "udp"}
HEAD = """# Felix's parameters

Names, meaning and defaults are Calico's. Each parameter can be set in five places; the first
that says something counts:

1. the environment: `FELIX_<NAME>`, letter case ignored;
2. the file `/etc/calico/felix.cfg`: lines `<Name> = value`, sections are of no matter;
3. the FelixConfiguration `node.<node>`;
4. FelixConfigurations of other names whose `nodeSelector` matches the labels of the Node; where
   two of them differ, the first by name counts and a condition names the other;
5. the FelixConfiguration `default`.

A FelixConfiguration sets fields, and by annotations `config.projectcalico.org/<Name>` any other
parameter. An empty value counts as unset, `none` is the type's zero. Durations are seconds in
the environment and the file; Go's spelling (`1m30s`) is understood everywhere.

A value that cannot be taken is logged, is a condition of the node (`calicoctl node status`), and
the default is used instead. A parameter that is not enforced is logged and named the same way
where its value asks for something. Environment and file are read when felix starts. A
FelixConfiguration acts at once; the parameters marked *restart* end felix in order (status 129)
and its supervisor starts it again, while routes, rules and sets stay as they are.
"""


def text() -> str:
    """The page."""
    parts = [HEAD, "## Enforced", "", "| Name | Field | Default | Meaning |", "|---|---|---|---|"]
    parts += [_row(parameter) for parameter in sorted(PARAMETERS, key=lambda p: p.name.lower())]
    parts += ["", "## Not enforced", "", "| Name | Field | Calico's default | Why |"]
    parts += ["|---|---|---|---|"]
    for other in sorted(OTHERS, key=lambda o: o.name.lower()):
        row = felix_parameter(other.field)
        why = row.why if row is not None else ""
        parts.append(f"| `{other.name}` | `{other.field}` | {_code(other.default)} | {why} |")
    parts += ["", "## Of environment and file only", ""]
    parts += [f"Read by the datastore client: {_names(DATASTORE)}.", ""]
    parts += [f"Not enforced, every felix reads the datastore itself: {_names(TYPHA)}.", ""]
    parts += [f"Without effect on anything: {_names(CLUSTER)}."]
    return "\n".join(parts)


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _row(parameter: Parameter) -> str:
    stored = parameter.field in FelixConfigurationSpec.__struct_fields__
    field = f"`{parameter.field}`" if stored else ""
    meaning = f"{parameter.doc} *Restart.*" if parameter.restart else parameter.doc
    mask = parameter.name.endswith("MarkMask")
    shown = _code(f"{parameter.default:#x}" if mask else _shown(parameter.default))
    return f"| `{parameter.name}` | {field} | {shown} | {meaning} |"


def _shown(value: object) -> str:
    match value:
        case None | "" | ():
            return ""
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case tuple():
            return ",".join(map(_one, value))
    return str(value)


def _one(value: object) -> str:
    match value:
        case (int(protocol), int(port), str(net)):
            return ":".join(filter(None, (PROTOCOLS.get(protocol, str(protocol)), str(port), net)))
    return str(value)


def _code(text: str) -> str:
    # A bar would end the cell, even inside code.
    return "`{}`".format(text.replace("|", "\\|")) if text else ""


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` compare it. The directory is the repository's."""
    page = Path("docs/felix-configuration.md")
    document = text() + "\n"
    if "--check" not in arguments:
        page.write_text(document)
        return 0
    if page.exists() and page.read_text() == document:
        return 0
    sys.stderr.write("docs/felix-configuration.md is not what the tables say: ./run fields\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
