"""Byte code, made by the image's own Python: a read-only root could never keep any.

The interpreter runs from an unpacked tree by its own dynamic loader, so neither root nor a
chroot is needed. Files are compiled in order, by one process, with a fixed hash seed; they
are never checked against their sources (`unchecked-hash`), which an image does not change.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from manifests.image.cache import BuildError
from manifests.image.tree import Tree, file, write

_PROGRAM = """
import compileall, os, sys, py_compile
root, places = sys.argv[1], sys.argv[2:]
mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
for place in places:
    for folder, folders, names in os.walk(os.path.join(root, place)):
        folders.sort()
        for name in sorted(names):
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                try:
                    py_compile.compile(path, None, path[len(root):], True, -1, mode)
                except py_compile.PyCompileError:
                    pass
"""


def compiled(base: Tree, added: Tree, places: list[str], python: str) -> Tree:
    """The byte code of the Python files of `added` below `places`, as `base` has its Python.

    `base` holds /usr/bin/pythonX.Y and its libraries; `added` may be part of it.
    """
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write({**base, **added}, root)
        loader = next(
            iter(
                sorted(root.glob("usr/lib64/ld-linux*.so.*")) or root.glob("usr/lib/ld-linux*.so.*")
            )
        )
        libraries = sorted(
            {str(path.parent) for path in root.glob("usr/lib/*-linux-gnu/libc.so.*")}
        )
        command = [
            str(loader),
            "--library-path",
            ":".join(libraries),
            str(root / f"usr/bin/python{python}"),
        ]
        done = subprocess.run(
            [*command, "-S", "-B", "-P", "-c", _PROGRAM, str(root), *places],
            env={"PYTHONHOME": str(root / "usr"), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise BuildError(f"the image's Python cannot run: {done.stderr.strip()[-2000:]}")
        return {
            path.relative_to(root).as_posix(): file(path.read_bytes())
            for place in places
            for path in sorted((root / place).rglob("__pycache__/*.pyc"))
        }
