"""`./run manifests COMMAND`: render the manifests, fill the Secret, tell who may do what."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from manifests import chart, rights, secret, variants
from manifests.dashboards import grafana

PAGE = variants.HERE.parent / "docs" / "rbac.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what is asked; 1 and one sentence where that cannot be."""
    chosen = _parser().parse_args(arguments)
    try:
        result: int = chosen.work(chosen)
    except (chart.ChartError, secret.SecretError, OSError) as error:
        print(f"manifests: {error}", file=sys.stderr)
        return 1
    return result


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run manifests", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    render = commands.add_parser(
        "render", help="write the flat files, the kustomize files, the dashboards"
    )
    render.add_argument("--check", action="store_true", help="write nothing; 1 if one is stale")
    render.add_argument("--into", type=Path, default=variants.HERE, help="another folder")
    render.add_argument("--node-image", default="", help="another name of the node's image")
    render.add_argument("--controllers-image", default="", help="the same, of the controllers'")
    render.set_defaults(work=_render)
    fill = commands.add_parser("secret", help="the Secret with etcd's TLS files")
    for name in ("key", "cert", "ca"):
        fill.add_argument(f"--{name}", type=Path, required=True, help=f"etcd-{name}, a PEM file")
    fill.add_argument("--into", type=Path, help="patch this manifest, instead of printing")
    fill.set_defaults(work=_secret)
    told = commands.add_parser("rbac-report", help="write docs/rbac.md")
    told.add_argument("--check", action="store_true", help="write nothing; 1 if it is stale")
    told.add_argument("--audit", type=Path, help="an API server's audit log: which rules it used")
    told.add_argument("--datastore", choices=sorted(variants.VALUES), default="etcd")
    told.set_defaults(work=_rights)
    return parser


def _render(chosen: argparse.Namespace) -> int:
    images = {"node": chosen.node_image, "controllers": chosen.controllers_image}
    wanted = variants.files({name: image for name, image in images.items() if image})
    wanted |= grafana.files()
    stale = []
    for name, text in wanted.items():
        path = chosen.into / name
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if not chosen.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    if chosen.check and stale:
        print(f"stale: {', '.join(stale)}: ./run manifests render")
        return 1
    return 0


def _secret(chosen: argparse.Namespace) -> int:
    files = {f"etcd-{name}": getattr(chosen, name) for name in ("key", "cert", "ca")}
    data = secret.read(files)
    if chosen.into is None:
        print(secret.document(data), end="")
    else:
        chosen.into.write_text(secret.filled(chosen.into.read_text(), data))
    return 0


def _rights(chosen: argparse.Namespace) -> int:
    rendered = {name: chart.render(values) for name, values in variants.VALUES.items()}
    if chosen.audit is not None:
        granted = rights.rules(rendered[chosen.datastore])
        with chosen.audit.open() as log:
            found = rights.coverage(granted, log)
        print(rights.told(found))
        return 1 if found.refused or found.uncovered else 0
    text = rights.report(rendered)
    if PAGE.exists() and PAGE.read_text() == text:
        return 0
    if chosen.check:
        print(f"stale: {PAGE.name}: ./run manifests rbac-report")
        return 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
