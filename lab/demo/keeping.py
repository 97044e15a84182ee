"""`--keep`: the cluster stays up with its pods, and the commands for a look at it are printed."""

from __future__ import annotations

from lab.pods import Pod


def commands(lab: str, pods: list[Pod], *, page: bool = False) -> list[str]:
    """The commands that work on the lab as it is left; the last one ends it. Pure.

    `page`: whether the page can be served here.
    """
    lines = [
        f"./run lab status --lab {lab}",
        f"./run lab exec --lab {lab} node1 -- calicoctl node status",
        f"./run lab exec --lab {lab} router -- birdc show route",
    ]
    if pods:
        inside = f"--lab {lab} --namespace {pods[0].namespace} {pods[0].name}"
        lines += [
            f"./run lab pod list --lab {lab}",
            f"./run lab pod exec {inside} -- ip route",
            f"./run lab pod ping {inside} {pods[-1].title}",
        ]
    if page:
        lines.append(f"./run lab web --lab {lab}")
    return [*lines, f"./run lab down --lab {lab}"]
