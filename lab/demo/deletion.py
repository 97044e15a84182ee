"""Check 8 and the last: the pods are deleted; no interface, route, rule or key of theirs is left.

Nor are chains and sets of policies and profiles: there is no pod left that they could select.
"""

from __future__ import annotations

from lab import pods
from lab.demo import look
from lab.demo.story import Story
from lab.demo.transcript import Transcript, expect
from lab.demo.wiring import interface
from lab.pods import Pod


def check(story: Story, transcript: Transcript) -> None:
    """Delete by CNI DEL, then look everywhere."""
    gone = list(story.pods)
    for pod in gone:
        took = pods.remove(story.lab, pod)
        story.pods.remove(pod)
        transcript.note(f"pod {pod.title} removed, CNI DEL {took:.1f} ms")
    kernel(story, transcript, gone)
    keys(story, transcript)
    text = transcript.show(story.lab.nodes[0], ["calicoctl", "ipam", "show"])
    transcript.show(story.lab.nodes[0], ["calicoctl", "ipam", "show", "--show-blocks"])
    used = [row[3] for row in cells(text) if row[0] == "IP Pool"]
    expect(used, f"calicoctl ipam show names no pool:\n{text}")
    expect(
        all(value.split()[0] == "0" for value in used),
        f"calicoctl ipam show: 0 in use expected, found {used}",
    )


def cells(text: str) -> list[list[str]]:
    """Rows of calicoctl's table. Pure."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    return [row for row in rows if len(row) >= 5]


def leftovers(story: Story, gone: list[Pod]) -> list[str]:
    """The entries of the nodes' kernels for pods that are gone."""
    left = []
    for machine in story.lab.nodes:
        names = {interface(pod) for pod in gone if pod.node == machine.name}
        addresses = {pod.address for pod in gone if pod.node == machine.name}
        tables = look.tables(machine)
        for table in (
            "ip -o link",
            "ip route",
            "iptables-save",
            "ip neigh permanent",
            "ipset save",
        ):
            for line in tables[table]:
                words = line.replace("/32", "").replace(":", " ").split()
                if addresses & set(words) or any(name in line for name in names):
                    left.append(f"{machine.name}: {table}: {line}")
        left += [f"{machine.name}: {line}" for line in tables["ip -o link"] if " cali" in line]
        left += [f"{machine.name}: {line}" for line in of_policies(tables)]
        left += [
            f"{machine.name}: network namespace {line}"
            for line in machine.run(["ip", "netns"]).stdout.split()
            if line.startswith("cni-")
        ]
    return left


def of_policies(tables: dict[str, list[str]]) -> list[str]:
    """Chains of policies and profiles, and sets of selectors. Pure."""
    rules = [line for name in ("iptables-save", "ip6tables-save") for line in tables[name]]
    chains = [line for line in rules if line.startswith((":cali-pi-", ":cali-po-", ":cali-pr"))]
    sets = [line for line in tables["ipset save"] if line.startswith("create cali")]
    return chains + [line for line in sets if line.split()[1][5:8] == "0s:"]


def kernel(story: Story, transcript: Transcript, gone: list[Pod]) -> None:
    """No interface, route, neighbour, rule or set member of the pods on any node."""
    last: list[str] = []

    def clean() -> bool:
        last[:] = leftovers(story, gone)
        return not last

    try:
        story.wait(clean, "nothing of the pods in the nodes' kernels")
    finally:
        for line in last:
            transcript.note(f"left: {line}")
    for machine in story.lab.nodes:
        transcript.show(machine, ["ip", "route"])
    transcript.show(story.lab.nodes[0], ["ip", "-brief", "link"])


def keys(story: Story, transcript: Transcript) -> None:
    """etcd: no endpoint, no handle, no allocated address."""
    lab = story.lab
    for prefix in (f"{look.RESOURCES}/workloadendpoints/", f"{look.IPAM}/handle/"):
        transcript.show(lab.etcd, ["etcdctl", "get", "--prefix", "--keys-only", prefix])
        left = sorted(look.etcd(lab, prefix))
        expect(not left, f"etcd: keys left below {prefix}: {left}")
    used = look.in_use(lab)
    transcript.note(f"addresses allocated by block, from etcd: {used}")
    expect(not any(used.values()), f"etcd: addresses still allocated: {used}")
