"""`node trace`: `calico-node trace` knows the kernel, so it is run instead of us.

Tested in tests/trace/test_trace_pods.py.
"""

from __future__ import annotations

import click

from calicoctl.cli import common_options, examples


@click.command(
    "trace", epilog=examples("calicoctl node trace 10.65.0.1 10.65.0.2 --protocol 6 --port 8080")
)
@click.argument("source", metavar="SRC")
@click.argument("destination", metavar="DST")
@click.option("--protocol", type=int, default=6, metavar="N", help="Number of the protocol; TCP.")
@click.option("--port", type=int, default=0, metavar="PORT", help="Port of the destination.")
@click.option("--source-interface", default="", metavar="NAME", help="The source pod's, here.")
@click.option("--destination-interface", default="", metavar="NAME", help="The destination's.")
@click.option("--seconds", type=float, default=30.0, metavar="S", help="Watch so long at most.")
@click.option("--count", type=int, default=2000, metavar="N", help="Tell so many lines at most.")
@click.option("--size", type=int, default=0, metavar="BYTES", help="Payload of the attempt.")
@click.option("--timeout", type=float, default=5.0, metavar="S", help="Seconds of the attempt.")
@click.option("--wait", type=float, default=1.0, metavar="S", help="Seconds before one is sent.")
@click.option("--no-send", is_flag=True, help="Send nothing, only watch.")
@common_options
def node_trace(
    source: str,
    destination: str,
    protocol: int,
    port: int,
    source_interface: str,
    destination_interface: str,
    seconds: float,
    count: int,
    size: int,
    timeout: float,
    wait: float,
    no_send: bool,
) -> None:
    """Watch a connection from address SRC to address DST on this node; print lines of JSON.

    This is the part of `calicoctl trace` that a node does, as root. Kept in a file, its lines are
    what `calicoctl trace --node-output FILE` reads.
    """
    from calicoctl.node import program

    program.replace_us(
        [
            "trace",
            source,
            destination,
            f"--protocol={protocol}",
            f"--port={port}",
            f"--source-interface={source_interface}",
            f"--destination-interface={destination_interface}",
            f"--seconds={seconds}",
            f"--count={count}",
            f"--size={size}",
            f"--timeout={timeout}",
            f"--wait={wait}",
            *(["--no-send"] if no_send else []),
        ]
    )
