"""A flow as JSON, and back; and what is no flow."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings

from flows import goldmane_pb2 as pb
from flows import written
from flows.record import Flow
from libcalico.errors import InvalidValue
from tests.flows import worlds
from tests.size import examples


@settings(max_examples=examples(100), deadline=None)
@given(worlds.flows(1500, 4))
def test_a_line_gives_the_same_flow_again(flow: Flow) -> None:
    text = written.line(flow)
    assert b"\n" not in text
    assert written.read_line(text) == flow


def test_names_are_goldmanes() -> None:
    for names, theirs in (
        (written.KINDS, pb.EndpointType),
        (written.ACTIONS, pb.Action),
        (written.REPORTERS, pb.Reporter),
        (written.POLICY_KINDS, pb.PolicyKind),
    ):
        assert {name: int(number) for number, name in names.items()} == dict(theirs.items())


@pytest.mark.parametrize(
    ("change", "field", "allowed"),
    [
        ({"action": "Drop"}, "action", "Deny"),
        ({"source_type": "Pod"}, "source_type", "WorkloadEndpoint"),
        ({"policies": {"enforced": [{"kind": "Rule"}]}}, "policies.kind", "EndOfTier"),
        ({"dest_port": "http"}, "line", "dest_port"),
    ],
)
def test_what_is_no_flow_is_refused_by_name(
    change: dict[str, object], field: str, allowed: str
) -> None:
    flow = _flow()
    document = msgspec.json.decode(written.line(flow)) | change
    with pytest.raises(InvalidValue, match=allowed) as caught:
        written.read_line(msgspec.json.encode(document), "line 3 of flows.json")
    assert caught.value.field == field
    assert "line 3 of flows.json" in str(caught.value)


def _flow() -> Flow:
    from flows.record import Action, End, EndKind, Key, Reporter

    ends = End(EndKind.WORKLOAD, "web-*", "shop"), End(EndKind.NETWORK, "pub")
    return Flow(Key(*ends, 443, "tcp", Reporter.SOURCE, Action.DENY), 1500, 1515)
