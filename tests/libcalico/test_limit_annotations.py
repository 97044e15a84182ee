"""Limits of a pod's traffic from its annotations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcalico.conversion.limit_annotations import DEFAULT_BURST, NOTHING, asked, quantity
from libcalico.model.resources.endpoint import QoSControls

QOS = "qos.projectcalico.org/"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("10M", 10_000_000),
        ("1Gi", 1 << 30),
        ("1500", 1500),
        ("1.5k", 1500),
        ("0.5", 1),
        ("100m", 1),
        ("1e3", 1000),
        ("5E", 5 * 10**18),
        ("-5", -5),
        (" 7 ", 7),
        ("", None),
        ("ten", None),
        ("10 M", None),
        ("10Mb", None),
        ("1e", None),
        ("\u0661", None),
    ],
)
def test_a_quantity_is_read_as_kubernetes_reads_it(text: str, number: int | None) -> None:
    assert quantity(text) == number


def test_a_pod_without_annotations_of_these_asks_for_nothing() -> None:
    assert asked({}) is NOTHING
    assert asked({"example.org/ingressBandwidth": "1M"}) is NOTHING


def test_all_annotations_are_taken() -> None:
    got = asked(
        {
            f"{QOS}ingressBandwidth": "10M",
            f"{QOS}ingressBurst": "1Mi",
            f"{QOS}ingressPeakrate": "20M",
            f"{QOS}ingressMinburst": "2k",
            f"{QOS}egressPacketRate": "100",
            f"{QOS}egressPacketBurst": "9",
            f"{QOS}ingressMaxConnections": "3",
            f"{QOS}dscp": "AF41",
            f"{QOS}egressBandwidth": "2M",
        }
    )
    assert got.complaints == ()
    assert got.controls == QoSControls(
        ingressBandwidth=10_000_000,
        ingressBurst=1 << 20,
        ingressPeakrate=20_000_000,
        ingressMinburst=2000,
        egressBandwidth=2_000_000,
        egressBurst=DEFAULT_BURST,
        egressPacketRate=100,
        egressPacketBurst=9,
        ingressMaxConnections=3,
        dscp="AF41",
    )


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("ingressBandwidth", "1", "ingressBandwidth", 1000),
        ("egressBandwidth", "2P", "egressBandwidth", 10**15),
        ("egressPacketRate", "20k", "egressPacketRate", 10_000),
        ("ingressMaxConnections", "0", "ingressMaxConnections", 1),
        ("ingressBandwidth", "fast", "ingressBandwidth", 0),
        ("ingressBurst", "1M", "ingressBurst", 0),
        ("ingressMinburst", "1M", "ingressMinburst", 0),
        ("egressPacketBurst", "5", "egressPacketBurst", 0),
        ("dscp", "64", "dscp", None),
        ("dscp", "AF44", "dscp", None),
    ],
)
def test_what_is_not_as_it_was_written_is_said(
    name: str, text: str, field: str, value: int | None
) -> None:
    got = asked({QOS + name: text})
    assert getattr(got.controls or QoSControls(), field) == value
    assert len(got.complaints) == 1
    assert QOS + name in got.complaints[0]


def test_what_the_plugin_bandwidth_limits_is_left_to_it() -> None:
    theirs = {"kubernetes.io/ingress-bandwidth": "1M"}
    assert asked(theirs) is NOTHING
    got = asked({**theirs, f"{QOS}ingressBandwidth": "2M", f"{QOS}egressBandwidth": "3M"})
    assert got.controls == QoSControls(egressBandwidth=3_000_000, egressBurst=DEFAULT_BURST)
    assert "kubernetes.io/ingress-bandwidth asks for it" in got.complaints[0]


def test_a_peak_must_be_above_the_rate() -> None:
    got = asked({f"{QOS}egressBandwidth": "2M", f"{QOS}egressPeakrate": "2M"})
    assert got.controls is not None
    assert got.controls.egressPeakrate == 0
    assert "a smaller Bandwidth" in got.complaints[0]


@given(st.text(max_size=12))
def test_no_text_breaks_anything(text: str) -> None:
    asked({f"{QOS}ingressBandwidth": text, f"{QOS}dscp": text})
