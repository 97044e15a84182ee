"""Check 7: a node's rack cable is pulled and plugged in again.

Its block is withdrawn at the router and in the other nodes' kernels when the hold time is over (9 s
on every session of the lab); the node's own pods still reach each other; all is back without help.
"""

from __future__ import annotations

import time

from lab import pods
from lab.demo import look, routing
from lab.demo.reachability import WAIT
from lab.demo.story import Story
from lab.demo.transcript import Transcript, expect
from lab.router import HOLD_SECONDS

NODE = "node2"


def check(story: Story, transcript: Transcript) -> None:
    """Down, look, up, look."""
    lab = story.lab
    block = next((b.cidr for b in look.blocks(lab) if b.node == NODE), "")
    expect(block, f"etcd names no block of {NODE}")
    timers = look.hold_times(lab)
    expect(timers and timers <= {HOLD_SECONDS}, f"router: hold times {timers}")
    others = [machine for machine in lab.nodes if machine.name != NODE]
    lab.link(NODE, up=False)
    begun = time.monotonic()
    transcript.note(f"router$ ip link set {lab.host(NODE).port} down")
    try:
        withdrawn(story, block)
        took = time.monotonic() - begun
        transcript.note(f"{block} is withdrawn everywhere {took:.1f} s after the link went down")
        transcript.show(others[0], ["ip", "route", "show", block])
        alone = pods.ping(lab, story.pod("web-2"), story.pod("db-2").address, wait=WAIT)
        transcript.note(f"on {NODE} itself web-2 -> db-2: ping {'ok' if alone else 'LOST'}")
    finally:
        lab.link(NODE, up=True)
        transcript.note(f"router$ ip link set {lab.host(NODE).port} up")
    expect(alone, f"pods of {NODE} cannot reach each other while its link is down")
    back(story, transcript, block)


def withdrawn(story: Story, block: str) -> None:
    """The route is gone at the router and in every other node's kernel."""
    lab = story.lab
    story.wait(lambda: block not in look.learned(lab), f"router: {block} is withdrawn")
    for machine in lab.nodes:
        if machine.name != NODE:
            story.wait(
                lambda m=machine: look.route_to(m, block) is None,  # type: ignore[misc]
                f"{machine.name}: the route to {block} is gone",
            )


def back(story: Story, transcript: Transcript, block: str) -> None:
    """Sessions, routes and packets are back."""
    lab = story.lab
    begun = time.monotonic()
    story.wait(lambda: block in look.learned(lab), f"router: {block} is back")
    for machine in lab.nodes:
        if machine.name != NODE:
            story.wait(
                lambda m=machine: look.route_to(m, block) is not None,  # type: ignore[misc]
                f"{machine.name}: route to {block} is back",
            )
    story.wait(
        lambda: all(
            pods.ping(lab, story.pod("web-2"), story.pod(name).address)
            for name in ("web-1", "web-3")
        ),
        f"pods of {NODE} reach the others",
    )
    story.wait(
        lambda: routing.established(story) and routing.exact(story) is None,
        "router: sessions Established, table exact",
    )
    transcript.note(f"back without help {time.monotonic() - begun:.1f} s after the link came up")
    transcript.show(lab.router, ["birdc", "show", "protocols"])
