"""`python -m tests.simulation.kernel.conformance FIRST COUNT LENGTH`: both kernels, side by side.

The same random operations go to the kernel under us, in fresh network namespaces without IPv6, and
to the simulated one; codes, events in their order and dumps must be equal. As root, in a process of
its own: it ends in another namespace.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from random import Random
from typing import Any

from linux import links
from linux.netlink import Result, Socket, open_in_netns
from linux.netlink import wire as m
from tests.simulation import edges
from tests.simulation.kernel.machine import Machine
from tests.simulation.kernel.messages import read_link
from tests.simulation.kernel.player import Operation, Player, operations
from tests.simulation.kernel.state import Refused

Outcome = list[tuple[Operation, Any]]
_NEW_NETWORK = 0x40000000
FAR_INDEXES = 20
"""So many links are made and removed where the far ends live: a cable whose ends have one and the
same index is treated otherwise by the kernel (its carrier is told late)."""


def _fresh_namespace() -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), "a new network namespace")
    for scope in ("all", "default"):
        with open(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6", "w") as file:
            file.write("1")


def real(sequences: Sequence[Sequence[Operation]]) -> list[Outcome]:
    """What the kernel under us does with each of these."""
    _fresh_namespace()
    with Socket() as sock:
        for number in range(FAR_INDEXES):
            name = f"x{number}"
            made = links.create_veth(
                name, mac=None, mtu=1500, peer_name=f"y{number}", peer_mac=None, peer_netns_fd=None
            )
            sock.transact([made])
            sock.transact([links.delete(name)])
    pods = os.open("/proc/self/ns/net", os.O_RDONLY)
    found = []
    for number, steps in enumerate(sequences):
        _fresh_namespace()
        player = Player(pods, lambda: open_in_netns(pods), True, f"p{number}")
        found.append(list(player.play(list(steps))))
        player.close()
    return found


class FarEnds:
    """The far ends of a simulated machine's cables, as a socket in their namespace has them."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def transact(self, messages: Sequence[bytes]) -> list[Result]:
        """Up or down."""
        found = []
        for message in messages:
            _, flags, _, attributes = read_link(message[m.HEADER.size :])
            name = m.as_text(attributes[3]).removeprefix("p")
            code = 0
            try:
                space = self._machine.namespace
                space.set_peer(space.named(name), up=bool(flags & 1))
            except Refused as refused:
                code = refused.number
            found.append(Result(0, 0, code, "", []))
        return found

    def close(self) -> None:
        """Nothing to give back."""


def simulated(sequences: Sequence[Sequence[Operation]]) -> list[Outcome]:
    """What the simulated kernel does with each of these."""
    found = []
    for steps in sequences:
        machine = edges.WORLD.boot(Machine())
        player = Player(0, lambda machine=machine: FarEnds(machine))
        found.append(list(player.play(list(steps))))
        player.close()
    return found


def differences(one: Outcome, other: Outcome) -> str:
    """Where they part; empty if nowhere."""
    for number, (first, second) in enumerate(zip(one, other, strict=True)):
        if first != second:
            before = [step for step, _ in one[:number]]
            return f"after {before}\n  {first[0]}\n  real {first[1]}\n  simulated {second[1]}"
    return ""


def main() -> int:
    """Play; tell what differs."""
    first, count, length = map(int, sys.argv[1:4])
    numbers = range(first, first + count)
    sequences = [operations(Random(number), length) for number in numbers]
    theirs = real(sequences)
    edges.install()
    ours = simulated(sequences)
    bad = 0
    for number, one, other in zip(numbers, theirs, ours, strict=True):
        told = differences(one, other)
        if told:
            bad += 1
            print(f"sequence {number}: {told}")
    print(f"{count} sequences, {bad} differ")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
