"""Each scenario has a README with a drawing, and each number of it a test of that number."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from lab import cli, scenarios
from lab.errors import LabError

HERE = Path(__file__).parent


def expectations(text: str) -> list[int]:
    """The numbers of the list in a README. Pure."""
    return [int(number) for number in re.findall(r"^(\d+)\. \S", text, re.MULTILINE)]


def numbers(source: str) -> list[int]:
    """The numbers in the names of a file's tests. Pure."""
    names = [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return [int(found[1]) for name in names if (found := re.match(r"test_(\d+)_\w", name))]


@pytest.mark.parametrize("name", list(scenarios.SCENARIOS))
def test_every_expectation_is_asserted_by_its_number(name: str) -> None:
    text = (HERE / name / "README.md").read_text()
    source = (HERE / f"test_{name.replace('-', '_')}.py").read_text()
    assert "```" in text, "no drawing"
    assert f"lab up --scenario {name}" in text
    found = expectations(text)
    assert found == list(range(1, len(found) + 1))
    assert numbers(source) == found
    assert scenarios.find(name).objects.is_file()


def test_no_folder_is_nobodys() -> None:
    folders = {path.parent.name for path in HERE.glob("*/README.md")}
    assert folders == set(scenarios.SCENARIOS)


@pytest.mark.parametrize("words", [["--nodes", "3"], ["--topology", "flat"], ["--bare"], ["--tls"]])
def test_what_a_scenario_decides_cannot_be_asked_for(words: list[str]) -> None:
    options = cli.parser().parse_args(["up", "--scenario", "full-mesh", *words])
    with pytest.raises(LabError, match="the scenario decides it"):
        cli.bring_up(options)


def test_an_unknown_scenario_is_refused_with_all_names() -> None:
    options = cli.parser().parse_args(["up", "--scenario", "ring"])
    with pytest.raises(LabError, match="allowed are full-mesh, two-racks"):
        cli.bring_up(options)


@pytest.mark.promise("M-249")
def test_the_three_styles_are_explained_as_our_modes() -> None:
    """docs/modes.md says what each style is, and which backend and pool make it."""
    text = (HERE.parents[1] / "docs" / "modes.md").read_text()
    for style in ("Underlay", "Routed", "Overlay"):
        assert re.search(rf"^- \*\*{style}\*\*: \w", text, re.MULTILINE), style
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    modes = {row[0]: [cell.strip("`") for cell in row[1:4]] for row in rows if len(row) == 8}
    assert modes["Underlay by BGP"] == ["bird", "Never", "Never"]
    assert modes["Routed by BGP: mesh or reflectors"] == ["bird", "Never", "Never"]
    assert modes["Routed without BGP (host-gw)"] == ["vxlan", "Never", "Never"]
    assert [name for name, (_, ipip, _) in modes.items() if ipip == "Always"] == ["IP-in-IP"]
    assert [name for name, (*_, vxlan) in modes.items() if vxlan == "Always"] == ["VXLAN"]
    for scenario in re.findall(r"tests/lab_scenarios/([a-z-]+)/README\.md", text):
        assert scenario in scenarios.SCENARIOS
