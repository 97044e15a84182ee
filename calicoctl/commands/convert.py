"""`convert`: Kubernetes documents as Calico resources, for `apply` to read.

Offline: no datastore is asked. Rules that cannot be converted are left out and told on
standard error; the exit code is then 1 unless `--ignore-validation`, so that a script
notices, but what could be converted is printed all the same: it is narrower, never wider.
Documents of Calico itself pass through, so a mixed file can be converted whole.

A converted NetworkPolicy keeps its own name, as Calico's `convert` does, so `apply` takes
it; the names `knp.default.*` belong to the controller that follows the Kubernetes API, and
`--kubernetes-names` shows what that one would write.
Tested in `tests/calicoctl/test_convert.py`.
"""

from __future__ import annotations

import json
from typing import Any

import click
from msgspec.structs import replace

from calicoctl import yamltext
from calicoctl.documents import inside, opened, read_texts, resource_of
from calicoctl.output import json_text
from libcalico import conversion
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model.codec import shown_value
from libcalico.model.meta import API_VERSION
from libcalico.model.validate import problems


@click.command("convert")
@click.option("-f", "--filename", required=True, help="File, directory, or - for stdin.")
@click.option("-o", "--output", "style", default="yaml", help="yaml or json.")
@click.option("-R", "--recursive", is_flag=True, help="Enter sub-directories of -f.")
@click.option("--ignore-validation", is_flag=True, help="Exit 0 though something was left out.")
@click.option("--kubernetes-names", is_flag=True, help="Name policies knp.default.NAME.")
def convert(
    filename: str, style: str, recursive: bool, ignore_validation: bool, kubernetes_names: bool
) -> None:
    """Convert Kubernetes NetworkPolicies, Namespaces and ServiceAccounts to resources."""
    if style not in ("yaml", "json"):
        raise MuslinError(f"unrecognized output format '{style}'; allowed: yaml, json")
    shown: list[Any] = []
    complaints: list[str] = []
    for source, text in read_texts(filename, recursive):
        for document in yamltext.load(text, source):
            for value, path in opened(document.value, ""):
                resource, wrong = _one(value, path, document, source)
                complaints += [
                    f"{source}: line {document.line_of(inside(path, one.field))}: {one}"
                    for one in wrong
                ]
                if resource is not None:
                    shown.append(_plain(resource, kubernetes_names))
    if shown:
        click.echo(_text(shown, style), nl=style == "json")
    if complaints and ignore_validation:
        click.echo("\n".join(complaints), err=True)
    elif complaints:
        raise MuslinError("\n".join(complaints))
    elif not shown:
        raise MuslinError(f"No resources specified in file {filename}")


def _one(
    value: Any, path: str, document: yamltext.Document, source: str
) -> tuple[Any, list[InvalidValue]]:
    """The resource of one document, or None, and what is wrong with it."""
    if not isinstance(value, dict) or value.get("apiVersion") == API_VERSION:
        return resource_of(value, path, document, source).resource, []
    try:
        done = conversion.convert(value)
    except InvalidValue as problem:
        return None, [problem]
    except MuslinError as problem:
        raise MuslinError(f"{source}: line {document.line_of(path)}: {problem}") from None
    invalid = problems(done.resource)
    return (None if invalid else done.resource), done.dropped + invalid


def _plain(resource: Any, kubernetes_names: bool) -> Any:
    metadata = resource.metadata
    if resource.kind == "NetworkPolicy" and not kubernetes_names:
        name = metadata.name.removeprefix(conversion.POLICY_PREFIX)
        resource = replace(resource, metadata=replace(metadata, name=name))
    return json.loads(shown_value(resource))


def _text(shown: list[Any], style: str) -> str:
    if style == "json":
        return json_text(shown[0] if len(shown) == 1 else shown)
    return "---\n".join(yamltext.dump(one) for one in shown)
