"""Command line of the lab: words in, calls of `cluster` and `pods`, text or JSON out."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence

from lab import cluster, namespaces, objects, pods, proc, rootless, scenarios, web
from lab.errors import LabError
from lab.status import status
from lab.topology import TOPOLOGIES

DEFAULT_NAME = "lab"
PING_SECONDS = proc.PATIENCE


def parser() -> argparse.ArgumentParser:
    """The whole grammar of `./run lab`."""
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--lab", metavar="NAME", default=DEFAULT_NAME, help="which lab (default: lab)"
    )
    top = argparse.ArgumentParser(prog="./run lab", description="A cluster of network namespaces.")
    words = top.add_subparsers(dest="word", required=True)
    up = words.add_parser("up", parents=[shared], help="make a lab")
    up.add_argument("--nodes", type=int, help="how many (default: 3)")
    up.add_argument("--topology", choices=TOPOLOGIES, help="default: racks")
    up.add_argument("--scenario", metavar="NAME", help=f"one of {', '.join(scenarios.SCENARIOS)}")
    up.add_argument(
        "--bare", action="store_true", help="machines, etcd and BIRD without the agents"
    )
    up.add_argument(
        "--no-objects", action="store_true", help="apply no pool and no BGP peers (calicoctl does)"
    )
    up.add_argument("--tls", action="store_true", help="etcd asks for client certificates")
    up.add_argument("--env", action="append", default=[], metavar="K=V", help="for the agents")
    words.add_parser("down", parents=[shared], help="take a lab down, also after a crash")
    shown = words.add_parser("status", parents=[shared], help="what is there")
    shown.add_argument("--json", action="store_true")
    execute = words.add_parser(
        "exec", parents=[shared], help="run a command on NODE, router or etcd"
    )
    execute.add_argument("machine")
    execute.add_argument("command", nargs="+")
    page = words.add_parser("web", parents=[shared], help="the page, for a browser of this machine")
    page.add_argument("--port", type=int, default=web.PORT, help=f"default: {web.PORT}; 0: any")
    link = words.add_parser("link", parents=[shared], help="plug or pull a node's rack cable")
    link.add_argument("direction", choices=("up", "down"))
    link.add_argument("node")
    link.add_argument("--interface", default="eth0", help="of two cables (default: eth0)")
    namespace_parser(
        words.add_parser("namespace", help="namespaces and their profiles").add_subparsers(
            dest="namespace", required=True
        ),
        shared,
    )
    pod_parser(
        words.add_parser("pod", help="pods, by CNI").add_subparsers(dest="pod", required=True),
        shared,
    )
    return top


def namespace_parser(
    words: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser
) -> None:
    """The words after `namespace`."""
    add = words.add_parser("add", parents=[shared])
    add.add_argument("name")
    add.add_argument("--label", action="append", default=[], metavar="K=V")
    add.add_argument("--account-label", action="append", default=[], metavar="K=V")


def pod_parser(
    words: argparse._SubParsersAction[argparse.ArgumentParser], shared: argparse.ArgumentParser
) -> None:
    """The words after `pod`."""
    named = argparse.ArgumentParser(add_help=False, parents=[shared])
    named.add_argument("name")
    named.add_argument("--namespace", default="default")
    add = words.add_parser("add", parents=[named])
    add.add_argument("--node", required=True)
    add.add_argument("--label", action="append", default=[], metavar="K=V")
    add.add_argument("--annotation", action="append", default=[], metavar="K=V")
    add.add_argument("--port", action="append", default=[], metavar="tcp:8080")
    execute = words.add_parser("exec", parents=[named])
    execute.add_argument("command", nargs="+")
    ping = words.add_parser("ping", parents=[named], help="until the other pod answers")
    ping.add_argument("to", metavar="[NAMESPACE/]NAME")
    words.add_parser("rm", parents=[named])
    words.add_parser("list", parents=[shared])


def pairs(texts: Sequence[str], what: str) -> dict[str, str]:
    """K=V texts as a mapping; LabError for one without `=`."""
    parsed = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise LabError(f"{what} {text!r}: allowed is KEY=VALUE")
        parsed[key] = value
    return parsed


def say(text: str) -> None:
    """Progress for people."""
    print(text, file=sys.stderr, flush=True)


def run_word(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Do what the first word asks; the exit code."""
    if options.word == "up":
        begun = time.monotonic()
        made = bring_up(options)
        say(f"lab {made.name}: {len(made.nodes)} nodes up in {time.monotonic() - begun:.1f} s")
        return 0
    if options.word == "down":
        if not cluster.down(options.lab):
            say(f"no lab {options.lab!r}, nothing to do")
        return 0
    lab = cluster.find(options.lab)
    if options.word == "status":
        report = status(lab)
        print(json.dumps(report.as_json(), indent=1) if options.json else report.as_text())
        return 0
    if options.word == "exec":
        machine = lab.machine(options.machine)
        enter(machine.command(in_directory(command)), machine.environment())
    if options.word == "web":
        listening = web.listen(options.port)
        machine = lab.machine(lab.nodes[0].name)
        enter(web.command(lab, listening.fileno()), machine.environment())
    if options.word == "link":
        lab.link(options.node, up=options.direction == "up", interface=options.interface)
        return 0
    if options.word == "namespace":
        labels = pairs(options.label, "label")
        print(namespaces.add(lab, options.name, labels, pairs(options.account_label, "label")))
        return 0
    return run_pod_word(lab, options, command)


def bring_up(options: argparse.Namespace) -> cluster.Lab:
    """`lab up`; LabError for a scenario beside what it decides itself."""
    environment = pairs(options.env, "env")
    if not options.scenario:
        return bring_up_plain(options, environment)
    for word in ("nodes", "topology", "bare", "no_objects", "tls"):
        if getattr(options, word):
            flag = word.replace("_", "-")
            raise LabError(f"--{flag} beside --scenario: the scenario decides it")
    return scenarios.up(options.lab, options.scenario, environment=environment, say=say)


def bring_up_plain(options: argparse.Namespace, environment: dict[str, str]) -> cluster.Lab:
    """`lab up` without a scenario: with a pool and the routers as peers, so that pods can come."""
    lab = cluster.up(
        options.lab,
        nodes=3 if options.nodes is None else options.nodes,
        topology=options.topology or "racks",
        agents_too=not options.bare,
        tls=options.tls,
        environment=environment,
        say=say,
    )
    if options.bare or options.no_objects:
        return lab
    try:
        objects.apply(lab)
    except BaseException:
        cluster.down(options.lab)
        raise
    say(f"calicoctl applied the pool {objects.POOL} and the routers as BGP peers")
    return lab


def run_pod_word(lab: cluster.Lab, options: argparse.Namespace, command: Sequence[str]) -> int:
    """Do what the word after `pod` asks."""
    if options.pod == "list":
        for pod in pods.every(lab):
            print(f"{pod.namespace}\t{pod.name}\t{pod.node}\t{','.join(pod.addresses)}")
        return 0
    if options.pod == "add":
        pod = pods.add(
            lab,
            options.name,
            options.node,
            namespace=options.namespace,
            labels=pairs(options.label, "label"),
            annotations=pairs(options.annotation, "annotation"),
            ports=options.port,
        )
        print(f"{pod.title} {','.join(pod.addresses)} ADD {pod.add_milliseconds:.1f} ms")
        return 0
    pod = pods.find(lab, options.name, options.namespace)
    machine = lab.machine(pod.node)
    if options.pod == "exec":
        enter(machine.command(command, netns=pod.netns), machine.environment())
    if options.pod == "ping":
        ping(lab, pod, options.to)
        return 0
    print(f"{pod.title} removed, DEL {pods.remove(lab, pod):.1f} ms")
    return 0


def ping(lab: cluster.Lab, source: pods.Pod, to: str) -> None:
    """Ping a pod from another until it answers: a new block takes BGP a moment; else LabError."""
    namespace, _, name = to.rpartition("/")
    target = pods.find(lab, name, namespace or "default")
    what = f"{source.title} ({source.address}) pings {target.title} ({target.address})"
    proc.wait_until(lambda: pods.ping(lab, source, target.address), what, timeout=PING_SECONDS)
    print(f"{what}: answered")


def in_directory(command: Sequence[str]) -> list[str]:
    """The command in the caller's directory: entering a mount namespace leads to /."""
    return ["env", "-C", os.getcwd(), "--", *command]


def enter(command: list[str], environment: dict[str, str]) -> None:
    """Become the command (its signals and exit code are then the caller's)."""
    sys.stdout.flush()
    os.execvpe(command[0], command, environment)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `python -m lab`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(given)
    try:
        if not rootless.needed():
            code = run_word(options, getattr(options, "command", []))
        elif options.word == "up":
            code = rootless.up(given)
        else:
            code = rootless.enter(options.word, options.lab, given)
    except LabError as error:
        say(f"error: {error}")
        code = 1
    sys.exit(code)
