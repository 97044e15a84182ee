"""YAML read as operators mean it, and written so that Go reads it back."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from calicoctl import yamltext
from calicoctl.listing.yamlwriter import YamlWriter
from libcalico.errors import MuslinError

# Ten lines of ten names each: 10 ** 9 values.
LAUGHS = "a0: &a0 [x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)


def read(text: str) -> object:
    (document,) = yamltext.load(text, "file")
    return document.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("65000:12", "65000:12"),
        ("1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8"),
        ("no", "no"),
        ("off", "off"),
        ("0644", "0644"),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("2020-01-01", "2020-01-01"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("1.2.3", "1.2.3"),
        ('"12"', "12"),
        ("'true'", "true"),
        ("!!str 12", "12"),
        ("=", "="),
        ("<<", "<<"),
        ("true", True),
        ("False", False),
        ("64512", 64512),
        ("-3", -3),
        ("0", 0),
        ("10.5", 10.5),
        ("1e3", 1000.0),
        ("~", None),
        ("", None),
    ],
)
def test_plain_words_are_what_they_look_like(text: str, value: object) -> None:
    assert read(f"key: {text}\n") == {"key": value}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a:\n  b: 1\n  b: 2\n", "file: line 3: a.b: this key stands here twice"),
        ("a: [1\n", "file: line 2, column 1: not valid YAML or JSON"),
        ("a: &x [*x]\n", "an alias that contains itself"),
        (LAUGHS, "aliases give more than 100000 values"),
        ("? [1]\n: 2\n", "file: line 1: a key must be text"),
        ("a: !!python/object:os.system x\n", "is not allowed"),
        ("a: !!int zwei\n", "is not allowed"),
        ("a: 1e999\n", "is not allowed"),
        ("[" * 100_000, "file: line 1: nested deeper than 100 levels"),
        ("- " * 100_000, "nested deeper"),
        ("\n".join(" " * depth + "a:" for depth in range(300)), "line 101: nested deeper"),
        ('{"a": 1, "a": 2}', "file: line 1: a: this key stands here twice"),
    ],
)
def test_errors_name_file_and_line(text: str, told: str) -> None:
    with pytest.raises(MuslinError, match=r"^file: line") as error:
        yamltext.load(text, "file")
    assert told in str(error.value)


def test_few_aliases_are_read() -> None:
    assert read("a: &x {b: [1]}\nc: [*x, *x]\n") == {"a": {"b": [1]}, "c": [{"b": [1]}] * 2}


def test_bytes_that_are_no_text_are_an_error() -> None:
    with pytest.raises(MuslinError):
        yamltext.load(b"key: \xff", "file")


def test_several_documents_empty_ones_left_out_lines_kept() -> None:
    first, second = yamltext.load("---\n---\na: 1\n---\nb:\n- c: 2\n", "file")
    assert (first.value, second.value) == ({"a": 1}, {"b": [{"c": 2}]})
    assert second.line_of("b[0].c") == 6
    assert second.line_of("b[0].nothing.there") == 6
    assert second.line_of("elsewhere") == 5


def test_output_is_shaped_as_gos() -> None:
    value = {
        "kind": "X",
        "list": [{"b": "65000:12", "a": "no"}],
        "empty": {},
        "none": [],
        "time": "2026-01-01T00:00:00Z",
        "version": "123",
        "text": "two\nlines\n",
        "selector": "all()",
        "star": "*",
        "blank": "",
    }
    assert yamltext.dump(value) == (
        'blank: ""\n'
        "empty: {}\n"
        "kind: X\n"
        "list:\n"
        '- a: "no"\n'
        '  b: "65000:12"\n'
        "none: []\n"
        "selector: all()\n"
        "star: '*'\n"
        "text: |\n"
        "  two\n"
        "  lines\n"
        'time: "2026-01-01T00:00:00Z"\n'
        'version: "123"\n'
    )


_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=12) | (
    st.sampled_from(["no", "1:30", "0644", "~", "", "1e3", ".5", "0x1f", "=", "-", "2020-01-01"])
)
_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(_TEXT, _PLAIN, max_size=3))
def test_what_we_write_both_readers_read_back(value: dict[str, object]) -> None:
    text = yamltext.dump(value)
    assert yaml.safe_load(text) == value
    assert [one.value for one in yamltext.load(text, "file")] == [value]


_WORD = st.text(st.sampled_from("aAbBeExXoOyYnNzZ0129_./:-+~= #'\"\n"), max_size=10)
_STORED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXT | _WORD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT | _WORD, inner, max_size=3),
    max_leaves=12,
)


@given(st.lists(_STORED, min_size=1, max_size=3))
@example([{"\n": None}, None])
@example([{"a": "x\n\n"}, {"a": "y"}])
def test_many_documents_are_written_as_one_would_be(values: list[object]) -> None:
    writer = YamlWriter()
    whole = yamltext.dump(values)
    assert "".join(writer.items(values)) == whole
    # Once more, by what it remembers.
    assert "".join(writer.items(values)) == whole


@pytest.mark.parametrize("text", ["x", "x\n", "x\n\n", "\n", "..."])
def test_no_text_ends_the_document_before_its_end(text: str) -> None:
    values: list[object] = [{"a": text}, {"b": text}]
    for written in (yamltext.dump(values), "".join(YamlWriter().items(values))):
        assert "..." not in written.splitlines()
        assert [one.value for one in yamltext.load(written, "file")] == [values]
    assert [one.value for one in yamltext.load(yamltext.dump(text), "file")] == [text]


def test_long_keys_and_texts_of_several_lines_are_written_as_always() -> None:
    values: list[object] = [{"k" * 200: 1, "a": "b"}, {"a": ["two\nlines", {"b": [[1]]}]}]
    assert "".join(YamlWriter().items(values)) == yamltext.dump(values)
