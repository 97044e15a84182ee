"""What upstream's reports mean, and that all parts are of one version: no cluster is needed."""

from __future__ import annotations

import io
import json
import tarfile
from typing import Any

import pytest

from manifests.image import oci
from tests.k8s import binaries
from tests.upstream.binaries import ALL, E2E
from tests.upstream.image import renamed
from tests.upstream.suites import Result, check, check_whole, judge, needs_sctp, results

TRACE = "    \tError Trace:\thelper.go:78"


def attempt(protocol: str) -> str:
    return f"    helper.go:110: FAILED Command was [/agnhost connect --protocol={protocol} x:80]"


def test_the_suites_are_of_the_version_that_the_clusters_run() -> None:
    assert E2E.version == binaries.version()
    for one in ALL:
        assert (one.source / "go.sum").read_text().count("h1:") > 50


def log(*cases: tuple[str, list[str], str]) -> str:
    """What -test.v says of one test with cases."""
    lines = ["=== RUN   TestConformance", "=== RUN   TestConformance/A"]
    for name, said, _ in cases:
        lines += [f"=== RUN   TestConformance/A/{name}", *said]
    worst = "FAIL" if any(end == "FAIL" for *_, end in cases) else "PASS"
    lines += [
        f"--- {worst}: TestConformance (9.10s)",
        f"    --- {worst}: TestConformance/A (9.00s)",
    ]
    lines += [f"        --- {end}: TestConformance/A/{name} (3.00s)" for name, _, end in cases]
    return "\n".join(lines)


def test_what_ends_at_sctp_is_an_exception_where_the_kernel_has_none() -> None:
    said = log(
        ("one", [attempt("tcp")], "PASS"),
        ("two", [attempt("tcp"), attempt("sctp"), TRACE], "FAIL"),
    )
    (told,) = judge(said, sctp=False).values()
    assert (told.state, told.seconds, told.excepted) == ("passed", 9.0, ("two",))
    check(told)
    assert judge(said, sctp=True)["A"].state == "failed"


@pytest.mark.parametrize(
    "said",
    [
        [attempt("sctp"), attempt("tcp"), TRACE],
        [attempt("tcp"), TRACE, attempt("sctp"), TRACE],
        ["    unable to patch", TRACE],
        ["    a failure of another kind"],
    ],
)
def test_a_case_that_ends_otherwise_fails(said: list[str]) -> None:
    text = log(("one", [attempt("sctp"), TRACE], "FAIL"), ("two", said, "FAIL"))
    told = judge(text, sctp=False)["A"]
    assert told.state == "failed"
    assert told.said.startswith("TestConformance/A/two")
    with pytest.raises(AssertionError, match="failed: TestConformance/A/two"):
        check(told)


def test_a_test_that_fails_beside_its_cases_fails() -> None:
    text = log(("one", [], "PASS")).replace("    --- PASS: TestC", "    --- FAIL: TestC", 1)
    assert judge(text, sctp=False)["A"].state == "failed"
    # And beside cases that are exceptions.
    text = log(("one", [attempt("sctp"), TRACE], "FAIL"))
    text = text.replace(
        "--- FAIL: TestConformance (",
        "=== NAME  TestConformance/A\n" + TRACE + "\n--- FAIL: TestConformance (",
    )
    assert judge(text, sctp=False)["A"].state == "failed"


def test_a_suite_that_stopped_says_nothing_of_what_did_not_end() -> None:
    text = [*log(("one", [], "PASS")).splitlines()[:3], "panic: test timed out"]
    assert judge("\n".join(text), sctp=False) == {}


def spec(state: str, text: str, **more: Any) -> dict[str, Any]:
    return {
        "LeafNodeType": "It",
        "ContainerHierarchyTexts": ["[sig-network] Netpol", "between"],
        "LeafNodeText": text,
        "State": state,
        "RunTime": 2_000_000_000,
        **more,
    }


def test_ginkgos_states() -> None:
    failure = {"Message": "was ALLOWED", "Location": {"FileName": "x.go", "LineNumber": 3}}
    told = results(
        [
            spec("passed", "a"),
            spec("failed", "b", Failure=failure, CapturedGinkgoWriterOutput="matrix"),
            spec("timedout", "c", Failure=failure),
            spec("skipped", "d", Failure={"Message": "needs two nodes"}),
            spec("skipped", "not chosen"),
        ]
    )
    assert {name: one.state for name, one in told.items()} == {
        "Netpol between a": "passed",
        "Netpol between b": "failed",
        "Netpol between c": "failed",
        "Netpol between d": "skipped",
    }
    assert told["Netpol between b"].said == "was ALLOWED\nx.go:3\nmatrix"
    with pytest.raises(AssertionError, match="skipped: needs two nodes"):
        check(told["Netpol between d"])


class Three:
    """A suite of three."""

    name, count = "three", 3

    def specs(self) -> list[str]:
        return ["a", "b", "c"]

    def run(self, *_: object) -> dict[str, Result]:
        return {}


def test_a_suite_with_fewer_specs_than_it_should_have_is_not_whole() -> None:
    told = {name: Result("passed") for name in "abc"}
    check_whole(Three(), told)
    for other in ({**told, "b": Result("skipped")}, {name: told[name] for name in "ab"}):
        with pytest.raises(AssertionError, match="not run"):
            check_whole(Three(), other)
    four = Three()
    four.count = 4
    with pytest.raises(AssertionError):
        check_whole(four, told)


def test_what_is_of_sctp_alone() -> None:
    assert needs_sctp("Netpol [Feature:SCTPConnectivity] using SCTP should support a policy")
    assert needs_sctp("CNPAdminTierEgressSCTP")
    assert not needs_sctp("should not mistakenly treat 'protocol: SCTP' as 'protocol: TCP'")


def test_an_archive_has_every_name_for_one_image() -> None:
    made = oci.archive("x/a:1", [oci.Layer("sha256:0", b"x")], oci.Settings([], [], {}, ""), 0)[1]
    with tarfile.open(fileobj=io.BytesIO(renamed(made, ["x/a:1", "x/b:2"]))) as archive:
        opened = archive.extractfile("index.json")
        assert opened is not None
        entries = json.loads(opened.read())["manifests"]
    assert [one["annotations"]["io.containerd.image.name"] for one in entries] == ["x/a:1", "x/b:2"]
    assert len({one["digest"] for one in entries}) == 1
