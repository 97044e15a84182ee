"""Every text without a space that may leave the program, read from its source by syntax.

Names of metrics and labels, keys of JSON and of stores, reasons of conditions and events, names of
chains, sets and tables, variables, flags, paths and messages of sockets are string constants or
fields of structs. `tests/golden/outgoing.txt` holds them all, so a change of one cannot slip into
a change of the code's own names.

    python -m tests.support.outgoing --write    takes the texts of today into the golden file
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests/golden/outgoing.txt"
ROOMS = (
    "bgp",
    "calicoctl",
    "cni",
    "controllers",
    "felix",
    "flows",
    "ipam",
    "libcalico",
    "linux",
    "node",
)
_ONE_WORD = re.compile(r"[\x21-\x7e]*[A-Za-z]{2}[\x21-\x7e]*")
_MODULE = re.compile(rf"({'|'.join(ROOMS)})(\.\w+)+(:\w+)?")


def _ignored(tree: ast.AST) -> Iterator[ast.AST]:
    """Annotations and texts that are only read by people: docstrings."""
    for node in ast.walk(tree):
        for kind in ("annotation", "returns"):
            if (found := getattr(node, kind, None)) is not None:
                yield from ast.walk(found)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def constants(source: str) -> set[str]:
    """String constants of one word, those inside f-strings too; names of our modules are none."""
    tree = ast.parse(source)
    ignored = set(map(id, _ignored(tree)))
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in ignored:
            text = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
            if isinstance(text, str) and _ONE_WORD.fullmatch(text) and not _MODULE.fullmatch(text):
                found.add(text)
    return found


def _modules() -> Iterator[str]:
    for room in ROOMS:
        yield room
        for module in pkgutil.walk_packages([str(ROOT / room)], f"{room}."):
            # ExaBGP's process and `__main__` begin to work when they are imported.
            if not module.name.startswith("bgp.speaker.exabgp.") and "__main__" not in module.name:
                yield module.name


def _structs(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _structs(below)


def documents() -> set[str]:
    """The fields of each struct as they are encoded."""
    for name in _modules():
        importlib.import_module(name)
    return {
        "{" + " ".join(map(str, kind.__struct_encode_fields__)) + "}"
        for kind in _structs(msgspec.Struct)
        if kind.__module__.partition(".")[0] in ROOMS
    }


def texts() -> list[str]:
    """What the golden file holds, a line each."""
    found = set[str]()
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            found |= constants(path.read_text())
    return [*sorted(found), *sorted(documents())]


def main() -> None:
    """Print the texts, or write them with `--write`."""
    text = "\n".join(texts()) + "\n"
    if "--write" in sys.argv[1:]:
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
