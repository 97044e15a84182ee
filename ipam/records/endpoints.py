"""The addresses of stored workload endpoints.

Others write endpoints too, unchecked: an address that is none must not stop the work on the
endpoints beside it. Tested in tests/ipam/test_unreadable.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ipam.records.blocks import IPAddress, parse_address
from libcalico.datastore.interface import Entry

log = logging.getLogger(__name__)


def sorted_out(texts: Iterable[str]) -> tuple[list[IPAddress], list[str]]:
    """The addresses, and the texts that are none."""
    addresses: list[IPAddress] = []
    wrong: list[str] = []
    for text in texts:
        try:
            addresses.append(parse_address(text))
        except ValueError:
            wrong.append(text)
    return addresses, wrong


def addresses_of(entry: Entry) -> list[IPAddress]:
    """The addresses of a stored endpoint; what is none is named in the log and left out."""
    addresses, wrong = sorted_out(entry.value.spec.ipNetworks)
    if wrong:
        log.error("%s: spec.ipNetworks: %s: no address", entry.key, ", ".join(map(repr, wrong)))
    return addresses
