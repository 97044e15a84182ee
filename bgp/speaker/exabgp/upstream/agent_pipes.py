"""ExaBGP talks with the agent over two pipes that the agent made.

Applied by `launch.py`, with the descriptors that it was given. Standard library and ExaBGP only.
Tested in tests/bgp/test_sessions.py.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

import os

from exabgp.reactor.api import processes
from exabgp.reactor.api.response import Response
from exabgp.version import json as json_version

from bgp.speaker.exabgp.upstream.exabgp_types import Processes

READY = "ready"
"""The first line to the agent: all addresses are listened on."""


class _Agent:
    """Stands where ExaBGP keeps a program that it started: its ends of both pipes.

    ExaBGP never sees its end, because it is killed with the agent (`launch.die_with`).
    """

    def __init__(self, commands: int, lines: int) -> None:
        # Named as the program's own: what it writes is what ExaBGP reads.
        self.stdout = os.fdopen(commands, "rb", closefd=False)
        self.stdin = os.fdopen(lines, "wb", closefd=False)
        os.set_blocking(commands, False)

    def poll(self) -> None:
        """The agent runs."""

    def wait(self, timeout: float) -> None:
        """The agent does not end with ExaBGP."""

    terminate = kill = poll


def agent(commands: int, lines: int) -> None:
    """The agent is ExaBGP's API process, though it is its parent.

    Upstream: an API process is a child of ExaBGP's. One whose only use is to hand the child's pipes
        to the agent takes 5 MB and 20 ms of processor time.
    Fails without it: test_sessions.py, test_attributes_in_and_several_paths.
    Remove when: an API process can be one that runs already, at the ends of pipes or of a socket.
    """

    def start(self: Processes, name: str) -> None:
        self._process[name] = _Agent(commands, lines)
        self._encoder[name] = Response.JSON(json_version)
        self._ackjson[name], self._ack[name], self._restart[name] = False, True, False
        self._update_fds()
        self.write(name, READY)

    processes.Processes._start = start
