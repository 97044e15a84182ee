"""Parts of the demo's checks: what they read out of output, and when their traffic begins."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
import yaml

from lab.demo import look, matrix, policies
from lab.demo.__main__ import CHECKS, NAMES, report
from lab.demo.deletion import cells, of_policies
from lab.demo.story import Outcome, Story, end, perform
from lab.demo.traffic import begun, finish, lost
from lab.demo.transcript import CheckFailed, Transcript, expect
from lab.demo.wiring import has_line
from lab.machine import FAST_PYTHON, PROBE
from lab.namespaces import documents
from tests.support.patience import HANG
from tests.support.ports import free_ports

PING = """PING 10.65.0.1 (10.65.0.1) 56(84) bytes of data.
64 bytes from 10.65.0.1: icmp_seq=1 ttl=62 time=0.1 ms
64 bytes from 10.65.0.1: icmp_seq={second} ttl=62 time=0.1 ms

--- 10.65.0.1 ping statistics ---
{sent} packets transmitted, 2 received, 33% packet loss, time 20ms
"""


@pytest.mark.parametrize(("second", "sent", "missing"), [(2, 3, 0), (3, 3, 1), (2, 9, 0)])
def test_pings_under_way_at_the_end_are_not_lost(second: int, sent: int, missing: int) -> None:
    assert lost(PING.format(second=second, sent=sent)) == (sent, missing)


def test_ping_without_a_summary_is_a_failure() -> None:
    with pytest.raises(CheckFailed, match="no summary"):
        lost("ping: connect: Network is unreachable")


def test_a_stream_has_begun_when_its_first_line_is_back() -> None:
    """However long the other end takes: what is done to it then meets a connection that stands."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = [*FAST_PYTHON, str(PROBE), "stream", "127.0.0.1", str(server.getsockname()[1])]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as stream:
            link, _ = server.accept()
            with link, link.makefile("rwb") as file, ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(begun, stream)
                file.write(b"a greeting\n")
                file.flush()
                line = file.readline()
                assert not wait([waiting], 0.2).done
                file.write(line)
                file.flush()
                waiting.result(HANG)
                stream.send_signal(signal.SIGTERM)
                file.write(file.readline())
            assert json.loads(finish(stream))["echoed"] >= 1


def test_a_stream_that_does_not_begin_says_why() -> None:
    (port,) = free_ports(1)
    command = [*FAST_PYTHON, str(PROBE), "stream", "127.0.0.1", str(port)]
    refused = pytest.raises(CheckFailed, match=r"did not begin: .*Connection refused")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as stream, refused:
        begun(stream)


def test_dumps_are_compared_without_counters_and_comments() -> None:
    old = {"iptables": look.normal(":INPUT ACCEPT [0:0]\n# at noon\n-A INPUT -j x\n")}
    new = {"iptables": look.normal("-A INPUT -j y\n:INPUT ACCEPT [9:8]\n# at one\n")}
    assert look.differences(old, new) == ["iptables: - -A INPUT -j x", "iptables: + -A INPUT -j y"]
    assert look.differences(old, old) == []


def test_a_line_must_match_as_a_whole() -> None:
    has_line("  default via 169.254.1.1 dev eth0 \n", r"default via 169\.254\.1\.1 dev eth0", "x")
    with pytest.raises(CheckFailed, match="x: no line matches"):
        has_line("default via 169.254.1.10 dev eth0", r"default via 169\.254\.1\.1 dev eth0", "x")


def test_cells_of_a_table() -> None:
    text = "+--+\n| GROUPING | CIDR | TOTAL | IN USE | FREE |\n| IP Pool | c | 4 | 0 (0%) | 4 |"
    assert cells(text)[1] == ["IP Pool", "c", "4", "0 (0%)", "4"]


def test_a_failed_check_is_an_outcome_with_its_evidence() -> None:
    def check(_: Story, transcript: Transcript) -> None:
        transcript.note("seen")
        expect(False, "it is not so")

    story = Story("none", lambda _: None)
    outcome = perform(story, "x", check)
    assert not outcome.ok
    assert outcome.detail == "seen\nFAILED: it is not so"
    end(story)


def test_checks_after_a_failed_start_fail_and_do_not_crash() -> None:
    story = Story("none", lambda _: None)
    for name, _, check in CHECKS[1:]:
        outcome = perform(story, name, check)
        assert not outcome.ok
        assert "FAILED: " in outcome.detail


def test_the_report_is_ok_only_when_every_check_ran_and_held() -> None:
    good = [Outcome(name, True, "", 0.1) for name, _, _ in CHECKS]
    last = NAMES[-1]
    assert report(good, last)["ok"] is True
    assert report(good[:-1], last)["ok"] is False
    assert report(good[:-1], NAMES[-2])["ok"] is True
    assert report([*good[:-1], Outcome("x", False, "", 0.1)], last)["ok"] is False
    assert list(report(good, last)) == ["ok", "checks"]


def test_a_matrix_is_compared_and_drawn() -> None:
    wanted = {("tcp", "a", "b"): True, ("tcp", "b", "a"): False, ("udp", "a", "b"): True}
    found = {("tcp", "a", "b"): False, ("tcp", "b", "a"): True, ("udp", "a", "b"): True}
    assert matrix.differences(wanted, wanted) == []
    assert matrix.differences(wanted, found) == ["tcp a -> b is closed", "tcp b -> a is OPEN"]
    assert [line.split() for line in matrix.table(found).splitlines()] == [
        ["from", "\\", "to", "a", "b"],
        ["a", "-", ".U"],
        ["b", "T.", "-"],
    ]


def test_the_policies_are_what_they_say() -> None:
    tree = yaml.safe_load(policies.allow("x", "y", udp=("z",)))
    tcp, udp, icmp = tree["spec"]["ingress"]
    assert tcp["source"]["selector"] == "role in { 'x', 'y' }"
    assert udp["source"]["selector"] == "role in { 'z' }"
    assert icmp["icmp"] == {"type": 8}
    assert policies.name(policies.DENY) == "default-deny"


def test_what_policies_leave_behind_is_found() -> None:
    tables = {
        "iptables-save": [":cali-pi-np/a/b - [0:0]", ":cali-FORWARD - [0:0]", ":cali-pri-kns.a -"],
        "ip6tables-save": [":cali-po-gnp/a -"],
        "ipset save": ["create cali40s:abc hash:net", "create cali40masq-ipam-pools hash:net"],
    }
    assert of_policies(tables) == [
        ":cali-pi-np/a/b - [0:0]",
        ":cali-pri-kns.a -",
        ":cali-po-gnp/a -",
        "create cali40s:abc hash:net",
    ]


def test_a_namespace_is_two_documents() -> None:
    namespace, account = yaml.safe_load_all(documents("shop", {"team": "blue"}, {"a": "b"}))
    assert namespace["metadata"] == {
        "name": "shop",
        "labels": {"kubernetes.io/metadata.name": "shop", "team": "blue"},
    }
    assert account["kind"] == "ServiceAccount"
    assert account["metadata"] == {"name": "default", "namespace": "shop", "labels": {"a": "b"}}
