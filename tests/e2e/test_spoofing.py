"""A pod cannot send under another address: forged packets of a raw socket reach nobody.

The same datagrams under the pod's own address do arrive, so it is the source that decides.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab import pods, stream
from lab.cluster import Lab
from lab.pods import Pod

PORT = "9000"
NUMBER = 20
FORGED = {
    "another pod": ("victim", "victim"),
    "the node": ("10.99.1.1", "fd99:0:0:1::1"),
    "an address of nobody": ("10.65.200.7", "fd65:0:0:ffff::7"),
    "the world outside": ("192.0.2.1", "2001:db8::1"),
    "the gateway": ("169.254.1.1", "fe80::ecee:eeff:feee:eeee"),
}
Trio = tuple[Lab, Pod, Pod, Pod]


@pytest.fixture
def trio(dual: Lab) -> Iterator[Trio]:
    """A thief, a victim, and the target that the thief would deceive."""
    made = [pods.add(dual, name, "node1") for name in ("thief", "victim", "target")]
    yield dual, made[0], made[1], made[2]
    for pod in made:
        pods.remove(dual, pod)


def arrived(trio: Trio, source: str, target: str) -> dict[str, int]:
    """What the target counts, by source, while the thief sends as `source`."""
    lab, thief, _, receiver = trio
    node = lab.nodes[0]
    counter = stream.begin(node, receiver.netns, "count", PORT)
    forger = stream.begin(node, thief.netns, "forge", source, target, PORT, str(NUMBER))
    assert forger.finish(ask=False)["sent"] == NUMBER
    found: dict[str, int] = counter.finish()["arrived"]
    return found


@pytest.mark.promise("F-13")
def test_forged_sources_reach_nobody(trio: Trio) -> None:
    _, thief, victim, target = trio
    for family in (0, 1):
        own, to = thief.addresses[family], target.addresses[family]
        assert arrived(trio, own, to) == {own: NUMBER}
        for what, sources in FORGED.items():
            source = victim.addresses[family] if what == "another pod" else sources[family]
            assert arrived(trio, source, to) == {}, f"{what}: {source} -> {to}"
        assert arrived(trio, own, to) == {own: NUMBER}
