"""The counters of code count what they say."""

from pathlib import Path

from tests import counters

WIDE = (
    "class A:\n    def f(self):\n"
    + "".join(f"        self.a{n} = {n}\n" for n in range(21))
    + "        self.a0 = 1\n"
)


def test_long_functions_are_named_by_their_line() -> None:
    source = {
        "a.py": "\ndef f():\n" + "    x = 1\n" * 60,
        "b.py": "def g():\n" + "    x = 1\n" * 59,
    }
    assert counters.long_functions(source) == ["a.py:2: f"]


def test_wide_classes_are_counted_by_different_attributes() -> None:
    assert counters.wide_classes({"a.py": WIDE}) == ["a.py:1: A"]
    assert counters.wide_classes({"a.py": WIDE.replace("self.a20 =", "self.a19 =")}) == []


def test_full_folders() -> None:
    source = {f"felix/f{n}.py": "" for n in range(26)} | {"bgp/a.py": ""}
    assert counters.full_folders(source) == ["felix/: 26 files"]


def test_lines_of_code_leave_out_blanks_comments_and_docstrings() -> None:
    text = '"""Module.\n\nMore."""\n\n# Comment.\nx = (\n    1\n)\n'
    text += 'def f():\n    """Doc."""\n    y = 2\n'
    assert counters.code_lines(text) == 5


def test_uses_are_names_parameters_and_keywords() -> None:
    text = "def f(held):\n    found = g(told=1)\n    return x.found, 'wanted'\n"
    assert counters.uses(text, counters.VAGUE) == 3


def test_definers() -> None:
    source = {"a.py": "class A:\n    def take(self): ...\n", "b.py": "take = 1\n"}
    assert counters.definers(source, "take") == ["a.py"]


def test_complexity_is_what_ruff_says(tmp_path: Path) -> None:
    branches = "".join(f"    if x == {n}:\n        return {n}\n" for n in range(21))
    (tmp_path / "a.py").write_text(f"def f(x):\n{branches}")
    (tmp_path / "b.py").write_text("def f(x):\n    return x\n")
    assert counters.complex_functions(tmp_path, ["a.py", "b.py"]) == 1


def test_the_product_is_the_shipped_rooms_without_generated_stubs(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("felix/a.py", "lab/b.py", "libcalico/x_pb2.py")]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_text("x = 1\n")
    assert counters.product(tmp_path, paths) == {"felix/a.py": "x = 1\n"}


def test_a_count_is_refused_above_its_budget_only() -> None:
    most = counters.MOST["take"]
    assert counters.over_budget({"take": most}) == []
    assert counters.over_budget({"take": most + 1}) == [f"take: {most + 1}, at most {most}"]


def test_a_tree_with_a_large_file_and_a_long_function_is_refused(tmp_path: Path) -> None:
    (tmp_path / "felix").mkdir()
    for page in ("README.md", "CONTRIBUTING.md"):
        (tmp_path / page).touch()
    body = "".join(f"    x = {n}\n" for n in range(counters.LARGE))
    path = tmp_path / "felix" / "a.py"
    path.write_text(f"def f():\n{body}")
    wrong = counters.complaints(tmp_path, [path])
    assert f"felix/a.py: {counters.LARGE + 1} lines, at most {counters.LARGE}" in wrong
    assert "felix/a.py:1: f: over 60 lines" in wrong
