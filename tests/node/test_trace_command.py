"""The words of `calico-node trace`: bad ones are refused with what is allowed."""

from __future__ import annotations

import argparse

import pytest

from libcalico.errors import InvalidValue
from node.trace.command import add_arguments, question_of

GOOD = ["10.0.0.1", "10.0.0.2", "--port=80"]


def parsed(*words: str) -> argparse.Namespace:
    """A command line."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(words)


def test_a_question() -> None:
    asked = question_of(parsed(*GOOD, "--source-interface=cali1"))
    assert (asked.source, asked.destination, asked.protocol, asked.port) == (
        "10.0.0.1", "10.0.0.2", 6, 80,
    )  # fmt: skip
    assert (asked.source_interface, asked.destination_interface) == ("cali1", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pod", "10.0.0.2", "--port=80"], "source"),
        (["10.0.0.1", "fd00::1", "--port=80"], "want an IPv4 address"),
        (["10.0.0.1", "10.0.0.2"], "need the port"),
        ([*GOOD, "--port=70000"], "want 0 to 65535"),
        ([*GOOD, "--protocol=256"], "want 0 to 255"),
        ([*GOOD, "--count=-1"], "want 0 to 100000"),
        ([*GOOD, "--seconds=601"], "want 0 to 600"),
        ([*GOOD, "--size=65001"], "want 0 to 65000"),
    ],
)
def test_bad_words(words: list[str], said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        question_of(parsed(*words))
