"""Denied packets as text: who denied, in a table of counts or packet by packet.

Tested in `tests/felix/kernel/test_drops.py`.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

import click
import msgspec

from calicoctl import borders
from calicoctl.explaining.talking import ask_felix, felix
from felix.explain.flow import ICMP, ICMPV6, protocol_name
from libcalico.errors import MuslinError
from libcalico.local.frames import ProtocolError
from libcalico.local.trace_messages import (
    CountDrops,
    Denier,
    DropCount,
    DropCounts,
    Dropped,
    WatchDrops,
    Watching,
)

HEADINGS = ("PACKETS", "BYTES", "IP", "DIRECTION", "DENIED BY")


async def counts(namespace: str, output: str) -> str:
    """How many packets each policy or profile of this node has denied. Raises MuslinError."""
    reply = await ask_felix(CountDrops(1), DropCounts)
    if reply.error:
        raise MuslinError(f"node {reply.node}: {reply.error}")
    shown = [one for one in reply.counts if _concerns(namespace, one.by, one.endpoint)]
    if output == "json":
        return (
            json.dumps({"node": reply.node, "counts": msgspec.to_builtins(shown)}, indent=2) + "\n"
        )
    if not shown:
        return f"Node {reply.node} has denied no packet since its rules were written.\n"
    return borders.render(HEADINGS, [_row(one) for one in shown])


def _row(one: DropCount) -> list[str]:
    by = denier_text(one.by)
    if one.endpoint:
        by += f" (pod {one.endpoint})"
    direction = "ingress" if one.by.ingress else "egress"
    return [str(one.packets), str(one.bytes), f"v{one.version}", direction, by]


def denier_text(by: Denier) -> str:
    """`tier default, NetworkPolicy shop/web, ingress[2]`."""
    if by.kind:
        name = f"{by.namespace}/{by.name}" if by.namespace else by.name
        direction = "ingress" if by.ingress else "egress"
        rule = "" if by.rule is None else f", {direction}[{by.rule}]"
        tier = f"tier {by.tier}, " if by.tier else ""
        return f"{tier}{by.kind} {name}{rule}"
    if by.name:
        return f"a policy that is gone ({by.name})"
    if by.tier:
        return f"end of tier {by.tier}: no policy allows it"
    return "no policy and no profile allows it"


def _concerns(namespace: str, by: Denier, *pods: str) -> bool:
    return (
        not namespace
        or by.namespace == namespace
        or any(pod.startswith(f"{namespace}/") for pod in pods)
    )


async def follow(namespace: str, output: str) -> None:
    """Print denied packets as they come, until interrupted or felix ends. Raises MuslinError."""
    async with felix() as connection:
        try:
            await connection.send(WatchDrops())
            async for message in connection:
                match message:
                    case Watching(node, error) if error:
                        raise MuslinError(f"node {node}: {error}")
                    case Watching(node, _):
                        click.echo(f"Denied packets of node {node}:", err=True)
                    case Dropped():
                        pods = (message.source_pod, message.destination_pod)
                        if _concerns(namespace, message.by, *pods):
                            click.echo(_line(message, output))
        except (ConnectionError, ProtocolError) as failure:
            raise MuslinError(f"felix broke off: {failure}") from None
    raise MuslinError("felix ended")


def _line(message: Dropped, output: str) -> str:
    if output == "json":
        tree: dict[str, object] = msgspec.to_builtins(message)
        tree.pop("type", None)
        return json.dumps(tree)
    moment = datetime.fromtimestamp(message.time, UTC).strftime("%H:%M:%S.%f")[:-3]
    source = _end(message.source, message.source_port, message.source_pod)
    destination = _end(message.destination, message.destination_port, message.destination_pod)
    what = protocol_name(message.protocol)
    if message.protocol in (ICMP, ICMPV6):
        what += f" type {message.icmp_type}"
    direction = "ingress" if message.by.ingress else "egress"
    line = f"{moment}  {what}  {source} -> {destination}  {direction}: {denier_text(message.by)}"
    if message.lost:
        line = f"({message.lost} packets were not told of)\n{line}"
    return line


def _end(address: str, port: int, pod: str) -> str:
    text = f"[{address}]" if ":" in address and port else address
    if port:
        text += f":{port}"
    return f"{pod} ({text})" if pod else text
