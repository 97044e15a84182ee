"""The file that `ipam check -o` writes and `ipam release --from-report` reads: Calico's JSON.

A report is evidence, not a command: an address is released only while it is still the very
allocation that every report saw unused, by handle and sequence number; a handle only at the
revision that it had then. So a report that is old does no harm, it only does less.

Refused without appeal: reports of another cluster, and reports that are all older than the
last locking of the datastore. Refused unless forced: another version's report, and a datastore
that is not locked.

Source: docs/reference/data-model.md#calicoctl-ipam. Tested in tests/calicoctl/test_ipam.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

import msgspec

from ipam.admin import findings, library
from ipam.admin.library import Release
from ipam.records.blocks import IPAddress
from libcalico.datastore.interface import CommitConflict, Datastore, Delete, Entry
from libcalico.errors import NO_DOCUMENT, InvalidValue, MuslinError
from libcalico.model.keys import HandleKey, ResourceKey

CLUSTER = ResourceKey("ClusterInformation", "default")


class Allocation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One allocation; the names are the file's."""

    ip: str
    handle: str = ""
    sequenceNumber: int | None = None
    pod: str = ""
    namespace: str = ""
    node: str = ""
    type: str = ""
    creationTimestamp: str = ""
    inUse: bool
    borrowed: bool = False
    coolingDown: bool = False
    owners: list[str] | None

    def identity(self) -> tuple[str, int | None]:
        """The fields that must be the same in every report."""
        return self.handle, self.sequenceNumber


class LeakedHandle(msgspec.Struct, frozen=True):
    """A handle that holds nothing; `UID` is for Kubernetes."""

    ID: str
    UID: str | None = None
    Revision: str = ""


class ReportFile(msgspec.Struct, frozen=True, kw_only=True):
    """The whole file."""

    version: str
    clusterGUID: str
    datastoreLocked: bool
    clusterInformationRevision: str
    clusterType: str
    allocations: dict[str, list[Allocation]]
    leakedHandles: list[LeakedHandle] | None = None


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster that a report describes."""

    guid: str = ""
    type: str = ""
    revision: str = ""
    locked: bool = False


@dataclass(frozen=True, slots=True)
class Leaks:
    """The leaks that all reports agree on, and the warnings."""

    addresses: tuple[Release, ...]
    handles: tuple[tuple[str, int], ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a release; `refused`: given out anew since the reports."""

    released: int
    already_free: int
    refused: Mapping[IPAddress, str]
    handles: int
    handles_changed: int


async def read_cluster(store: Datastore) -> Cluster:
    """The cluster as it is now; raises `MuslinError` when it is not initialised."""
    entry: Entry | None = await store.get(CLUSTER)
    if entry is None:
        raise MuslinError("the datastore holds no ClusterInformation(default): is it Calico's?")
    spec = entry.value.spec
    return Cluster(
        spec.clusterGUID, spec.clusterType, str(entry.revision), spec.datastoreReady is False
    )


def build(
    report: findings.Report, cluster: Cluster, version: str, revisions: Mapping[str, int]
) -> ReportFile:
    """The file of a check; `revisions` of the handles, `version` of the program."""
    allocations: dict[str, list[Allocation]] = {}
    for record in sorted(report.records, key=lambda r: (r.address.version, int(r.address))):
        attributes = record.attributes
        allocations.setdefault(str(record.address), []).append(
            Allocation(
                ip=str(record.address),
                handle=record.handle_id,
                sequenceNumber=record.sequence or 0,
                pod=attributes.get("pod", ""),
                namespace=attributes.get("namespace", ""),
                node=record.node,
                type=attributes.get("type", ""),
                creationTimestamp=attributes.get("timestamp", ""),
                inUse=record.in_use,
                borrowed=record.borrowed,
                coolingDown=record.cooling,
                owners=list(record.owners) or None,
            )
        )
    unused = [one.subject for one in report.of(findings.Kind.HANDLE_UNUSED)]
    return ReportFile(
        version=version,
        clusterGUID=cluster.guid,
        datastoreLocked=cluster.locked,
        clusterInformationRevision=cluster.revision,
        clusterType=cluster.type,
        allocations=allocations,
        leakedHandles=[LeakedHandle(one, None, str(revisions[one])) for one in unused],
    )


def encode(report: ReportFile) -> bytes:
    """Two-space JSON; handles are left out where there are none, as Calico does."""
    tree = msgspec.to_builtins(report)
    if not report.leakedHandles:
        del tree["leakedHandles"]
    return msgspec.json.format(msgspec.json.encode(tree), indent=2)


def parse(name: str, raw: bytes) -> ReportFile:
    """A report file; raises InvalidValue that names the file and the field."""
    try:
        return msgspec.json.decode(raw, type=ReportFile)
    except NO_DOCUMENT as error:
        raise InvalidValue("--from-report", name, f"is no report of ipam check: {error}") from None


def merge(
    reports: Sequence[tuple[str, ReportFile]], cluster: Cluster, version: str, force: bool
) -> Leaks:
    """The allocations that every report calls unused. Raises `MuslinError` for a wrong report."""
    warnings: list[str] = []
    for name, report in reports:
        if report.clusterGUID != cluster.guid:
            raise MuslinError(
                f"{name} is a report of another cluster: its cluster GUID is"
                f" {report.clusterGUID or 'empty'}, this cluster's is {cluster.guid}"
            )
        if report.version != version:
            problem = f"{name} was made by version {report.version} of calicoctl, this is {version}"
            if not force:
                raise MuslinError(f"{problem}; make a new report, or use --force")
            warnings.append(f"WARNING: {problem}")
    if all(report.clusterInformationRevision != cluster.revision for _, report in reports):
        raise MuslinError(
            "every report is stale: the cluster information changed since; lock the datastore,"
            " make a new report with `calicoctl ipam check -o FILE` and give it as well"
        )
    if not cluster.locked:
        if not force:
            raise MuslinError(
                "the datastore is not locked; run `calicoctl datastore migrate lock`,"
                " or use --force"
            )
        warnings.append("WARNING: the datastore is not locked")
    files = [report for _, report in reports]
    return Leaks(_common_addresses(files), _common_handles(files), tuple(warnings))


def _common_addresses(reports: Sequence[ReportFile]) -> tuple[Release, ...]:
    common: dict[str, Allocation] | None = None
    for report in reports:
        unused = {
            one.ip: one
            for one_handle in report.allocations.values()
            for one in one_handle
            if not one.inUse and not one.coolingDown
        }
        if common is None:
            common = unused
        else:
            common = {
                ip: one
                for ip, one in common.items()
                if ip in unused and unused[ip].identity() == one.identity()
            }
    releases = []
    for ip, one in (common or {}).items():
        # Very old allocations have no sequence number; Calico writes 0. The handle decides.
        sequence = None if one.sequenceNumber == 0 and one.handle else one.sequenceNumber
        releases.append(Release(_address(ip), one.handle or None, sequence))
    return tuple(releases)


def _address(text: str) -> IPAddress:
    try:
        return ip_address(text)
    except ValueError:
        raise InvalidValue("allocations[].ip", text, "an IPv4 or IPv6 address") from None


def _common_handles(reports: Sequence[ReportFile]) -> tuple[tuple[str, int], ...]:
    sets = [{(one.ID, one.Revision) for one in report.leakedHandles or []} for report in reports]
    common = set.intersection(*sets) if sets else set()
    return tuple(sorted((name, int(rev)) for name, rev in common if rev.isdecimal()))


async def release(store: Datastore, leaks: Leaks) -> Outcome:
    """Release what leaked, then the handles that hold nothing. Raises DatastoreError."""
    result = await library.release_ips(store, leaks.addresses)
    changed = 0
    for handle_id, revision in leaks.handles:
        try:
            await store.commit([Delete(HandleKey(handle_id), revision)])
        except CommitConflict:
            changed += 1
    return Outcome(
        len(result.released),
        len(result.unallocated),
        {address: str(reason) for address, reason in result.refused.items()},
        len(leaks.handles) - changed,
        changed,
    )
