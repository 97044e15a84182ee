"""`convert`: Kubernetes and first-generation documents as resources, for `apply` to read.

Offline: no datastore is asked. Rules that cannot be converted are left out and told on
standard error; the exit code is then 1 unless `--ignore-validation`, so that a script
notices, but what could be converted is printed all the same: it is narrower, never wider.
Documents of Calico itself pass through, so a mixed file can be converted whole, and those of
its first generation (`apiVersion: v1`) become what they are today.

A converted NetworkPolicy keeps its own name, as Calico's `convert` does, so `apply` takes
it; the names `knp.default.*` belong to the controller that follows the Kubernetes API, and
`--kubernetes-names` shows what that one would write.
Tested in `tests/calicoctl/test_convert.py`.
"""

from __future__ import annotations

import json

import click
from msgspec.structs import replace

from calicoctl import yamltext
from calicoctl.cli import common_options, examples
from calicoctl.documents import inside, opened, read_texts, resource_of
from calicoctl.output import json_text
from libcalico import conversion
from libcalico.conversion.cluster_policy import PREFIX as CLUSTER_PREFIX
from libcalico.errors import InvalidValue, MuslinError
from libcalico.legacy import convert_document, is_legacy
from libcalico.model.base.meta import API_VERSION
from libcalico.model.codec import resource_from_tree, shown_value
from libcalico.model.kinds import Resource
from libcalico.model.validation.validate import problems

_PREFIXES = {
    "NetworkPolicy": conversion.POLICY_PREFIX,
    "GlobalNetworkPolicy": CLUSTER_PREFIX,
}
"""What stands before the names of policies that were made of Kubernetes' own."""


@click.command(
    "convert",
    epilog=examples(
        "calicoctl convert -f networkpolicy.yaml -o json",
        "kubectl get networkpolicies -A -o yaml | calicoctl convert -f - > policies.yaml",
    ),
)
@click.option(
    "-f",
    "--filename",
    required=True,
    metavar="FILE",
    type=click.Path(allow_dash=True),
    help="File, directory, or - for standard input.",
)
@click.option(
    "-o",
    "--output",
    "style",
    default="yaml",
    metavar="FORMAT",
    help="yaml or json; yaml by default.",
)
@click.option("-R", "--recursive", is_flag=True, help="Enter sub-directories of -f.")
@click.option("--ignore-validation", is_flag=True, help="Exit 0 though something was left out.")
@click.option("--kubernetes-names", is_flag=True, help="Name policies knp.default.NAME, kcnp.NAME.")
@common_options
def convert(
    filename: str, style: str, recursive: bool, ignore_validation: bool, kubernetes_names: bool
) -> None:
    """Convert first-generation documents and Kubernetes objects to resources.

    Of Kubernetes: NetworkPolicies, ClusterNetworkPolicies, Namespaces and ServiceAccounts.
    """
    if style not in ("yaml", "json"):
        raise MuslinError(f"unrecognized output format '{style}'; allowed: yaml, json")
    shown: list[object] = []
    complaints: list[str] = []
    for source, text in read_texts(filename, recursive):
        for document in yamltext.load(text, source, is_json=source.endswith(".json")):
            for single in opened(document.value, ""):
                if single.problem:
                    where = f"{source}: line {document.line_of(single.path)}"
                    complaints.append(f"{where}: {single.problem}")
                    continue
                resources, wrong = _all(single.value, single.path, document, source)
                complaints += [
                    f"{source}: line {document.line_of(inside(single.path, one.field))}: {one}"
                    for one in wrong
                ]
                shown += [_plain(resource, kubernetes_names) for resource in resources]
    if shown:
        click.echo(_text(shown, style), nl=style == "json")
    if complaints and ignore_validation:
        click.echo("\n".join(complaints), err=True)
    elif complaints:
        raise MuslinError("\n".join(complaints))
    elif not shown:
        raise MuslinError(f"No resources specified in file {filename}")


def _all(
    value: object, path: str, document: yamltext.Document, source: str
) -> tuple[list[Resource], list[InvalidValue]]:
    """The resources of one document, and what is wrong with it."""
    if not isinstance(value, dict) or value.get("apiVersion") == API_VERSION:
        return [resource_of(value, path, document, source).resource], []
    try:
        if is_legacy(value) and not conversion.is_kubernetes(value):
            resources = [resource_from_tree(tree, strict=True) for tree in convert_document(value)]
            dropped: list[InvalidValue] = []
        else:
            done = conversion.convert(value)
            resources, dropped = [done.resource], done.dropped
    except InvalidValue as problem:
        return [], [problem]
    except MuslinError as problem:
        raise MuslinError(f"{source}: line {document.line_of(path)}: {problem}") from None
    invalid = [one for resource in resources for one in problems(resource)]
    return ([] if invalid else resources), dropped + invalid


def _plain(resource: Resource, kubernetes_names: bool) -> object:
    metadata = resource.metadata
    prefix = _PREFIXES.get(resource.kind, "")
    if prefix and not kubernetes_names:
        name = metadata.name.removeprefix(prefix)
        resource = replace(resource, metadata=replace(metadata, name=name))
    return json.loads(shown_value(resource))


def _text(shown: list[object], style: str) -> str:
    if style == "json":
        return json_text(shown[0] if len(shown) == 1 else shown)
    return "---\n".join(yamltext.dump(one) for one in shown)
