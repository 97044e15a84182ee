"""`apply --confirm-within` and `confirm`, on a real etcd."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from libcalico.commit_confirmed import ANNOTATION
from tests.calicoctl.conftest import Ctl


def policy(order: int, name: str = "shut") -> str:
    return (
        "kind: GlobalNetworkPolicy\napiVersion: projectcalico.org/v3\n"
        f"metadata: {{name: {name}, labels: {{version: v{order}}}}}\n"
        f"spec: {{order: {order}, selector: has(host)}}\n"
    )


HOST = """\
kind: HostEndpoint
apiVersion: projectcalico.org/v3
metadata: {name: h1, labels: {host: ""}}
spec: {node: n1, interfaceName: eth0}
"""
POOL = """\
kind: IPPool
apiVersion: projectcalico.org/v3
metadata: {name: p1}
spec: {cidr: 10.65.0.0/16}
"""


def stored(ctl: Ctl, name: str = "shut") -> Any:
    return json.loads(ctl("get", "gnp", name, "-o", "json").out)


def waiting(resource: Any) -> Any:
    return json.loads(resource["metadata"]["annotations"][ANNOTATION])


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """For `confirm`, `patch` and `label` ten minutes have passed since the apply."""
    moment = datetime.now(UTC) + timedelta(minutes=10)
    clock = SimpleNamespace(now=lambda zone: moment.astimezone(zone))
    monkeypatch.setattr("calicoctl.commands.resources.common.datetime", clock)


def test_apply_says_how_long_and_confirm_makes_it_last(ctl: Ctl) -> None:
    ctl("apply", "-f", "-", stdin=policy(1))
    begun = time.time()
    done = ctl("apply", "-f", "-", "--confirm-within", "60s", stdin=policy(2))
    ended = time.time()
    assert (done.code, done.err) == (0, "")
    assert "Successfully applied 1 'GlobalNetworkPolicy' resource(s)" in done.out
    assert "calicoctl confirm within 1m0s" in done.out
    found = waiting(stored(ctl))
    assert found["within"] == 60
    assert found["previous"]["spec"]["order"] == 1
    assert found["previous"]["metadata"]["labels"]["version"] == "v1"
    deadline = datetime.fromisoformat(found["deadline"]).timestamp()
    assert begun + 59 <= deadline <= ended + 60
    assert ctl("confirm").out == "Confirmed GlobalNetworkPolicy(shut)\n"
    assert stored(ctl)["spec"]["order"] == 2
    assert "annotations" not in stored(ctl)["metadata"]
    assert ctl("confirm").out == "Nothing waits for confirmation\n"


def test_a_host_endpoint_and_its_policy_in_one_file_by_name(ctl: Ctl) -> None:
    both = f"{HOST}---\n{policy(5)}"
    assert ctl("apply", "-f", "-", "--confirm-within=600s", stdin=both).code == 0
    assert waiting(stored(ctl))["previous"] is None
    done = ctl("confirm", "hep", "h1")
    assert done.out == "Confirmed HostEndpoint(h1)\n"
    assert ctl("confirm", "hep", "h1").err == "HostEndpoint(h1) does not wait for confirmation\n"
    assert ctl("confirm", "gnp", "absent").code == 1
    assert ctl("confirm", "gnp").code == 1
    assert ctl("confirm").out == "Confirmed GlobalNetworkPolicy(shut)\n"


@pytest.mark.usefixtures("later")
def test_after_the_deadline_it_is_too_late(ctl: Ctl) -> None:
    ctl("apply", "-f", "-", stdin=policy(1))
    ctl("apply", "-f", "-", "--confirm-within", "60s", stdin=policy(2))
    done = ctl("confirm")
    assert done.code == 1
    assert "was not confirmed by" in done.err
    assert waiting(stored(ctl))["previous"]["spec"]["order"] == 1
    assert ctl("confirm", "--revert").out == "Reverted GlobalNetworkPolicy(shut)\n"
    back = stored(ctl)
    assert (back["spec"]["order"], back["metadata"]["labels"]["version"]) == (1, "v1")
    assert "annotations" not in back["metadata"]


@pytest.mark.usefixtures("later")
def test_a_version_that_ran_out_is_neither_patched_nor_labelled(ctl: Ctl) -> None:
    ctl("apply", "-f", "-", stdin=policy(1))
    ctl("apply", "-f", "-", "--confirm-within", "60s", stdin=policy(2))
    before = stored(ctl)
    for command in (
        ("patch", "gnp", "shut", "-p", "{spec: {order: 3}}"),
        ("label", "gnp", "shut", "a=b"),
        ("label", "gnp", "shut", "version", "--remove"),
    ):
        done = ctl(*command)
        assert (done.code, done.out) == (1, "")
        assert "GlobalNetworkPolicy(shut) was not confirmed by" in done.err
        assert "confirm --revert" in done.err
    assert stored(ctl) == before
    ctl("confirm", "--revert")
    assert ctl("patch", "gnp", "shut", "-p", "{spec: {order: 3}}").code == 0
    assert stored(ctl)["spec"]["order"] == 3


def test_a_version_that_waits_is_patched_and_still_waits(ctl: Ctl) -> None:
    ctl("apply", "-f", "-", stdin=policy(1))
    ctl("apply", "-f", "-", "--confirm-within", "600s", stdin=policy(2))
    assert ctl("patch", "gnp", "shut", "-p", "{spec: {order: 3}}").code == 0
    assert ctl("label", "gnp", "shut", "a=b").code == 0
    assert stored(ctl)["spec"]["order"] == 3
    assert waiting(stored(ctl))["previous"]["spec"]["order"] == 1


def test_reverting_what_was_not_there_deletes_it(ctl: Ctl) -> None:
    ctl("apply", "-f", "-", "--confirm-within", "60s", stdin=policy(2))
    assert ctl("confirm", "--revert").code == 0
    assert "does not exist" in ctl("get", "gnp", "shut").err


def test_a_second_try_keeps_the_last_confirmed_version(ctl: Ctl) -> None:
    ctl("apply", "-f", "-", stdin=policy(1))
    for order in (2, 3):
        ctl("apply", "-f", "-", "--confirm-within", "60s", stdin=policy(order))
    assert waiting(stored(ctl))["previous"]["spec"]["order"] == 1
    assert stored(ctl)["spec"]["order"] == 3


def test_a_plain_apply_confirms_even_of_what_get_printed(ctl: Ctl) -> None:
    ctl("apply", "-f", "-", stdin=policy(1))
    ctl("apply", "-f", "-", "--confirm-within", "60s", stdin=policy(2))
    printed = ctl("get", "gnp", "shut", "-o", "yaml").out
    assert ANNOTATION in printed
    assert ctl("apply", "-f", "-", stdin=printed).code == 0
    assert "annotations" not in stored(ctl)["metadata"]


@pytest.mark.parametrize(
    ("within", "words"),
    [("soon", "a duration is written as"), ("1s", "between 5s and 24h0m0s"), ("60", "a duration")],
)
def test_times_that_are_none(ctl: Ctl, within: str, words: str) -> None:
    done = ctl("apply", "-f", "-", "--confirm-within", within, stdin=policy(1))
    assert done.code == 1
    assert words in done.err
    assert "does not exist" in ctl("get", "gnp", "shut").err


def test_other_kinds_are_refused_before_anything_is_written(ctl: Ctl) -> None:
    both = f"{policy(1)}---\n{POOL}"
    done = ctl("apply", "-f", "-", "--confirm-within", "60s", stdin=both)
    assert done.code == 1
    assert "IPPool(p1): --confirm-within is possible for" in done.err
    assert "does not exist" in ctl("get", "gnp", "shut").err
