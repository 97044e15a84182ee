"""`./run lint`: ruff, mypy --strict, import contracts, manifests, room sizes, prose, citations."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp

from tests import counters, invariants, listed, performance, prose, references
from tests.simulation import planting

ROOT = listed.ROOT
BIN = Path(sys.executable).parent
SMALL, LARGEST, SHARE = 300, 600, 0.9
PRODUCT = (
    "bgp", "calicoctl", "cni", "controllers", "felix", "flows", "ipam", "lab", "libcalico", "linux",
    "node", "web",
)  # fmt: skip

CHECKS = (
    ("ruff check", ["ruff", "check", "."]),
    ("ruff format", ["ruff", "format", "--check", "."]),
    ("mypy --strict", ["mypy"]),
    ("import contracts", ["lint-imports", "--no-cache"]),
    ("manifests/crds", ["python", "-m", "libcalico.crds", "--check"]),
    ("manifests", ["python", "-m", "manifests", "render", "--check"]),
    ("docs/rbac.md", ["python", "-m", "manifests", "rbac-report", "--check"]),
)


def python_files() -> list[Path]:
    """Every Python file that is ours: tracked by git, or untracked and not ignored."""
    return listed.files("*.py")


def sizes() -> list[str]:
    """Complaints about rooms that grew too large."""
    lengths = {p: len(p.read_text().splitlines()) for p in python_files()}
    found = [
        f"{p.relative_to(ROOT)}: {n} lines, at most {LARGEST}"
        for p, n in lengths.items()
        if n > LARGEST
    ]
    large = [p for p, n in lengths.items() if n > SMALL]
    if len(large) > (1 - SHARE) * len(lengths):
        found.append(f"{len(large)} of {len(lengths)} files have more than {SMALL} lines")
    return found


def untested() -> list[str]:
    """Product files that no test covers by its name, and that name none either."""
    place = {str(path.relative_to(ROOT)): path for path in python_files()}
    tests = [name for name in place if name.startswith("tests/")]
    product = {name: path.read_text() for name, path in place.items() if _is_product(name)}
    return [
        f"{name}: name the test that covers it (`Tested in tests/...`)"
        for name in without_test(product, tests)
    ]


def _is_product(name: str) -> bool:
    room, _, rest = name.partition("/")
    return room in PRODUCT and room != "lab" and not Path(rest).name.startswith("__")


def without_test(product: Mapping[str, str], tests: Collection[str]) -> list[str]:
    """Those of the files (by path, with their text) that have no test. Pure.

    A file has one if its room's tests hold a file of its name, or its docstring names one: a test
    of another room that happens to have the name is about something else.
    """
    named = re.compile(r"\btest_\w+\.py\b")
    mirrors = {(test.split("/")[1], Path(test).name) for test in tests}
    return [
        name
        for name, text in product.items()
        if (name.split("/")[0], f"test_{Path(name).name}") not in mirrors
        and not named.search(ast.get_docstring(ast.parse(text)) or "")
    ]


def circles() -> list[str]:
    """Modules of the product that import each other, one circle at a time."""
    graph = grimp.build_graph(*PRODUCT, cache_dir=None)
    imports = {one: graph.find_modules_directly_imported_by(one) for one in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return [" imports ".join(reversed(error.args[1]))]
    return []


def strays() -> list[str]:
    """Docstrings that send the reader to a test that is not there, by its path or its name."""
    named = re.compile(r"tests/(?:[a-z_0-9]+/)+test_[a-z_0-9]+\.py")
    alone = re.compile(r"(?<![\w/])test_[a-z_0-9]+\.py")
    files = python_files()
    known = {path.name for path in files}
    found: list[str] = []
    for path in files:
        text, place = path.read_text(), path.relative_to(ROOT)
        lost = {name for name in named.findall(text) if not (ROOT / name).exists()}
        if place.parts[0] in PRODUCT:
            lost |= set(alone.findall(text)) - known
        found += [f"{place}: {name} does not exist" for name in sorted(lost)]
    return found


# Below `libcalico.process.tasks`, so not by it; each awaits what it starts, or takes its exception.
TASKS_OF_THEIR_OWN = {
    "libcalico/process/tasks.py": 1,
    "linux/conntrack.py": 1,
    "linux/nftables/connection.py": 1,
    "web/facts/keeper.py": 1,
    "web/pages/frame.py": 1,
}


def _in_what_we_ship(pattern: str, complaint: str) -> list[str]:
    """A complaint for each file, outside the tests, in which the pattern is found."""
    found = re.compile(pattern)
    return [
        f"{path.relative_to(ROOT)}: {complaint}"
        for path in python_files()
        if "tests" not in path.relative_to(ROOT).parts and found.search(path.read_text())
    ]


def blind_suppressions() -> list[str]:
    """`suppress(Exception)` passes over what `except` may not (ruff: S110, BLE001)."""
    return _in_what_we_ship(
        r"\bsuppress\((?:Base)?Exception\b", "suppress what is expected, not every exception"
    )


def narrow_readers() -> list[str]:
    """`except msgspec.DecodeError` alone passes what nests without end: `errors.NO_DOCUMENT`."""
    return _in_what_we_ship(
        r"(?:except|suppress).*\bmsgspec\.(?:DecodeError|MsgspecError)\b",
        "catch libcalico.errors.NO_DOCUMENT where bytes are read",
    )


def bare_tasks() -> list[str]:
    """Tasks that are started neither in a TaskGroup nor by
    `libcalico.process.tasks`, in what we ship."""
    found: list[str] = []
    for path in python_files():
        name = str(path.relative_to(ROOT))
        if name.startswith("tests/"):
            continue
        lines = tasks_in(path.read_text())
        if len(lines) != TASKS_OF_THEIR_OWN.get(name, 0):
            found += [
                f"{name}:{line}: start this task by libcalico.process.tasks" for line in lines
            ]
    return found


def tasks_in(source: str) -> list[int]:
    """The lines on which a task is started in none of the groups of its file."""
    tree = ast.parse(source)
    groups = {
        item.optional_vars.id
        for node in ast.walk(tree)
        if isinstance(node, ast.AsyncWith)
        for item in node.items
        if isinstance(item.optional_vars, ast.Name)
        and isinstance(item.context_expr, ast.Call)
        and ast.unparse(item.context_expr.func) in ("asyncio.TaskGroup", "TaskGroup")
    }
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] in ("create_task", "ensure_future")
        and ast.unparse(node.func).rpartition(".")[0] not in groups
    ]


def stale_patches() -> list[str]:
    """Planted bugs whose lines are no longer those of the code: `tests/simulation/planting.py`."""
    found = []
    for name in planting.names():
        check = [*planting.APPLY, "--check", str(planting.PLANTED / f"{name}.patch")]
        done = subprocess.run(check, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            found.append(f"{name}: {done.stderr.strip()}")
    return found


def main() -> None:
    """Run every check, show only what complains, exit 1 if any did; `--count` only counts."""
    if sys.argv[1:] == ["--count"]:
        print("\n".join(counters.report(ROOT, python_files())))
        return
    failed = False
    for name, command in CHECKS:
        run = subprocess.run(
            [str(BIN / command[0]), *command[1:]],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        print(f"{'ok' if run.returncode == 0 else 'FAILED':6} {name}", flush=True)
        if run.returncode != 0:
            failed = True
            print(run.stdout + run.stderr)
    documented = listed.texts(*invariants.PATTERNS)
    looks = (
        ("file sizes", sizes()),
        ("what a reader stumbles over", counters.complaints(ROOT, python_files())),
        ("tests that docstrings name", strays()),
        ("tests of product files", untested()),
        ("import circles", circles()),
        ("tasks without an owner", bare_tasks()),
        ("blind suppressions", blind_suppressions()),
        ("readers that nesting ends", narrow_readers()),
        ("planted bugs apply", stale_patches()),
        ("prose of the documentation", prose.complaints(prose.pages(ROOT))),
        ("invariants", invariants.complaints(documented)),
        ("page of goals and figures", performance.complaints()),
        ("references", references.complaints(documented)),
    )
    for name, found in looks:
        failed |= bool(found)
        print("\n".join([f"{'FAILED' if found else 'ok':6} {name}", *found]))
    sys.exit(failed)


if __name__ == "__main__":
    main()
