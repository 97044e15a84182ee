"""Manual pages, written from the parser, so that they cannot disagree with it.

`./run man [FOLDER]` writes one page a command, `calicoctl-ipam-show.1` and so on. Tested in
`tests/calicoctl/test_completion.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from calicoctl import versions
from calicoctl.cli import calicoctl

FILES = """\
.SH FILES
.TP
/etc/calico/calicoctl.cfg
Where the datastore is. When it exists, the environment is not asked.
.SH ENVIRONMENT
.TP
DATASTORE_TYPE, ETCD_ENDPOINTS, ETCD_CA_CERT_FILE, ETCD_CERT_FILE, ETCD_KEY_FILE, ...
The same settings, used when there is no file.
.SH EXIT STATUS
0 when everything was done, 1 after any error, which is told on standard error. With --exit-code,
2 when a plan has changes, a check has problems, a packet is denied, or not all nodes are fine.
"""


def pages() -> Iterator[tuple[str, str]]:
    """File name and text of every page."""
    root = click.Context(calicoctl, info_name="calicoctl")
    for context in _contexts(root):
        name = context.command_path.replace(" ", "-")
        yield f"{name}.1", page(context)


def _contexts(context: click.Context) -> Iterator[click.Context]:
    yield context
    command = context.command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                yield from _contexts(click.Context(below, info_name=name, parent=context))


def page(context: click.Context) -> str:
    """One page, in roff's man macros."""
    command = context.command
    title = context.command_path.replace(" ", "-")
    pieces = command.collect_usage_pieces(context)
    text = (command.help or "").strip()
    first = text.partition("\n")[0].rstrip(".")
    out = [
        f'.TH {roff(title.upper())} 1 "" "calicoctl {versions.MUSLIN}" "Muslin"',
        ".SH NAME",
        f"{roff(title)} \\- {roff(first)}",
        ".SH SYNOPSIS",
        f".B {roff(context.command_path)}",
        roff(" ".join(pieces)),
        ".SH DESCRIPTION",
        *paragraphs(text),
        *_records("OPTIONS", _options(context)),
    ]
    typed = (command.epilog or "").partition("Examples:\n")[2]
    if isinstance(command, click.Group):
        lines = [
            (name, getattr(command, "table", {}).get(name, ("", ""))[1])
            for name in command.list_commands(context)
        ]
        out += _records("COMMANDS", lines)
        near = [f"{title}-{name}" for name, _ in lines]
    else:
        near = []
    out += [".SH EXAMPLES", ".nf", *(roff(line.strip()) for line in typed.splitlines()), ".fi"]
    if context.parent is None:
        out += FILES.splitlines()
    else:
        near = [context.parent.command_path.replace(" ", "-"), *near]
    out += [".SH SEE ALSO", ", ".join(f"\\fB{roff(name)}\\fR(1)" for name in near)]
    return "\n".join(out) + "\n"


def _options(context: click.Context) -> list[tuple[str, str]]:
    records = (one.get_help_record(context) for one in context.command.get_params(context))
    # Arguments stand in the synopsis; their records have no text.
    return [record for record in records if record and record[1]]


def _records(title: str, records: Sequence[tuple[str, str]]) -> list[str]:
    out = [f".SH {title}"] if records else []
    for head, text in records:
        out += [".TP", f"\\fB{roff(head)}\\fR", roff(text)]
    return out


def paragraphs(text: str) -> list[str]:
    """Help text as roff paragraphs."""
    out: list[str] = []
    for block in text.replace("\b", "").split("\n\n"):
        out += [".PP", *(roff(line.strip()) for line in block.strip().splitlines())]
    return out[1:] or ["."]


def roff(text: str) -> str:
    """Text that roff prints as it is: backslashes, dashes and leading dots are its own signs."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def main() -> None:
    """Write all pages to the folder of the first argument."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/man/man1")
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for name, text in pages():
        (folder / name).write_text(text)
        names.append(name)
    print(f"{len(names)} manual pages in {folder}")


if __name__ == "__main__":
    main()
