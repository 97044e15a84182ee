"""A workload's limits, from its stored `qosControls`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from libcalico.conversion.limit_annotations import MOST_PACKETS
from libcalico.conversion.traffic_limits import (
    UNLIMITED,
    Bucket,
    ChainLimits,
    PacketRate,
    traffic_limits,
)
from libcalico.model.resources.endpoint import QoSControls

NUMBERS = st.integers(-(10**6), 10**16)


def test_nothing_asked_is_no_limit() -> None:
    assert traffic_limits(None) is UNLIMITED
    assert traffic_limits(QoSControls()) == UNLIMITED


def test_bits_become_bytes() -> None:
    limits = traffic_limits(
        QoSControls(
            ingressBandwidth=8_000_000,
            ingressBurst=80_000,
            egressBandwidth=16_000_000,
            egressPeakrate=32_000_000,
            egressMinburst=3000,
        )
    )
    assert limits.receives == Bucket(1_000_000, 10_000)
    assert limits.sends == Bucket(2_000_000, 512 << 20, 4_000_000, 3000)
    assert limits.chains is None


def test_rates_and_counts_are_the_chains() -> None:
    limits = traffic_limits(
        QoSControls(ingressPacketRate=10, egressPacketRate=10**9, egressMaxConnections=3, dscp="EF")
    )
    assert limits.chains == ChainLimits(PacketRate(10, 5), PacketRate(MOST_PACKETS, 5), 0, 3)
    assert (limits.dscp, limits.receives, limits.sends) == (46, None, None)


def test_what_lacks_its_rate_is_left_out() -> None:
    lonely = QoSControls(ingressBurst=8, egressPeakrate=9, egressMinburst=3, ingressPacketBurst=2)
    assert traffic_limits(lonely) == UNLIMITED
    slower = QoSControls(ingressBandwidth=8000, ingressPeakrate=800, ingressMinburst=9)
    assert traffic_limits(slower).receives == Bucket(1000, 512 << 20)


@given(st.builds(QoSControls, **dict.fromkeys(QoSControls.__struct_fields__[:-1], NUMBERS)))
def test_each_limit_is_one_that_the_kernel_takes(controls: QoSControls) -> None:
    limits = traffic_limits(controls)
    for bucket in (limits.receives, limits.sends):
        if bucket is not None:
            assert bucket.rate > 0
            assert bucket.burst > 0
            assert bucket.peak == 0 or bucket.peak >= bucket.rate
    if limits.chains is not None:
        for rate in (limits.chains.ingress, limits.chains.egress):
            assert rate is None or 0 < rate.rate <= MOST_PACKETS >= rate.burst > 0
