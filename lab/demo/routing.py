"""Check 5: sessions to mesh and top-of-rack are Established; BIRD learned exactly the blocks.

`calicoctl node status` is shown and must agree, but what is believed is the router's own table
and the kernel's TCP sockets.
"""

from __future__ import annotations

from lab.demo import look
from lab.demo.story import Story
from lab.demo.transcript import CheckFailed, Transcript, expect


def check(story: Story, transcript: Transcript) -> None:
    """Sessions first, then tables."""
    story.wait(lambda: established(story), established_sentence(story))
    for node in story.lab.plan.nodes:
        peers = expected_peers(story, node.name)
        sockets(story, transcript, node.name, peers)
        node_status(story, transcript, node.name, peers)
    transcript.show(story.lab.router, ["birdc", "show", "protocols"])
    command = ["birdc", "show", "route", "where", "source", "=", "RTS_BGP"]
    story.wait(lambda: exact(story) is None, "the router's table is exactly the nodes' blocks")
    transcript.show(story.lab.router, command)
    transcript.show(story.lab.router, ["ip", "route"])
    problem = exact(story)
    expect(problem is None, problem or "")


def established(story: Story) -> bool:
    """Whether the router says Established for every node."""
    states = look.neighbours(story.lab)
    return all(states.get(node.name) == "Established" for node in story.lab.plan.nodes)


def established_sentence(story: Story) -> str:
    """The condition of `established`, in words."""
    names = ", ".join(node.name for node in story.lab.plan.nodes)
    return f"the router's BGP sessions to {names} are Established"


def expected_peers(story: Story, node: str) -> dict[str, str]:
    """address -> type, as `calicoctl node status` prints it."""
    own = story.lab.host(node)
    peers = {
        str(other.address.ip): "node-to-node mesh"
        for other in story.lab.plan.nodes
        if other.name != node
    }
    return {**peers, str(own.segment.gateway): "node specific"}


def sockets(story: Story, transcript: Transcript, node: str, peers: dict[str, str]) -> None:
    """The kernel's established TCP connections with port 179 at one end."""
    command = ["ss", "-Htn", "state", "established", "( sport = :179 or dport = :179 )"]
    machine = story.lab.machine(node)

    def established() -> set[str]:
        lines = machine.run(command).stdout.splitlines()
        return {line.split()[-1].rpartition(":")[0].strip("[]") for line in lines if line.split()}

    try:
        story.wait(
            lambda: set(peers) <= established(), f"{node}: TCP sessions on 179 to {sorted(peers)}"
        )
    except CheckFailed:
        transcript.show(machine, command)
        raise
    transcript.show(machine, command)


def node_status(story: Story, transcript: Transcript, node: str, peers: dict[str, str]) -> None:
    """The operator's view agrees."""
    machine = story.lab.machine(node)

    def rows() -> dict[str, list[str]]:
        text = machine.run(["calicoctl", "node", "status"], check=False).stdout
        cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
        return {row[0]: row for row in cells if len(row) >= 5}

    def agrees() -> bool:
        table = rows()
        return all(
            table.get(address, [""] * 5)[1:3] == [kind, "up"]
            and table[address][4].startswith("Established")
            for address, kind in peers.items()
        )

    try:
        story.wait(agrees, f"{node}: calicoctl node status says Established to {sorted(peers)}")
    finally:
        transcript.show(machine, ["calicoctl", "node", "status"], check=False)


def exact(story: Story) -> str | None:
    """The difference of the router's table from the nodes' blocks; None when there is none."""
    lab = story.lab
    table = look.learned(lab)
    expected = {
        block.cidr: [(block.node, str(lab.host(block.node).address.ip))]
        for block in look.blocks(lab)
    }
    return None if table == expected else f"BIRD has {table}, etcd's blocks say {expected}"
