"""The forwarding tables of a VXLAN device: where each other node's end of the tunnel is.

Two entries for a node: its MAC lies behind the node's own address (FDB), and its tunnel's
address has that MAC (neighbour). Both are permanent; entries that others or the kernel made
and that age are left alone.

Invariants:
  VTP-1  The permanent entries of the device are exactly those of the known ends, again so when
         another program changes them.
Tested in tests/felix/kernel/test_vxlan.py.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping

from felix.calc.nodes import IPAddress, Vtep
from linux import neighbours, vxlan
from linux.delta_table import DeltaTable
from linux.monitor.events import Event, ForwardChanged, NeighbourChanged, Overrun
from linux.netlink import Result, Socket


class VtepTables:
    """FDB and neighbours of one device. `writes` counts entries, `repairs` those gone astray."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.writes = self.repairs = 0
        self._forwards: DeltaTable[str, IPAddress] = DeltaTable()
        self._neighbours: DeltaTable[IPAddress, str] = DeltaTable()
        self.ends: Mapping[str, Vtep] = {}
        self._read = False

    def want(self, ends: Mapping[str, Vtep]) -> None:
        """The ends of the other nodes, by node."""
        if ends == self.ends:
            return
        self.ends = dict(ends)
        self._forwards.replace_desired({end.mac: end.node for end in ends.values()})
        self._neighbours.replace_desired({end.address: end.mac for end in ends.values()})

    @property
    def quiet(self) -> bool:
        """Whether nothing is to be read or written."""
        return self._read and self._forwards.in_sync() and self._neighbours.in_sync()

    def forget(self) -> None:
        """Read both tables again at the next commit."""
        self._read = False

    def absorb(self, event: Event) -> bool:
        """What the kernel told; whether something is to be written now."""
        match event:
            case Overrun():
                self._read = False
                return True
            case ForwardChanged(forward, removed) if forward.index == self.index:
                if removed and self._forwards.actual.get(forward.mac) == forward.dst:
                    self._forwards.lost(forward.mac)
                elif not removed and forward.permanent:
                    self._forwards.saw(forward.mac, forward.dst)
                elif not removed:
                    # One of ours that ages now, perhaps with another end: it is written anew.
                    self._forwards.lost(forward.mac)
            case NeighbourChanged(entry, removed) if entry.index == self.index:
                if removed or not entry.permanent:
                    self._neighbours.lost(entry.address)
                elif not entry.address.is_multicast:
                    self._neighbours.saw(entry.address, entry.mac)
        self.repairs += not self.quiet
        return not self.quiet

    def commit(self, sock: Socket) -> list[str]:
        """Write what differs; returns what was refused. Raises `KernelError` for a dead socket."""
        if not self._read:
            self._dump(sock)
        forwards, entries = self._forwards.delta(), self._neighbours.delta()
        gone = [(mac, self._forwards.actual[mac]) for mac in forwards.deletes]
        messages = [vxlan.replace_forward(self.index, *item) for item in forwards.upserts.items()]
        messages += [vxlan.delete_forward(self.index, *item) for item in gone]
        messages += [neighbours.replace(self.index, *item) for item in entries.upserts.items()]
        messages += [neighbours.delete(self.index, address) for address in entries.deletes]
        if not messages:
            return []
        results = sock.transact(messages)
        self.writes += len(results)
        failures = _refused(results)
        if failures:
            self._read = False
        else:
            self._forwards.committed(forwards.upserts, forwards.deletes)
            self._neighbours.committed(entries.upserts, entries.deletes)
        return failures

    def _dump(self, sock: Socket) -> None:
        entries = vxlan.forwards(sock, self.index)
        self._forwards.replace_actual({f.mac: f.dst for f in entries if f.permanent})
        # Of multicast groups the kernel makes entries of its own.
        known = [n for n in neighbours.dump(sock, index=self.index) if n.permanent and n.mac]
        self._neighbours.replace_actual(
            {n.address: n.mac for n in known if not n.address.is_multicast}
        )
        self._read = True


def _refused(results: Iterable[Result]) -> list[str]:
    return [
        str(result.error("write an entry of the tunnel's tables"))
        for result in results
        if not result.ok and result.errno != errno.ENOENT
    ]
