"""What docstrings declare becomes a page, and ids that clash or that nothing declares are found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests import invariants, listed

IN_A_BLOCK = '''"""A queue.

Invariants (tests/felix/calc/test_pools.py, test_blocks.py there):
  QUX-1  What comes first
         goes first.
  QUX-2  Nothing is lost.
Tested in tests/felix/kernel/test_repair.py.
"""
'''
FLUSH = '''"""A table.

TBX-1: a row is
    whole.
TBX-2: rows are sorted,
by key. Tested in tests/linux/test_delta_table.py.
"""
'''
IN_A_SENTENCE = '"""A name. Invariant NMX-1: it never\nchanges (tests/lab/test_pods.py)."""\n'
IN_C = "/* A program.\n *\n * Invariants:\n *   PRX-1  It ends.\n */\nint main;\n/* PRX-2  No. */\n"


def test_each_form_is_read() -> None:
    files = {
        "felix/queue.py": IN_A_BLOCK,
        "linux/rows.py": FLUSH,
        "libcalico/name.py": IN_A_SENTENCE,
        "cni/executable/x.c": IN_C,
        "tests/felix/calc/test_blocks.py": "",
    }
    found = {each.id: each for each in invariants.declared(files)}
    assert {name: each.sentence for name, each in found.items()} == {
        "QUX-1": "What comes first goes first.",
        "QUX-2": "Nothing is lost.",
        "TBX-1": "A row is whole.",
        "TBX-2": "Rows are sorted, by key.",
        "NMX-1": "It never changes",
        "PRX-1": "It ends.",
    }
    named = (
        "tests/felix/calc/test_pools.py",
        "tests/felix/calc/test_blocks.py",
        "tests/felix/kernel/test_repair.py",
    )
    assert found["QUX-1"].tests == named
    assert found["TBX-1"].tests == ("tests/linux/test_delta_table.py",)


def test_a_file_that_names_no_test_has_its_mirror() -> None:
    files = {"linux/links.py": '"""ONX-1: it is."""\n', "tests/linux/test_links.py": ""}
    assert invariants.declared(files)[0].tests == ("tests/linux/test_links.py",)


def test_a_test_cites() -> None:
    """A helper of tests may declare, in a block that says so."""
    files = {
        "tests/linux/test_delta_table.py": FLUSH,
        "tests/linux/rows.py": FLUSH,
        "tests/linux/queue.py": IN_A_BLOCK,
    }
    assert [each.id for each in invariants.declared(files)] == ["QUX-1", "QUX-2"]


def problems(files: Mapping[str, str], others: Iterable[str]) -> list[str]:
    return invariants.problems(invariants.declared(files), files, others)


def test_a_clash_is_found() -> None:
    """With another file, in one file, and with an id of the other lists."""
    one = '"""ONX-1: it is."""\n'
    assert problems({"a/x.py": one}, []) == []
    (found,) = problems({"a/x.py": one, "b/y.py": one}, [])
    assert found == "b/y.py: ONX-1 is an id of a/x.py, too"
    assert len(problems({"a/x.py": '"""A.\n\nONX-1: b.\nONX-1: c.\n"""\n'}, [])) == 1
    assert len(problems({"a/x.py": one}, ["ONX-01"])) == 1


def test_an_id_that_nothing_declares_is_found() -> None:
    files = {"a/x.py": '"""ONX-1: it is."""\n', "docs/roadmap.md": "ONX-1, LIST-02, SHA-256, RFC-1"}
    assert problems(files, ["LIST-02"]) == []
    (found,) = problems({**files, "tests/test_x.py": "# ONX-2"}, ["LIST-02"])
    assert found == "tests/test_x.py: ONX-2 is declared nowhere"


def test_the_page_is_that_of_the_docstrings() -> None:
    assert invariants.complaints(listed.texts(*invariants.PATTERNS)) == []
    assert invariants.main(["--check"]) == 0
