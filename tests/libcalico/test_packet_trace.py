"""The lines of a node's trace: each comes back as it was, and others are refused by their place."""

from __future__ import annotations

import pytest

from libcalico.errors import MuslinError
from libcalico.local.packet_trace import (
    Connection,
    End,
    Facts,
    Head,
    Line,
    Link,
    Packet,
    Probe,
    Question,
    Ready,
    Route,
    Rule,
    decode,
    decode_all,
    encode,
)

ASKED = Question("10.0.0.1", "10.0.0.2", 6, 80)
HEAD = Head("10.0.0.1", "10.0.0.2", 6, inner=Head("10.0.0.2", "10.0.0.1", 6))


@pytest.mark.parametrize(
    "line",
    [
        Ready("node1", "boot", ASKED, "nftables"),
        Packet(1, "node", "dropped", "eth0", HEAD, "ff", "NO_SOCKET", "tcp_v4_rcv"),
        Rule(1, 2, "ip", "filter", "cali-FORWARD", "rule", "jump", "x"),
        Facts(Route("10.0.0.2"), None, [Link("node", "eth0", True, True, 1500)],
              [Connection("a", "b")], {"x": 1}, (1, 2), False, ["x"]),
        Probe("connected", 0.1),
        End(1, True),
    ],
)  # fmt: skip
def test_a_line_comes_back_as_it_was(line: Line) -> None:
    text = encode(line)
    assert text.endswith(b"\n")
    assert text.count(b"\n") == 1
    assert decode(text, "here") == line


def test_what_is_no_line_is_refused_by_its_place() -> None:
    lines = [encode(End()), b"\n", b'{"type":"other"}\n']
    with pytest.raises(MuslinError, match="file, line 3: no line of a node's trace"):
        list(decode_all(lines, "file"))
