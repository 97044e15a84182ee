"""The namespaces of the two pods on this node, found by their interfaces.

Tested in tests/trace/test_trace_pods.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from libcalico.errors import MuslinError
from linux import links, netns
from linux.closing import Closing
from linux.lookups import namespace_ids
from linux.netlink.socket import Socket

T = TypeVar("T")


class PodNamespace(Closing):
    """The namespace at the other end of a pod's interface. Raises MuslinError."""

    def __init__(self, interface: str) -> None:
        self.interface = interface
        with Socket() as sock:
            link = links.get(sock, interface)
            if link is None:
                raise MuslinError(f"interface {interface} does not exist on this node")
            number = link.peer_netnsid
            namespace = None if number is None else namespace_ids.namespace_of(sock, number)
        if namespace is None:
            raise MuslinError(
                f"the pod's end of {interface} was not found: no process and no name in /run/netns"
                " leads to its network namespace (run this where the runtime's are seen)"
            )
        self._fd = namespace
        self.inode = os.fstat(namespace).st_ino

    def run(self, function: Callable[[], T]) -> T:
        """Call a function inside (linux.netns.run_in)."""
        return netns.run_in(self._fd, function)

    def close(self) -> None:
        """Give the descriptor back; twice is fine."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
