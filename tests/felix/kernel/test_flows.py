"""Flow logs with packets: what passed and what was denied, by whom, how much, and what it was for.

FLG-1, FCO-2 and TEL-1 with every back end; the flows are those of the file on the node.
"""

from __future__ import annotations

import itertools
import json
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.felix.console import calicoctl, following
from tests.felix.stage import ONLY_CLIENT, Stage, allow, both, make_stage
from tests.felix.world import METRICS_PORT, Pod, World
from tests.support.patience import HANG, wait_for

Flow = dict[str, Any]
ACCT = "net.netfilter.nf_conntrack_acct"
CASE = [
    allow(protocol="TCP", source=ONLY_CLIENT),
    {"action": "Deny", "protocol": "UDP", "destination": {"ports": [53]}},
    allow(protocol="UDP"),
    allow(protocol="ICMP"),
    allow(protocol="ICMPv6"),
]
ON = {"FELIX_FLOWLOGSLOCALREPORTER": "Enabled", "FELIX_FLOWLOGSFLUSHINTERVAL": "1"}


@pytest.fixture(scope="module", params=["nft", "legacy", "nftables"])
def built_with_flows(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    with make_stage(tmp_path_factory.mktemp("world"), request.param, **ON) as stage:
        stage.policy("case", CASE)
        stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
        ports = itertools.count(6000)
        wait_for(lambda: judged_by_the_case(stage, next(ports)), "pending traces are of the policy")
        yield stage


def judged_by_the_case(stage: Stage, port: int) -> bool:
    """Whether a new connection's pending trace is: what it was before is kept for a second."""
    watch, chosen = Watch(stage), between("client", "server", "udp", port, "Dst")
    exchange(stage.client, stage.server, port, 4, 1, 1)
    found = watch.until(chosen, lambda found: bool(found))
    return trace(found[0], "pending") == trace(found[0])


@pytest.fixture
def flowing(built_with_flows: Stage) -> Stage:
    """The stage with its policy; a test takes away what it adds."""
    return built_with_flows


def written(world: World) -> list[Flow]:
    """All flows of the file so far."""
    file = world.folder / "run/var-lib/calico/flows/flows.log"
    text = file.read_text() if file.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


class Watch:
    """The flows that come from now on."""

    def __init__(self, stage: Stage) -> None:
        self._world, self._skip = stage.world, len(written(stage.world))

    def of(self, chosen: Callable[[Flow], bool]) -> list[Flow]:
        return [flow for flow in written(self._world)[self._skip :] if chosen(flow)]

    def until(
        self, chosen: Callable[[Flow], bool], enough: Callable[[list[Flow]], bool]
    ) -> list[Flow]:
        wait_for(lambda: enough(self.of(chosen)), "the flows are written")
        return self.of(chosen)


def between(
    source: str, destination: str, proto: str, port: int, reporter: str = "", action: str = ""
) -> Callable[[Flow], bool]:
    def chosen(flow: Flow) -> bool:
        return (
            (flow["source_name"], flow["dest_name"], flow["proto"], flow["dest_port"])
            == (source, destination, proto, port)
            and reporter in ("", flow["reporter"])
            and action in ("", flow["action"])
        )

    return chosen


def total(flows: list[Flow], name: str) -> int:
    return sum(flow[name] for flow in flows)


def trace(flow: Flow, which: str = "enforced") -> list[tuple[str, str, str, int]]:
    return [
        (hit["kind"], hit.get("name", ""), hit["action"], hit.get("rule_index", 0))
        for hit in flow["policies"][which]
    ]


def exchange(client: Pod, server: Pod, port: int, family: int, there: int, back: int) -> None:
    """So many datagrams of 100 bytes one way, and of 50 the other."""
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    address = server.address if family == 4 else server.address6
    own = client.address if family == 4 else client.address6

    def bound(at: str, number: int) -> Callable[[], socket.socket]:
        def make() -> socket.socket:
            made = socket.socket(kind, socket.SOCK_DGRAM)
            made.bind((at, number))
            made.settimeout(HANG)
            return made

        return make

    with (
        server.space.call(bound(address, port)) as listener,
        client.space.call(bound(own, 0)) as caller,
    ):
        for _ in range(there):
            caller.sendto(b"x" * 100, (address, port))
            _, sender = listener.recvfrom(1000)
        for _ in range(back):
            listener.sendto(b"y" * 50, sender)
            caller.recvfrom(1000)


@pytest.mark.promise("F-97")
@pytest.mark.parametrize("family", [4, 6])
def test_both_ends_report_what_passed_with_every_packet_and_byte(
    flowing: Stage, family: int
) -> None:
    watch, port = Watch(flowing), 7000 + family
    exchange(flowing.client, flowing.server, port, family, 5, 3)
    chosen = between("client", "server", "udp", port)
    watch.until(chosen, lambda found: total(found, "packets_in") >= 8)
    header = 28 if family == 4 else 48
    there, back = (5, 5 * (100 + header)), (3, 3 * (50 + header))
    source = watch.of(between("client", "server", "udp", port, "Src"))
    destination = watch.of(between("client", "server", "udp", port, "Dst"))
    for flows, out, into in ((source, there, back), (destination, back, there)):
        assert (total(flows, "packets_out"), total(flows, "bytes_out")) == out
        assert (total(flows, "packets_in"), total(flows, "bytes_in")) == into
        assert total(flows, "num_connections_started") == 1
        assert {flow["action"] for flow in flows} == {"Allow"}
        assert {flow["source_namespace"] for flow in flows} == {"default"}
    assert trace(source[0]) == [("Profile", "kns.default", "Allow", 0)]
    assert trace(destination[0]) == [("GlobalNetworkPolicy", "case", "Allow", 2)]
    assert trace(destination[0], "pending") == trace(destination[0])
    assert "role=client" in source[0]["source_labels"]
    assert "role=server" in source[0]["dest_labels"]
    assert source[0]["end_time"] > source[0]["start_time"]


def test_a_connection_lives_and_completes(flowing: Stage) -> None:
    watch = Watch(flowing)
    here, there = flowing.client.address, flowing.server.address
    listener = flowing.server.space.call(lambda: socket.create_server((there, 7777)))
    caller = flowing.client.space.call(
        lambda: socket.create_connection((there, 7777), HANG, (here, 0))
    )
    peer = listener.accept()[0]
    chosen = between("client", "server", "tcp", 7777, "Dst")
    watch.until(chosen, lambda found: total(found, "num_connections_live") > 0)
    caller.sendall(b"x" * 3000)
    assert len(peer.recv(3000, socket.MSG_WAITALL)) == 3000
    for each in (caller, peer, listener):
        each.close()
    found = watch.until(chosen, lambda found: total(found, "num_connections_completed") > 0)
    assert (total(found, "num_connections_started"), found[-1]["num_connections_live"]) == (1, 0)
    assert total(found, "bytes_in") > 3000 + 3 * 40


@pytest.mark.promise("F-97")
def test_what_is_denied_names_the_rule_or_the_end_of_the_tier(flowing: Stage) -> None:
    watch = Watch(flowing)
    flowing.through("client 4 udp 53", "client 6 udp 53", "other 4 tcp 81")
    by_rule = between("client", "server", "udp", 53, "Dst", "Deny")
    found = watch.until(by_rule, lambda found: total(found, "packets_in") >= 2)
    assert total(found, "packets_in") == 2
    assert total(found, "packets_out") == 0
    assert total(found, "num_connections_started") == 2
    assert trace(found[0]) == [("GlobalNetworkPolicy", "case", "Deny", 1)]
    by_end = between("other", "server", "tcp", 81, "Dst", "Deny")
    (end, *_) = watch.until(by_end, bool)
    assert trace(end) == [("EndOfTier", "", "Deny", -1)]
    assert end["policies"]["enforced"][0]["trigger"]["name"] == "case"
    # At the source it was allowed: both ends say what they did.
    watch.until(between("other", "server", "tcp", 81, "Src", "Allow"), bool)


def test_a_ping_is_a_flow_without_a_port(flowing: Stage) -> None:
    watch = Watch(flowing)
    # That way nothing else goes: flows of the stage's own pings may be written at any time.
    for address in (flowing.client.address, flowing.client.address6):
        assert flowing.server.reaches(address, wait=HANG)
    for proto in ("icmp", "icmp6"):
        chosen = between("server", "client", proto, 0, "Dst")
        found = watch.until(chosen, lambda found: total(found, "packets_out") >= 1)
        assert (total(found, "packets_in"), total(found, "packets_out")) == (1, 1)


def test_a_pass_is_in_the_trace_and_an_address_outside_has_a_name(flowing: Stage) -> None:
    world = flowing.world
    world.put("tiers", "first", "Tier", {"order": 1})
    flowing.policy("first.gate", [{"action": "Pass"}], tier="first", order=1)
    watch = Watch(flowing)
    chosen = between("client", "server", "tcp", 82, "Dst")

    def both_tiers() -> list[Any]:
        # Connections from before the new tier are told of with their own trace.
        return [found for flow in watch.of(chosen) if len(found := trace(flow)) == 2]

    def passed() -> bool:
        assert flowing.through("client 4 tcp 82"), "it passes before and after"
        return bool(both_tiers())

    try:
        wait_for(passed, "the first tier is in the trace")
        assert both_tiers()[0] == [
            ("GlobalNetworkPolicy", "first.gate", "Pass", 0),
            ("GlobalNetworkPolicy", "case", "Allow", 0),
        ]
    finally:
        world.delete("globalnetworkpolicies", "first.gate")
        world.delete("tiers", "first")
    flowing.client.reaches("203.0.113.9")
    (out, *_) = watch.until(between("client", "pub", "icmp", 0, "Src"), bool)
    assert out["dest_type"] == "Network"


@pytest.mark.promise("F-97")
def test_a_staged_policy_is_in_the_pending_trace_alone(flowing: Stage) -> None:
    spec = {
        "selector": "role == 'server'",
        "types": ["Ingress"],
        "order": 1,
        "stagedAction": "Set",
        "ingress": [{"action": "Deny", "protocol": "TCP", "source": ONLY_CLIENT}],
    }
    staged = "stagedglobalnetworkpolicies"
    flowing.world.put(staged, "plan", "StagedGlobalNetworkPolicy", spec)
    try:
        chosen = between("client", "server", "tcp", 83, "Dst")

        def planned(flow: Flow) -> bool:
            pending = trace(flow, "pending")
            return chosen(flow) and pending == [("StagedGlobalNetworkPolicy", "plan", "Deny", 0)]

        watch = Watch(flowing)

        def seen() -> bool:
            assert flowing.through("client 4 tcp 83"), "it passes all the same"
            return bool(watch.of(planned))

        wait_for(seen, "the plan is in the trace")
        assert trace(watch.of(planned)[0]) == [("GlobalNetworkPolicy", "case", "Allow", 0)]
    finally:
        flowing.world.delete(staged, "plan")


@pytest.mark.promise("F-97")
def test_denied_packets_are_followed_beside_flow_logs(flowing: Stage) -> None:
    """NFR-1: both hear the same packets, and neither takes them from the other."""
    watch = Watch(flowing)
    with following(flowing.world, "node", "drops", "-f", "-o", "json") as follower:
        assert "Denied packets of node node1" in follower.said()
        flowing.through("client 4 udp 53")
        assert follower.next_flow()["by"]["name"] == "case"
    chosen = between("client", "server", "udp", 53, "Dst", "Deny")
    assert total(watch.until(chosen, bool), "packets_in") == 1
    flowing.through("client 6 udp 53")
    watch.until(chosen, lambda found: total(found, "packets_in") >= 2)
    told = json.loads(calicoctl(flowing.world, "node", "drops", "-o", "json"))
    assert any(one["by"].get("name") == "case" for one in told["counts"])


def test_metrics_say_what_was_made_and_what_was_lost(flowing: Stage) -> None:
    watch = Watch(flowing)
    flowing.through("client 4 udp 53")
    watch.until(between("client", "server", "udp", 53, "Dst", "Deny"), bool)
    world = flowing.world
    assert world.metric("muslin_felix_flows_total") > 0
    page = world.get("/metrics", METRICS_PORT)[1]
    assert 'muslin_felix_flows_lost_total{what="packets"} 0.0' in page
    denied = r'muslin_felix_policy_packets_total\{.*policy="case",action="deny".*\} [1-9]'
    assert re.search(denied, page)


def rules(stage: Stage) -> str:
    chains = (
        "cali-pi-gnp/case",
        "cali-tw-cali3server",
        "cali-fw-cali1client",
        "cali-pri-kns.default",
    )
    text = "\n".join(stage.world.kernel.chain(name) for name in chains)
    return re.sub(r"\[\d+:\d+\]|packets \d+ bytes \d+", "", text)


@pytest.mark.promise("F-97")
def test_switched_on_and_off_the_node_is_as_it_was(stage: Stage) -> None:
    """FLG-1: rules and settings of the kernel, by a FelixConfiguration."""
    stage.policy("case", CASE)
    stage.comes_to(both("client * tcp 80"), both("other * tcp 80"))
    before = rules(stage)
    assert "log" not in before.lower()
    assert stage.world.node.run("sysctl", "-n", ACCT).strip() == "0"
    spec = {"flowLogsLocalReporter": "Enabled", "flowLogsFlushInterval": "1s"}
    stage.world.put("felixconfigurations", "default", "FelixConfiguration", spec)
    try:
        wait_for(lambda: "API0" in rules(stage), "rules tell")
        assert stage.world.node.run("sysctl", "-n", ACCT).strip() == "1"
        watch = Watch(stage)
        stage.through("client 4 tcp 84")
        watch.until(between("client", "server", "tcp", 84), bool)
    finally:
        stage.world.delete("felixconfigurations", "default")
    wait_for(lambda: rules(stage) == before, "rules tell no more")
    wait_for(lambda: stage.world.node.run("sysctl", "-n", ACCT).strip() == "0")
