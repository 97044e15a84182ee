"""The executable's twin in Python, and how its parts become the one file that is installed.

A plugin is one file in /opt/cni/bin that works without this package, so the parts are joined:
each without its imports of the others, `main` last.

Invariant TWIN-4: no two parts define the same name, and none uses another's but by a plain `from`
import. That makes the joining sound.
Tested in tests/cni/test_python_plugin.py.
"""

from __future__ import annotations

import ast
from pathlib import Path

PARTS = ("text", "call", "checks", "queue", "delegate", "line", "main")
"""In the order of their dependencies."""


def source(interpreter: str) -> bytes:
    """The one file: a script for `interpreter` (an absolute path), isolated.

    Raises ValueError for a path that an interpreter line cannot hold.
    """
    line = f"#!{interpreter} -IS"
    if not interpreter.startswith("/") or any(c.isspace() for c in interpreter) or len(line) > 127:
        raise ValueError(
            f"interpreter {interpreter!r}: an interpreter line takes an absolute path without "
            "spaces, of at most 120 bytes"
        )
    parts = [_stripped((Path(__file__).parent / f"{part}.py").read_text()) for part in PARTS]
    head = "from __future__ import annotations\n"
    return "\n".join([line, head, *parts]).encode()


def _stripped(text: str) -> str:
    """A part without what only the package needs: imports of other parts and of the future."""
    lines = text.splitlines(keepends=True)
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            ("cni.python_plugin.", "__future__")
        ):
            assert node.end_lineno is not None
            for number in range(node.lineno - 1, node.end_lineno):
                lines[number] = ""
    return "".join(lines).strip("\n") + "\n\n"
