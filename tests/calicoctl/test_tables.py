"""Golden layouts of the two kinds of table, and Go's way to print a float."""

from __future__ import annotations

import pytest

from calicoctl import borders, cells, tabwriter


def test_columns_are_padded_as_go_does_the_last_one_too() -> None:
    text = tabwriter.render(
        ["NAME", "CIDR", "SELECTOR"],
        [["default-ipv4-ippool", "192.168.0.0/16", "all()"], ["p", "10.0.0.0/8", ""]],
    )
    assert text == (
        "NAME                  CIDR             SELECTOR   \n"
        "default-ipv4-ippool   192.168.0.0/16   all()      \n"
        "p                     10.0.0.0/8                  \n"
    )


def test_a_narrow_column_is_five_wide() -> None:
    assert tabwriter.render(["N"], [["a"]]) == "N    \na    \n"


def test_width_counts_characters() -> None:
    assert tabwriter.render(["NAME"], [["zürich"]]).splitlines()[1] == "zürich   "


def test_borders_centre_headings_and_set_plain_numbers_right() -> None:
    text = borders.render(
        ["GROUPING", "CIDR", "IPS TOTAL", "IPS IN USE", "IPS FREE"],
        [
            ["IP Pool", "172.16.0.0/12", "1.0486e+06", "0 (0%)", "1.0486e+06 (100%)"],
            ["Block", "10.65.0.0/26", "64", "5 (8%)", "59 (92%)"],
        ],
    )
    assert text == (
        "+----------+---------------+------------+------------+-------------------+\n"
        "| GROUPING |     CIDR      | IPS TOTAL  | IPS IN USE |     IPS FREE      |\n"
        "+----------+---------------+------------+------------+-------------------+\n"
        "| IP Pool  | 172.16.0.0/12 | 1.0486e+06 | 0 (0%)     | 1.0486e+06 (100%) |\n"
        "| Block    | 10.65.0.0/26  |         64 | 5 (8%)     | 59 (92%)          |\n"
        "+----------+---------------+------------+------------+-------------------+\n"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1000.0, "1000"),
        (1_000_000.0, "1e+06"),
        (10_000_000.0, "1e+07"),
        (123_456_789.0, "1.23456789e+08"),
        (10.5, "10.5"),
        (0.0, "0"),
        (0.00001, "1e-05"),
        (-1_500_000.0, "-1.5e+06"),
        (True, "true"),
        (None, "<nil>"),
        (64512, "64512"),
    ],
)
def test_values_are_printed_as_go_templates_do(value: object, text: str) -> None:
    assert cells.go_text(value) == text
