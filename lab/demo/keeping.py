"""`--keep`: the cluster stays up with its pods, and the commands that look at it are told."""

from __future__ import annotations

from lab.pods import Pod


def commands(lab: str, pods: list[Pod]) -> list[str]:
    """What works on the lab as it is left, one command line each; the last one ends it. Pure."""
    told = [
        f"./run lab status --lab {lab}",
        f"./run lab exec --lab {lab} node1 -- calicoctl node status",
        f"./run lab exec --lab {lab} router -- birdc show route",
    ]
    if pods:
        inside = f"--lab {lab} --namespace {pods[0].namespace} {pods[0].name}"
        told += [
            f"./run lab pod list --lab {lab}",
            f"./run lab pod exec {inside} -- ip route",
            f"./run lab pod ping {inside} {pods[-1].title}",
        ]
    return [*told, f"./run lab down --lab {lab}"]
