"""`cnitool`: call the plugins of a network by hand, as a container runtime would.

CNI_PATH=/opt/cni/bin cnitool add k8s-pod-network /var/run/netns/testing

Verbs, variables, container id and output are those of the CNI project's tool, so a line from a
document works unchanged. `add` prints the result; everything else is silent when it worked. An
error is one line on stderr and status 1.
Source: conformance TOOL-01 to TOOL-04. Tested in `tests/cni_conformance/test_tool.py`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from cni.client import Attachment, Client, load
from cni.client.cache import DEFAULT
from libcalico import command_line
from libcalico.errors import NO_DOCUMENT, InvalidValue, MuslinError
from libcalico.process import paths

EPILOG = """environment:
  NETCONFPATH  the directory of network configurations (/etc/cni/net.d)
  CNI_PATH     where plugins are looked for, directories separated by ':'
  CNI_ARGS     KEY=VALUE;KEY=VALUE for the plugins
  CAP_ARGS     a JSON object: capabilities such as {"portMappings": [...]}
  CNI_IFNAME   the interface in the container (eth0)

The container id is made from the namespace's path; CNI_CONTAINERID has no effect."""


def container_id(netns: str) -> str:
    """`cnitool-` and 20 hex digits of the SHA-512 of the absolute path (TOOL-02). Pure."""
    return f"cnitool-{hashlib.sha512(netns.encode()).hexdigest()[:20]}"


def parse_args(text: str) -> tuple[tuple[str, str], ...]:
    """CNI_ARGS as pairs. Raises InvalidValue naming the pair."""
    pairs = []
    for pair in text.split(";") if text else ():
        key, _, value = pair.partition("=")
        if not key or not value or "=" in value:
            raise InvalidValue("CNI_ARGS", pair, "KEY=VALUE pairs separated by ';'")
        pairs.append((key, value))
    return tuple(pairs)


def parse_capabilities(text: str) -> dict[str, object]:
    """CAP_ARGS as an object. Raises InvalidValue."""
    try:
        capabilities = msgspec.json.decode(text) if text else {}
    except NO_DOCUMENT as problem:
        raise InvalidValue("CAP_ARGS", text, f"a JSON object: {problem}") from None
    if not isinstance(capabilities, dict):
        raise InvalidValue("CAP_ARGS", text, "a JSON object")
    return capabilities


def run(verb: str, name: str, netns: str, environ: Mapping[str, str], cache: Path) -> str:
    """Do one verb; returns what is printed. Raises MuslinError, OSError."""
    network = load(Path(environ.get("NETCONFPATH") or paths.CNI_NET), name)
    client = Client(environ.get("CNI_PATH", "").split(":"), cache)
    if verb == "status":
        client.status(network)
        return ""
    if verb == "gc":
        client.gc(network)
        return ""
    path = os.path.abspath(netns)
    to = Attachment(
        container_id(path),
        path,
        environ.get("CNI_IFNAME") or "eth0",
        parse_args(environ.get("CNI_ARGS", "")),
        parse_capabilities(environ.get("CAP_ARGS", "")),
    )
    if verb == "add":
        result = msgspec.json.encode(client.add(network, to))
        return msgspec.json.format(result, indent=4).decode() + "\n"
    (client.delete if verb == "del" else client.check)(network, to)
    return ""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(1, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script."""
    parser = _Parser(
        prog="cnitool",
        description="Add, check or remove a network namespace's attachment to a network.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command_line.add_version(parser)
    parser.add_argument("verb", choices=("add", "check", "del", "gc", "status"))
    parser.add_argument("network", help="the name in a file of NETCONFPATH")
    parser.add_argument("netns", nargs="?", default="", help="a path such as /var/run/netns/x")
    parser.add_argument("-i", "--ifname", help="wins over CNI_IFNAME")
    parser.add_argument("--cache-dir", type=Path, default=DEFAULT, help=f"results ({DEFAULT})")
    chosen = parser.parse_intermixed_args(arguments)
    if not chosen.netns and chosen.verb in ("add", "check", "del"):
        parser.error(f"{chosen.verb} needs the path of a network namespace")
    environ = dict(os.environ)
    if chosen.ifname:
        environ["CNI_IFNAME"] = chosen.ifname

    def work() -> int:
        try:
            printed = run(chosen.verb, chosen.network, chosen.netns, environ, chosen.cache_dir)
        except (MuslinError, OSError) as error:
            print(error, file=sys.stderr)
            return 1
        sys.stdout.write(printed)
        return 0

    if code := command_line.guarded("cnitool", work):
        sys.exit(code)


if __name__ == "__main__":
    main()
