"""`calico-web`: the page, served. `calicoctl web` is this program.

Tested in tests/web/test_main.py.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
import sys
from collections.abc import Callable, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING

from libcalico.command_line import add_version, guarded
from libcalico.errors import InvalidValue, MuslinError
from web.guard.listening import PORT, Listening, listening

if TYPE_CHECKING:
    from socket import socket

    from calicoctl.session import Options
    from flows.place import Place
    from web.facts.reading import Source

SAYS = """\
Show the network in a browser: map, flows, policy, addresses, pods' starts, health. Read-only.

The datastore is that of calicoctl: -c FILE, else the environment.

examples:
  calicoctl web                                     http://127.0.0.1:8091/
  calicoctl web --port 0                            any free port
  calicoctl web --status n1=/tmp/n1/status          status files of a node that lie elsewhere
  calico-web --listen 0.0.0.0 --token-review --tls-cert tls.crt --tls-key tls.key
"""


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(
        prog="calico-web", description=SAYS, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_version(made)
    made.add_argument("-c", "--config", metavar="FILE", help="connection settings")
    made.add_argument("--context", default="", metavar="NAME", help="context of the kubeconfig")
    made.add_argument("--allow-version-mismatch", action="store_true", help="allow another version")
    made.add_argument(
        "--listen", default="127.0.0.1", metavar="ADDRESS", help="127.0.0.1 unless said otherwise"
    )
    made.add_argument(
        "--port", type=int, default=PORT, metavar="PORT", help=f"{PORT}; 0 is any free one"
    )
    made.add_argument(
        "--fd", type=int, default=None, metavar="NUMBER",
        help="serve on this open socket of loopback instead, as a parent hands it over",
    )  # fmt: skip
    made.add_argument(
        "--token-review",
        action="store_true",
        help="ask for a token of Kubernetes that has the ClusterRole calico-web-viewer",
    )
    made.add_argument("--tls-cert", default="", metavar="FILE", help="certificate to serve with")
    made.add_argument("--tls-key", default="", metavar="FILE", help="its key")
    made.add_argument(
        "--name", action="append", default=[], metavar="HOST",
        help="a host name by which browsers may ask, besides localhost; may be repeated",
    )  # fmt: skip
    made.add_argument(
        "--status", action="append", default=[], metavar="NODE=FOLDER",
        help="status files of a node; those of this machine are found; may be repeated",
    )  # fmt: skip
    made.add_argument(
        "--check", action="store_true", help="ask the page of this machine whether it serves"
    )
    made.add_argument(
        "--aggregator", default="", metavar="HOST:PORT",
        help="calico-goldmane: flows, and the status of all nodes",
    )  # fmt: skip
    for name, what in (("ca", "CA"), ("cert", "our certificate"), ("key", "its key")):
        made.add_argument(
            f"--aggregator-{name}", default="", metavar="FILE", help=f"{what} for the aggregator"
        )
    made.add_argument(
        "--aggregator-name", default="", metavar="NAME",
        help="the name in its certificate, if not HOST",
    )  # fmt: skip
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; the exit code."""
    given = parser().parse_args(arguments)
    return guarded("calico-web", lambda: _told(given))


def _told(given: argparse.Namespace) -> int:
    try:
        serve(given)
    except MuslinError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def serve(given: argparse.Namespace) -> None:
    """Serve as the options say, until interrupted. Raises MuslinError."""
    if given.check:
        check(given.port, encrypted=bool(given.tls_cert))
        return
    from calicoctl.session import Options
    from web import serving
    from web.facts.reading import Source
    from web.facts.words import folders_of

    where = listening(
        given.listen,
        given.port,
        review=given.token_review,
        certificate=given.tls_cert,
        key=given.tls_key,
        names=given.name,
    )
    options = Options(given.config, given.allow_version_mismatch, given.context)
    source = Source(options, folders_of(given.status))
    place = _place(given)

    def started(url: str) -> None:
        print(f"the page is at {url}", flush=True)

    taken = serving.bound(where) if given.fd is None else serving.inherited(given.fd)
    reviewing = options if given.token_review else None
    asyncio.run(_serve(source, place, where, taken, reviewing, started))


async def _serve(
    source: Source,
    place: Place | None,
    where: Listening,
    taken: socket,
    reviewing: Options | None,
    started: Callable[[str], None],
) -> None:
    from web import serving
    from web.facts.asking import Asking
    from web.facts.keeper import Keeper
    from web.facts.reading import read

    asking = Asking(place)
    keeper = Keeper(lambda before: read(source, before), asking.enrich)
    if reviewing is None:
        await serving.serve(keeper, asking, where, taken, None, started)
        return
    from web.guard.login import Login
    from web.guard.reviews import Reviews, reviewer

    client = reviewer(reviewing)
    try:
        login = Login(Reviews(client).verdict)
        await serving.serve(keeper, asking, where, taken, login, started)
    finally:
        await client.close()


def check(port: int, *, encrypted: bool) -> None:
    """Ask the page of this machine whether it serves: a probe. Raises MuslinError where not.

    Its own certificate is not verified: the connection stays within the machine.
    """
    connection = HTTPConnection("127.0.0.1", port, timeout=8.0)
    if encrypted:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = HTTPSConnection("127.0.0.1", port, timeout=8.0, context=context)
    try:
        connection.request("GET", "/healthz")
        status = connection.getresponse().status
    except (OSError, HTTPException) as problem:
        raise MuslinError(f"the page does not answer on port {port}: {problem}") from None
    finally:
        connection.close()
    if status != 200:
        raise MuslinError(f"the page answers {status} on port {port}")


def _place(given: argparse.Namespace) -> Place | None:
    """Where the aggregator is; None without `--aggregator`. Raises InvalidValue."""
    options = (
        given.aggregator_ca,
        given.aggregator_cert,
        given.aggregator_key,
        given.aggregator_name,
    )
    if not given.aggregator:
        if any(options):
            raise InvalidValue("--aggregator", "", "HOST:PORT belongs to its certificates")
        return None
    from flows.place import Place

    host, colon, port = given.aggregator.rpartition(":")
    if not (host and colon and port.isdigit()):
        raise InvalidValue("--aggregator", given.aggregator, "HOST:PORT")
    place = Place(given.aggregator, *options)
    _ = place.encrypted  # names the file that lacks
    return place


if __name__ == "__main__":
    sys.exit(main())
