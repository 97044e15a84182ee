"""`calico-node trace`: watch one connection on this node, and tell lines of JSON.

`calicoctl node trace` and `calicoctl trace` run it. Without `--attended` it waits `--wait` seconds
for an attempt of others, sends one, and ends a moment later.
Tested in tests/node/test_trace_command.py.
"""

from __future__ import annotations

import os
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING

from libcalico import parsing
from libcalico.errors import InvalidValue, MuslinError
from libcalico.local.packet_trace import Question
from libcalico.process import paths

if TYPE_CHECKING:
    import argparse

MOST_SECONDS, MOST_COUNT, MOST_SIZE = 600.0, 100_000, 65_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of the command."""
    parser.add_argument("source", help="address that the connection comes from")
    parser.add_argument("destination", help="address that it is made to")
    parser.add_argument("--protocol", type=int, default=6, help="number of the protocol (6: TCP)")
    parser.add_argument("--port", type=int, default=0, help="port of the destination")
    parser.add_argument("--source-interface", default="", help="interface of the source pod here")
    parser.add_argument("--destination-interface", default="", help="of the destination pod here")
    parser.add_argument("--seconds", type=float, default=30.0, help="watch so long at most")
    parser.add_argument("--count", type=int, default=2000, help="tell so many lines at most")
    parser.add_argument("--size", type=int, default=0, help="bytes of payload to send")
    parser.add_argument("--timeout", type=float, default=5.0, help="seconds of the attempt")
    parser.add_argument(
        "--wait",
        type=float,
        default=1.0,
        help="seconds for an attempt of others before one is sent",
    )
    parser.add_argument("--no-send", action="store_true", help="send nothing, only watch")
    parser.add_argument(
        "--attended", action="store_true", help="take `send` and `stop` on standard input"
    )


def question_of(chosen: argparse.Namespace) -> Question:
    """The question of a parsed command line. Raises `InvalidValue`."""
    source = _address("source", chosen.source)
    destination = _address("destination", chosen.destination)
    if source.version != destination.version:
        raise InvalidValue(
            "destination", chosen.destination, f"want an IPv{source.version} address"
        )
    for name, value, most in (
        ("--port", chosen.port, 65535),
        ("--protocol", chosen.protocol, 255),
        ("--count", chosen.count, MOST_COUNT),
        ("--seconds", chosen.seconds, MOST_SECONDS),
        ("--timeout", chosen.timeout, MOST_SECONDS),
        ("--wait", chosen.wait, MOST_SECONDS),
        ("--size", chosen.size, MOST_SIZE),
    ):
        if not 0 <= value <= most:
            raise InvalidValue(name, value, f"want 0 to {most:g}")
    if chosen.protocol in (6, 17) and not chosen.port:
        raise InvalidValue("--port", chosen.port, "TCP and UDP need the port of the destination")
    return Question(
        str(source),
        str(destination),
        chosen.protocol,
        chosen.port,
        chosen.source_interface,
        chosen.destination_interface,
    )


def _address(name: str, text: str) -> IPv4Address | IPv6Address:
    try:
        return ip_address(text)
    except ValueError:
        raise InvalidValue(name, text, "want an IP address") from None


def main(chosen: argparse.Namespace) -> int:
    """Watch; returns the exit status. Raises MuslinError."""
    question = question_of(chosen)
    if os.geteuid() != 0:
        raise MuslinError("trace reads the kernel's packets: run it as root")
    from linux.errors import KernelError
    from node.trace.probe import PROTOCOLS, Sending
    from node.trace.watch import Limits, Watch

    if question.protocol not in PROTOCOLS and not (chosen.no_send or chosen.attended):
        raise InvalidValue("--protocol", question.protocol, "6, 17, 1 or 58, or add --no-send")
    limits = Limits(
        chosen.count, chosen.seconds, None if chosen.no_send else chosen.wait, chosen.attended
    )
    try:
        Watch(node_name(), question, limits, Sending(chosen.size, chosen.timeout)).run()
    except KernelError as error:
        raise MuslinError(f"the kernel refused: {error}") from None
    except BrokenPipeError:
        return 1
    return 0


def node_name() -> str:
    """The name that this node has in the datastore, as its start left it, or the machine's."""
    stored = parsing.text_of(paths.NODENAME).strip()
    return stored or os.environ.get("NODENAME") or socket.gethostname().lower()
