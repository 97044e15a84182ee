"""A flow as a value, and as JSON."""

import msgspec
from hypothesis import given, settings

from flows.record import Flow
from tests.flows import worlds
from tests.size import examples


@settings(max_examples=examples(50), deadline=None)
@given(worlds.flows(1500, 4))
def test_json_gives_the_same_flow_again(flow: Flow) -> None:
    text = msgspec.json.encode(flow)
    again = msgspec.json.decode(text, type=Flow)
    assert again == flow
    assert hash(again.key) == hash(flow.key)
