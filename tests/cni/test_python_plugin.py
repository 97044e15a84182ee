"""How the twin's parts become one file that needs nothing of ours."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import cni.python_plugin
from cni.install import own_interpreter
from cni.python_plugin import PARTS, source
from cni.python_plugin.call import RELEASE, VERSIONS
from cni.request.result import SUPPORTED_VERSIONS
from tests.cni.executable import twin


def test_the_one_file_imports_the_standard_library_only() -> None:
    """TWIN-2, TWIN-4."""
    tree = ast.parse(source("/usr/bin/python3"))
    modules = {
        (name.name if isinstance(node, ast.Import) else node.module or "").partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert modules <= sys.stdlib_module_names
    defined = [
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ] + [
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    assert len(defined) == len(set(defined))
    folder = Path(cni.python_plugin.__file__).parent
    assert {path.stem for path in folder.glob("*.py")} == {*PARTS, "__init__"}


def test_it_says_what_the_rest_of_the_house_says() -> None:
    assert version("muslin") == RELEASE
    assert VERSIONS == SUPPORTED_VERSIONS


def test_what_is_heavy_is_imported_only_where_needed() -> None:
    """VERSION without input must not pay for sockets, digests or foreign functions."""
    done = subprocess.run(
        [own_interpreter(), "-IS", "-X", "importtime", str(twin())],
        env={"CNI_COMMAND": "VERSION"},
        input=b"",
        capture_output=True,
        check=True,
    )
    for module in (b"socket", b"hashlib", b"ctypes", b"subprocess", b"json", b"asyncio", b"site"):
        assert b"| " + module + b"\n" not in done.stderr, module


@pytest.mark.cni("CAL-35", "OUT-05")
def test_an_unexpected_failure_is_a_cni_error() -> None:
    """TWIN-3: here the standard library itself is incomplete."""
    program = (
        "import sys, runpy; sys.modules['json'] = None;"
        f"runpy.run_path({str(twin())!r}, None, '__main__')"
    )
    done = subprocess.run(
        [
            own_interpreter(),
            "-IS",
            "-c",
            program,
        ],
        env={"CNI_COMMAND": "STATUS"},
        input=b'{"name":"net","cniVersion":"1.1.0"}',
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    assert b'"code":999,"msg":"internal error: ModuleNotFoundError"' in done.stdout
    assert b"Traceback" not in done.stderr
