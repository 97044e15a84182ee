"""`datastore migrate import`: store what `export` wrote in a Kubernetes datastore.

The stream is read and checked as a whole before anything else. This release serves etcd
only, so after that it refuses by name. Tested in `tests/calicoctl/test_datastore.py`.
"""

from __future__ import annotations

import os

import click

from calicoctl import datastream, documents
from calicoctl.cli import datastore_options
from calicoctl.commands.common import options_of
from calicoctl.session import Options
from libcalico import apiconfig
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model.validate import problems


@click.command("import")
@click.option("-f", "--filename", required=True, metavar="FILE", help="The export; - for stdin.")
@datastore_options
def import_(filename: str, config: str | None, context: str, allow_version_mismatch: bool) -> None:
    """Store what `export` wrote in a Kubernetes datastore without Calico's objects."""
    _import(filename, options_of(config, allow_version_mismatch, context))


def _import(filename: str, options: Options) -> None:
    kind = apiconfig.load(options.config, os.environ).datastore_type
    if kind == apiconfig.ETCD:
        raise InvalidValue(
            "datastoreType", kind, "import needs kubernetes: the export is made for that datastore"
        )
    text = "".join(raw.decode() for _, raw in documents.read_texts(filename))
    planned = plan(datastream.parse(text, filename))
    raise MuslinError(
        f"{filename} is sound ({planned}), but this release cannot write to the datastore"
        f" {kind}: nothing was imported"
    )


def plan(stream: datastream.Stream) -> str:
    """What an import would write, in words; raises `MuslinError` naming every bad resource."""
    wrong = [
        f"{document.place(one.field)}: {one}"
        for document in stream.resources
        for one in problems(document.resource)
    ]
    if wrong:
        raise MuslinError("; ".join(wrong))
    return f"{len(stream.resources)} resources, {len(stream.ipam)} records of IPAM"
