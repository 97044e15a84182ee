"""`connectivity test`: probes between pods, services and nodes, and what is wrong by them.

Tested in `tests/calicoctl/test_connectivity_command.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from calicoctl.cli import datastore_options, examples
from calicoctl.commands.resources.common import options_of

if TYPE_CHECKING:
    from calicoctl.connectivity.model import Target
    from calicoctl.connectivity.session import Settings


def _targets(
    ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> list[Target]:
    from calicoctl.connectivity import matrix
    from calicoctl.connectivity.model import OUTSIDE, SERVICE

    kind = OUTSIDE if parameter.name == "outside" else SERVICE
    try:
        return [matrix.endpoint(kind, text) for text in texts]
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(
    "test",
    epilog=examples(
        "calicoctl connectivity test",
        "calicoctl connectivity test --nodes 10 --outside 1.1.1.1:443 --junit result.xml",
        "calicoctl connectivity test --image registry.example/calico-node:v1 --no-policies",
        "calicoctl connectivity test --via 'ssh {node} ip netns exec {pod}' -n default",
        "calicoctl connectivity test --cleanup-only",
    ),
)
@click.option("--nodes", default=0, type=click.IntRange(min=0), metavar="N",
              help="A sample of so many nodes; 0, the default, is all of them.")  # fmt: skip
@click.option("--node", "only", multiple=True, metavar="NODE", help="Only this node; repeatable.")
@click.option("--outside", multiple=True, metavar="HOST:PORT", callback=_targets,
              help="A place outside the cluster that must be reached; repeatable.")  # fmt: skip
@click.option("--service", multiple=True, metavar="HOST:PORT", callback=_targets,
              help="The address of a service over probes of ours; repeatable.")  # fmt: skip
@click.option("--policies/--no-policies", default=True,
              help="Also with policies of the test in force; the default.")  # fmt: skip
@click.option("--image", default="", metavar="IMAGE",
              help="The pods' image, with python3; calico-node's by default.")  # fmt: skip
@click.option("--via", default="", metavar="COMMAND",
              help="Use pods that are there, entered by this command; {node}, {pod} and"
              " {namespace} stand for their names.")  # fmt: skip
@click.option("--via-node", default="", metavar="COMMAND",
              help="With --via: also probe from nodes, entered by this command.")  # fmt: skip
@click.option("-n", "--namespace", "namespaces", multiple=True, metavar="NS",
              help="With --via: only pods of this namespace; repeatable.")  # fmt: skip
@click.option("--selector", default="", metavar="SELECTOR",
              help="With --via: only pods with these labels, in Calico's syntax.")  # fmt: skip
@click.option("--pods", default=2, show_default=True, type=click.IntRange(1, 20),
              help="With --via: pods of a node, at most.")  # fmt: skip
@click.option("--port", default=8790, show_default=True, type=click.IntRange(1024, 65534),
              help="The port of the probes' servers; the next one is used, too.")  # fmt: skip
@click.option("--timeout", "seconds", default=3.0, show_default=True,
              type=click.FloatRange(0.1, 60), help="Seconds that a probe waits.")  # fmt: skip
@click.option("--settle", default=30.0, show_default=True, type=click.FloatRange(0, 600),
              help="Seconds for which what is not right is tried again.")  # fmt: skip
@click.option("--throughput", "speed", default=1.0, show_default=True,
              type=click.FloatRange(0, 60), help="Seconds of a measurement; 0: none.")  # fmt: skip
@click.option("--junit", default=None, type=click.Path(dir_okay=False, path_type=Path),
              metavar="FILE", help="Also write the results as JUnit's XML.")  # fmt: skip
@click.option("-o", "--output", type=click.Choice(["table", "wide", "json"]), default="table",
              help="Form of the answer.")  # fmt: skip
@click.option("--cleanup-only", is_flag=True,
              help="Remove what any earlier test left behind, and test nothing.")  # fmt: skip
@datastore_options
def test(
    nodes: int,
    only: tuple[str, ...],
    outside: list[Target],
    service: list[Target],
    policies: bool,
    image: str,
    via: str,
    via_node: str,
    namespaces: tuple[str, ...],
    selector: str,
    pods: int,
    port: int,
    seconds: float,
    settle: float,
    speed: float,
    junit: Path | None,
    output: str,
    cleanup_only: bool,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
) -> None:
    """Send probes between pods, services, nodes and the outside, and name what is wrong.

    On Kubernetes the test makes a namespace with three small pods on each node, and deletes it at
    the end. With --via it runs in pods that are there. First all must answer; then policies of the
    test must deny all, and then allow one port. Each fault is told with what and where it is.

    Exit status: 0 when all is right, 1 when something is not, or when there was no test.
    """
    _check(via, image, {"--via-node": via_node, "-n": namespaces, "--selector": selector})
    from calicoctl.connectivity.session import Settings

    settings = Settings(
        options=options_of(config, allow_version_mismatch, context),
        nodes=nodes,
        only=only,
        outside=tuple(outside),
        services=tuple(service),
        policies=policies,
        port=port,
        seconds=seconds,
        settle=settle,
        speed=speed,
        image=image,
        via=via,
        via_node=via_node,
        namespaces=namespaces,
        selector=selector,
        pods=pods,
    )
    if cleanup_only:
        _clean(settings)
    else:
        _perform(settings, junit, output)


def _check(via: str, image: str, alone: Mapping[str, object]) -> None:
    """Raise InvalidValue for options that do not stand together."""
    from libcalico.errors import InvalidValue

    if via and image:
        raise InvalidValue("--image", image, "stands without --via: its pods are there")
    for name, value in alone.items():
        if value and not via:
            raise InvalidValue(name, value, "stands with --via only")


def _clean(settings: Settings) -> None:
    from calicoctl.connectivity.session import cleaned

    for name in asyncio.run(cleaned(settings)):
        click.echo(f"removed {name}")


def _perform(settings: Settings, junit: Path | None, output: str) -> None:
    """Test, tell, and end with status 1 where something is wrong."""
    from calicoctl.connectivity import judge, report
    from calicoctl.connectivity.session import perform

    try:
        results = asyncio.run(perform(settings, lambda text: click.echo(text, err=True)))
    except asyncio.CancelledError:
        raise click.Abort from None
    findings = judge.judged(results)
    if junit is not None:
        _write(junit, report.junit(results, findings))
    if output == "json":
        click.echo(report.as_json(results, findings), nl=False)
    else:
        click.echo(report.table(results, findings, wide=output == "wide"), nl=False)
    if findings or not all(one.right for one in results):
        raise click.exceptions.Exit(1)


def _write(path: Path, text: str) -> None:
    from libcalico.errors import MuslinError

    try:
        path.write_text(text)
    except OSError as error:
        raise MuslinError(f"--junit {path} cannot be written: {error.strerror}") from None
