"""Reports the end of a link as soon as it is gone, before the kernel has tidied up behind it.

Problem: RTM_DELLINK answers after the kernel waited for all readers of the link (`rcu_barrier`, 15
to 40 ms). Long before that, link, addresses and routes are gone and the message has been sent.

DEP-1: `left` is called for every link whose end the kernel reports while this is open, or with
       None where messages were lost.
Tested in tests/linux/test_link_removals.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from linux.closing import Closing
from linux.link_values import Link, decode
from linux.netlink import Socket
from linux.netlink.filters import only_type
from linux.rtnl import GROUP_LINK, RTM_DELLINK

_FAMILY_ONLY_PORTS = 7  # AF_BRIDGE: a port left its bridge, the link stays


class LinkRemovals(Closing):
    """Calls `left` for each link of this namespace that ends. Use inside a running event loop.

    If its socket fails, it calls `left` with None, closes itself, and the loop reports the error.
    """

    def __init__(self, left: Callable[[Link | None], None]) -> None:
        self._left = left
        self._loop = asyncio.get_running_loop()
        self._socket = Socket(groups=(GROUP_LINK,))
        # All other messages of links (an ADD makes a dozen) stay in the kernel.
        self._socket.attach_filter(only_type(RTM_DELLINK))
        self._socket.setblocking(False)
        self._open = True
        self._loop.add_reader(self._socket.fileno(), self._readable)

    def _readable(self) -> None:
        datagrams = self._socket.read_waiting()
        while self._open:
            # Each is reported before the next is read: an error there loses none of them.
            try:
                messages = next(datagrams)
            except StopIteration:
                return
            except OSError:
                self.close()
                self._left(None)
                raise
            if messages is None:
                self._left(None)
            for kind, _, _, body in messages or ():
                if kind == RTM_DELLINK and body[0] != _FAMILY_ONLY_PORTS:
                    self._left(decode(body))

    def close(self) -> None:
        """Stops; twice is fine."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
