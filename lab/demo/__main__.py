"""`./run demo`: bring up a lab, tell the story, take it down; exit 0 only when all checks held."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict

from lab import rootless, web
from lab.demo import (
    deletion,
    etcd_loss,
    felix_loss,
    first_packet,
    keeping,
    nodes,
    policy,
    pool,
    rack_link,
    reachability,
    restarts,
    routing,
    wiring,
)
from lab.demo.story import Check, Outcome, Story, Write, end, perform, took, what_the_nodes_said
from lab.errors import LabError

CHECKS: tuple[tuple[str, str, Check], ...] = (
    ("nodes", "etcd, router and three nodes; every node in the datastore", nodes.check),
    ("pool", "calicoctl apply of an IP pool and the BGP peers", pool.check),
    ("wiring", "six pods by CNI ADD; their tables line by line", wiring.check),
    ("reachability", "every pod and node reaches every pod, unencapsulated", reachability.check),
    ("routing", "BGP sessions; the router learned exactly the nodes' blocks", routing.check),
    ("restarts", "felix, bgp and cni killed under traffic: nothing lost", restarts.check),
    ("rack-link", "a rack link goes down and up: withdrawn and back", rack_link.check),
    ("deletion", "pods deleted: nothing left", deletion.check),
    ("policy", "default deny and allow from a label: the exact matrix", policy.check),
    ("first-packet", "a new pod under fire gets nothing before its policy", first_packet.check),
    ("etcd-loss", "etcd killed: nothing lost, nothing opens, then a change", etcd_loss.check),
    ("felix-loss", "felix killed during policy changes under traffic", felix_loss.check),
    ("end", "policies and pods deleted: nothing left", deletion.check),
)
NAMES = [name for name, _, _ in CHECKS]
LAST_WITH_PODS = "felix-loss"


def tell(story: Story, write: Write, until: str) -> list[Outcome]:
    """The checks in order, the last one being `until`."""
    outcomes: list[Outcome] = []
    for number, (name, title, check) in enumerate(CHECKS[: NAMES.index(until) + 1], 1):
        write(f"\n=== {number}. {title}")
        outcome = perform(story, name, check)
        write(f"--- {name}: {'ok' if outcome.ok else 'FAILED'} ({outcome.seconds:.1f} s)")
        if not outcome.ok and all(earlier.ok for earlier in outcomes):
            write(what_the_nodes_said(story))
        outcomes.append(outcome)
    return outcomes


def report(outcomes: Sequence[Outcome], until: str) -> dict[str, object]:
    """The JSON of `--json`. Pure."""
    names = [outcome.name for outcome in outcomes]
    ok = names == NAMES[: NAMES.index(until) + 1] and all(outcome.ok for outcome in outcomes)
    return {"ok": ok, "checks": [asdict(outcome) for outcome in outcomes]}


def interrupt(*_: object) -> None:
    """A termination signal ends the story through the same `finally` as Ctrl-C."""
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    parser = argparse.ArgumentParser(prog="./run demo", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON report on stdout")
    parser.add_argument(
        "--keep", action="store_true", help="leave the lab up with its pods; no check `end`"
    )
    parser.add_argument("--lab", default="demo", metavar="NAME", help="name of the lab")
    parser.add_argument("--rootless", action="store_true", help="as an ordinary user, also as root")
    parser.add_argument("--until", choices=NAMES, help="the last check to do")
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    if options.rootless or rootless.needed():
        return without_root(given, keep=options.keep)
    until = options.until or (LAST_WITH_PODS if options.keep else NAMES[-1])
    stream = sys.stderr if options.json else sys.stdout
    signal.signal(signal.SIGTERM, interrupt)

    def write(text: str) -> None:
        print(text, file=stream, flush=True)

    begun = time.monotonic()
    story = Story(options.lab, write)
    clean = True
    outcomes: list[Outcome] = []
    try:
        outcomes = tell(story, write, until)
    except KeyboardInterrupt:
        write("interrupted")
    finally:
        if options.keep and story.began:
            write("\nthe cluster stays up; look around:")
            write("\n".join(keeping.commands(options.lab, story.pods, page=web.installed())))
        else:
            clean = tear_down(story, write)
    result = report(outcomes, until)
    write(f"{'all checks held' if result['ok'] else 'NOT all checks held'}, {took(begun):.1f} s")
    if options.json:
        print(json.dumps(result, indent=1))
    return 0 if result["ok"] and clean else 1


def without_root(given: Sequence[str], *, keep: bool) -> int:
    """The same story in a user namespace; its exit code.

    With `keep` it is the world that `./run lab` of this user enters, which root has none of.
    """
    words = ["-m", "lab.demo", *(word for word in given if word != "--rootless")]
    try:
        if keep:
            if not rootless.needed():
                raise LabError("--keep beside --rootless: root's lab commands do not enter it")
            return rootless.make([sys.executable, *words])
        if not rootless.needed():
            rootless.as_nobody([sys.executable, *words])
        return rootless.run([sys.executable, *words])
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def tear_down(story: Story, write: Write) -> bool:
    """Whether the lab went down without trouble."""
    try:
        end(story)
    except LabError as error:
        write(f"teardown: {error}")
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
