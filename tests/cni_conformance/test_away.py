"""What counts as a truthful answer without the daemon, and that each verb gives one."""

from __future__ import annotations

import json

import pytest

from tests.cni.executable import BUILDS, Build, Done
from tests.cni_conformance import away


def failed(code: int, msg: str = "the daemon calico-cni on this node does not answer") -> Done:
    """A call's error."""
    body = {"cniVersion": "1.0.0", "code": code, "msg": msg}
    return Done(1, json.dumps(body).encode() + b"\n", "")


RESULT = Done(0, b'{"cniVersion":"1.0.0"}', "")
DELETED = Done(0, b"", "calico: DEL queued, the daemon calico-cni does not answer: away\n")


@pytest.mark.parametrize(
    ("command", "down", "up", "word"),
    [
        ("ADD", failed(11), RESULT, "code 11"),
        ("STATUS", failed(50), Done(0, b"", ""), "code 50"),
        ("DEL", DELETED, Done(0, b"", ""), "queued"),
        ("ADD", failed(4, "no name"), failed(4, "no name"), "as up"),
        ("VERSION", RESULT, RESULT, "as up"),
    ],
)
def test_words(command: str, down: Done, up: Done, word: str) -> None:
    assert away.label(command, down, up) == word


@pytest.mark.parametrize(
    ("command", "down", "up"),
    [
        ("ADD", RESULT, RESULT),
        ("ADD", failed(999), RESULT),
        ("ADD", failed(11, "no room"), RESULT),
        ("STATUS", failed(11), Done(0, b"", "")),
        ("CHECK", Done(0, b"", ""), Done(0, b"", "")),
        ("DEL", Done(0, b"", ""), Done(0, b"", "")),
        ("VERSION", RESULT, Done(0, b"{}", "")),
        ("ADD", failed(4, "no name"), failed(4, "no container")),
    ],
)
def test_what_is_no_answer(command: str, down: Done, up: Done) -> None:
    with pytest.raises(AssertionError):
        away.label(command, down, up)


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.label)
@pytest.mark.parametrize("command", away.VERBS)
def test_each_verb(build: Build, command: str) -> None:
    expected = {"STATUS": "code 50", "DEL": "queued", "VERSION": "as up"}.get(command, "code 11")
    assert away.of_verb(build, command, ("1.1.0",)) == {expected}
