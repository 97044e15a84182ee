"""Endpoints as rows: what is kept of them, and that it decides as the whole object would."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from controllers.endpoints.endpoint_labels import PodFacts, differs, endpoint_labels, relabelled
from controllers.endpoints.endpoint_rows import EndpointRows, brief
from libcalico.kubernetes.names import Name
from libcalico.model import Metadata, WorkloadEndpoint, WorkloadEndpointSpec, codec
from libcalico.model.keys import ResourceKey

WEB = Name("s", "web")
WORDS = st.sampled_from(["", "a", "b"])
LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), WORDS, max_size=2)
NETWORKS = st.lists(st.sampled_from(["10.0.0.1/32", "10.0.0.2/32", "fd00::1/128"]), max_size=2)


def row(name: str, pod: str = "web", **labels: str) -> tuple[str, bytes, int]:
    spec = {"pod": pod, "node": "n1", "orchestrator": "k8s", "ipNetworks": ["10.0.0.1/32"]}
    return name, json.dumps({"metadata": {"labels": labels}, "spec": spec}).encode(), 1


def test_rows_come_change_and_go() -> None:
    told: list[Name] = []
    rows = EndpointRows(told.append)
    rows.begin()
    rows.apply_rows([row("s/one"), row("s/two"), row("s/other", "db"), row("s/none", "")])
    rows.end()
    assert told == [WEB, WEB, Name("s", "db")]
    assert [key for key, _ in rows.of(WEB)] == [
        ResourceKey("WorkloadEndpoint", name, "s") for name in ("one", "two")
    ]
    assert len(rows) == 3
    told.clear()
    rows.begin()
    rows.apply_rows([row("s/one"), row("s/other", "web", app="x"), ("s/two", b"\xff", 2)])
    rows.end()
    assert told == [WEB], "of what is as it was nothing is told"
    assert [key.name for key, _ in rows.of(WEB)] == ["one", "other"]
    assert rows.of(Name("s", "db")) == []
    rows.gone("s/one")
    rows.gone("s/other")
    rows.gone("s/never")
    assert (len(rows), rows.of(WEB)) == (0, [])
    rows.begin()
    rows.apply_rows([row("s/one"), row("s/two")])
    rows.end()
    rows.begin()
    rows.end()
    assert len(rows) == 0, "a listing that names nothing takes all away"


@given(WORDS, WORDS, NETWORKS, LABELS, WORDS, WORDS, LABELS, st.booleans())
def test_what_is_kept_decides_as_the_whole_does(
    node: str, account: str, nets: list[str], labels: dict[str, str],
    pod_node: str, pod_account: str, pod_labels: dict[str, str], equal: bool,
) -> None:  # fmt: skip
    facts = PodFacts(pod_node, pod_account, pod_labels, ("10.0.0.1",))
    stored = endpoint_labels(facts, "s") if equal else labels
    spec = WorkloadEndpointSpec(
        orchestrator="k8s", node=node, pod="web", ipNetworks=nets, serviceAccountName=account
    )
    whole = WorkloadEndpoint(metadata=Metadata("one", namespace="s", labels=stored), spec=spec)
    raw = codec.encode_value(ResourceKey("WorkloadEndpoint", "one", "s"), whole)
    assert differs(brief(raw), facts, "s") == (relabelled(whole, facts) is not None)
