"""`ipam check`: do the records of addresses agree with each other and with their users?

The lines are Calico's, as far as scripts read them (docs/reference/data-model.md#calicoctl-ipam);
classes of problems that Calico does not look for follow under headings of their own. Exit code 0
also when problems were found: they are a finding, not a failure, unless `--exit-code` asks for 2
then. Tested in
`tests/calicoctl/test_ipam.py`.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path
from statistics import median_high

import click

from calicoctl import versions
from calicoctl.cli import DIFFERS, EXIT_CODE, datastore_options, examples
from calicoctl.commands.resources.common import echo, options_of
from calicoctl.session import Options, datastore
from ipam.admin import check as checks
from ipam.admin import report as reports
from ipam.admin.check import Kind, Report, attributes_text
from ipam.records import snapshot as snapshots
from ipam.records.snapshot import Snapshot
from libcalico.errors import MuslinError
from libcalico.process.progress import Progress

TOP_NODES = 20
OTHER_SCANS = (
    (Kind.DOUBLE_OWNER, "addresses and blocks with several owners"),
    (Kind.HANDLE_COUNT, "handles whose counts differ from the blocks"),
    (Kind.BLOCK_INVALID, "invalid blocks"),
    (Kind.BLOCKS_OVERLAP, "overlapping blocks"),
    (Kind.BLOCK_SIZE, "blocks of another size than their pool's"),
    (Kind.BLOCK_UNCLAIMED, "blocks without affinity"),
    (Kind.AFFINITY_STALE, "affinities without block"),
    (Kind.UNREADABLE, "values that cannot be read"),
    # A note, for kube-controllers may be about to release them; and all that says it, so printed.
    (Kind.NODE_MISSING, "addresses and blocks of nodes that have no Node"),
)


@click.command(
    "check",
    epilog=examples(
        "calicoctl ipam check",
        "calicoctl ipam check --show-problem-ips -o report.json",
        "calicoctl ipam check --exit-code > check.txt || echo look at check.txt",
    ),
)
@click.option("--show-all-ips", is_flag=True, help="Print every address that is checked.")
@click.option("--show-problem-ips", is_flag=True, help="Print every address with a problem.")
@click.option(
    "-o",
    "--output",
    default=None,
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write a report that `ipam release --from-report` reads.",
)
@EXIT_CODE
@click.option("--kubeconfig", default=None, metavar="FILE", help="Look up services there.")
@datastore_options
def check(
    show_all_ips: bool,
    show_problem_ips: bool,
    output: str | None,
    exit_code: bool,
    kubeconfig: str | None,
    config: str | None,
    context: str,
    allow_version_mismatch: bool,
) -> None:
    """Check that the records of addresses agree with each other and with their users."""
    if kubeconfig is not None:
        raise MuslinError(
            "--kubeconfig is not served by this release: it does not speak to a Kubernetes API."
            " Without it, addresses of load-balancer services are taken to be in use"
        )
    options = options_of(config, allow_version_mismatch, context)
    show = show_all_ips or show_problem_ips
    problems = asyncio.run(_check(options, show_all_ips, show, output))
    if exit_code and problems:
        raise click.exceptions.Exit(DIFFERS)


async def _check(options: Options, show_all: bool, show_problems: bool, output: str | None) -> int:
    click.echo("Checking IPAM for inconsistencies...\n")
    sys.stdout.flush()
    with Progress("ipam check") as progress:
        async with datastore(options) as store:
            progress.begin("reading the datastore")
            cluster = await reports.read_cluster(store)
            snapshot = await snapshots.read(store)
            progress.begin("comparing the records")
            report = checks.check(snapshot)
            if report.problems and not cluster.locked:
                # A living cluster changes while it is read: what was there twice is there.
                progress.begin("reading once more what has problems")
                snapshot = await snapshots.read(store)
                report = checks.confirmed(report, checks.check(snapshot))
    _loaded(snapshot, report, show_all)
    _scans(report, show_problems, show_all)
    echo(f"Check complete; found {len(report.problems)} problems.\n", "findings")
    if output is not None:
        file = reports.build(report, cluster, versions.CALICO, snapshot.handle_revisions)
        try:
            Path(output).write_bytes(reports.encode(file))
        except OSError as error:
            raise MuslinError(f"cannot write the report {output}: {error.strerror}") from error
    return len(report.problems)


def _loaded(snapshot: Snapshot, report: Report, show_all: bool) -> None:
    click.echo("Loading all IPAM blocks...")
    click.echo(f"Found {len(snapshot.blocks)} IPAM blocks.")
    by_block: dict[str, list[str]] = {}
    for record in report.records:
        line = f"  {record.address} allocated; attrs {attributes_text(record)}"
        by_block.setdefault(str(record.block), []).append(line)
    for block in snapshot.blocks:
        click.echo(f" IPAM block {block.cidr} affinity={block.owner or '<none>'}:")
        if show_all:
            for line in by_block.get(block.cidr, []):
                click.echo(line)
    click.echo(f"IPAM blocks record {len(report.records)} allocations.\n")
    click.echo("Loading all IPAM pools...")
    active = [pool for pool in snapshot.pools if not pool.disabled]
    for pool in active:
        click.echo(f"  {pool.cidr}")
    click.echo(f"Found {len(active)} active IP pools.\n")
    users = [
        (address, user)
        for address, users_of_address in snapshot.users.items()
        for user in users_of_address
    ]
    click.echo("Loading all nodes.")
    tunnels = [(address, user) for address, user in users if user.tunnel]
    workloads = [(address, user) for address, user in users if not user.tunnel]
    for title, count, addresses in (
        ("", f"Found {len(tunnels)} node tunnel IPs.\n", tunnels),
        ("Loading all workload endpoints.", f"Found {len(workloads)} workload IPs.", workloads),
    ):
        if title:
            click.echo(title)
        if show_all:
            for address, user in addresses:
                click.echo(f"  {address} belongs to {user.name}")
        click.echo(count)
    click.echo(f"Workloads and nodes are using {len(snapshot.users)} IPs.\n")
    _top_nodes(report)


def _top_nodes(report: Report) -> None:
    click.echo(f"Looking for top (up to {TOP_NODES}) nodes by allocations...")
    counts = Counter(record.node for record in report.records)
    for node, count in counts.most_common(TOP_NODES):
        click.echo(f"  {node} has {count} allocations")
    if counts:
        most, middle = max(counts.values()), median_high(counts.values())
        click.echo(f"Node with most allocations has {most}; median is {middle}")
    click.echo()


def _scans(report: Report, show: bool, show_all: bool) -> None:
    click.echo("Scanning for IPs that are allocated but not actually in use...")
    count = _listed(report, Kind.LEAKED, show)
    click.echo(f"Found {count} IPs that are allocated in IPAM but not actually in use.")
    click.echo(
        "Scanning for IPs that are in use by a workload or node but not allocated in IPAM..."
    )
    count = _listed(report, Kind.NOT_IN_POOL, show)
    click.echo(f"Found {count} in-use IPs that are not in active IP pools.")
    count = _listed(report, Kind.NOT_ALLOCATED, show)
    click.echo(
        f"Found {count} in-use IPs that are in active IP pools but have no corresponding"
        " IPAM allocation.\n"
    )
    click.echo("Scanning for IPAM handles with no matching IPs...")
    unused = _listed(report, Kind.HANDLE_UNUSED, show_all)
    handles = {record.handle_id for record in report.records if record.handle_id}
    missing = {one.subject for one in report.of(Kind.HANDLE_MISSING)}
    click.echo(
        f"Found {unused} handles with no matching IPs"
        f" (and {len(handles - missing)} handles with matches)."
    )
    click.echo("Scanning for IPs with missing handle...")
    count = _listed(report, Kind.HANDLE_MISSING, show)
    click.echo(f"Found {count} handles mentioned in blocks with no matching handle resource.")
    for kind, what in OTHER_SCANS:
        click.echo(f"Scanning for {what}...")
        # These are few and each says by itself what is wrong: always printed.
        count = _listed(report, kind, True)
        click.echo(f"Found {count} {what}.")
    if show:
        for note in report.notes:
            if note.kind is Kind.NODE_MISSING:
                continue
            click.echo(f"  note: {note.subject} {note.text}")


def _listed(report: Report, kind: Kind, show: bool) -> int:
    problems = report.of(kind)
    if show:
        for one in problems:
            click.echo(f"  {one.subject} {one.text}")
    return len({one.subject for one in problems})
