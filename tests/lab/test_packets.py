"""Sending, forging, counting and recording packets, on a real wire between two machines."""

from __future__ import annotations

import struct

import pytest

from lab import stream
from lab.cluster import Lab
from lab.errors import LabError
from lab.packets import checksum, datagram


def test_a_datagram_is_recognised_in_both_families() -> None:
    four = bytes([0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2])
    udp = struct.pack("!HHHH", 1, 9000, 12, 0) + b"data"
    assert datagram(four + udp) == ("10.0.0.1", 9000)
    assert datagram(four[:9] + b"\x06" + four[10:] + udp) is None
    six = struct.pack("!IHBB", 6 << 28, 12, 17, 64) + b"\xfd" + b"\0" * 14 + b"\x01" + b"\0" * 16
    assert datagram(six + udp) == ("fd00::1", 9000)
    assert datagram(b"\x45") is None


def test_the_checksum_is_that_of_rfc_1071() -> None:
    assert checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0xFFFF - 0xDDF2
    assert checksum(b"\x01") == 0xFEFF


@pytest.mark.parametrize("family", [4, 6])
def test_what_is_sent_is_counted_by_source(bare: Lab, family: int) -> None:
    one, two = bare.nodes[:2]
    host, target = bare.host("node1"), bare.host("node2")
    own = str((host.address if family == 4 else host.address6).ip)
    to = str((target.address if family == 4 else target.address6).ip)
    forged = "192.0.2.7" if family == 4 else "2001:db8::7"
    for word in "send", "fresh":
        counter = stream.begin(two, None, "count", "9000")
        recorder = stream.begin(two, None, "record", "eth0", "/run/test.pcap")
        sender = stream.begin(one, None, word, to, "9000", "200")
        other = stream.begin(one, None, "send", to, "9001", "100")
        forger = stream.begin(one, None, "forge", forged, to, "9000", "5")
        assert forger.finish(ask=False) == {"sent": 5}
        other.finish()
        sent = sender.finish()
        arrived = counter.finish()
        assert arrived == {"arrived": {own: sent["sent"], forged: 5}, "lost": 0}
        assert recorder.finish()["recorded"] >= sent["sent"]
    text = two.run(["tcpdump", "-nn", "-r", "/run/test.pcap", "udp", "port", "9000"]).stdout
    assert len(text.splitlines()) == sent["sent"] + 5
    assert f"{own}." in text


def test_what_cannot_begin_says_so(bare: Lab) -> None:
    with pytest.raises(LabError, match="packets record nothere"):
        stream.begin(bare.nodes[0], None, "record", "nothere", "/run/x.pcap")
