"""The installer's variables: one table, and the same one in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cni.install.credentials import ASKING
from cni.install.main import parser
from cni.install.settings import VARIABLES
from cni.install.template import TemplateError, names, render

DOCUMENT = (Path(__file__).parents[2] / "docs/install-cni.md").read_text()
ROW = re.compile(r"^\| `([A-Z_]+)` \|(.*?)\| (.*) \|$", re.MULTILINE)


@pytest.mark.promise("M-209")
def test_every_variable_stands_in_the_document_with_its_default() -> None:
    rows = {name: (default, meaning) for name, default, meaning in ROW.findall(DOCUMENT)}
    for one in VARIABLES:
        default, meaning = rows[one.name]
        if one.default:
            assert default.strip() == one.default, one.name
        if one.placeholder:
            assert f"`__{one.placeholder}__`" in meaning, one.name
    for name in ASKING:
        assert f"`__{name}__`" in DOCUMENT


def test_every_option_stands_in_the_document_and_every_variable_in_the_help() -> None:
    text = parser().format_help()
    for option in set(re.findall(r"--[a-z-]+", text)) - {"--help"}:
        assert f"`{option}" in DOCUMENT, option
    for one in VARIABLES:
        assert one.name in text


def test_a_value_is_never_taken_for_a_placeholder_or_for_json() -> None:
    """A token may hold anything, and its underscores are its own."""
    text = '{"a": "__A__", "b": "__B_2__", "__c__": "__A__"}'
    assert names(text) == ["A", "B_2"]
    assert render(text, {"A": "x__B_2__y", "B_2": lambda: '"},'}, "here") == (
        '{"a": "x__B_2__y", "b": "\\"},", "__c__": "x__B_2__y"}'
    )
    with pytest.raises(TemplateError, match="here: __B_2__: no such placeholder; known are __A__"):
        render(text, {"A": ""}, "here")
