"""The files that say which endpoints are in force on a node: their names and what is in them.

`endpoint-status/<orchestrator> <workload> <endpoint>`, each part URL-escaped, in felix's
directory (docs/reference/dataplane.md#endpoint-status). Felix writes them, Calico's as well as
ours; a CNI plugin reads them, Calico's always and ours where Calico's felix runs. So either works
beside either.
Tested in tests/felix/reports/test_status.py and tests/cni/test_felix_client.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from urllib.parse import quote

import msgspec

from libcalico.errors import NO_DOCUMENT

LONGEST = 255

IPNetwork = IPv4Network | IPv6Network


def file_name(identity: Sequence[str]) -> str:
    """A name such as `k8s default%2Fweb eth0`; identity: orchestrator, workload, endpoint."""
    return " ".join(quote(part, safe="") for part in identity)


def too_long(name: str) -> str:
    """Why a file cannot have this name; empty if it can: Linux limits names to 255 bytes.

    Calico's felix shortens nothing, so neither does ours: the reader would look elsewhere. An
    endpoint whose namespace and pod have together some 240 characters has no file with either.
    """
    size = len(name.encode())
    return f"its name would have {size} bytes, at most {LONGEST}" if size > LONGEST else ""


def content(interface: str, mac: str, networks: Iterable[IPNetwork]) -> bytes:
    """The file's JSON; empty members are left out."""
    addresses = list(networks)
    members = {
        "ifaceName": interface,
        "mac": mac,
        "ipv4Nets": [str(n) for n in addresses if n.version == 4],
        "ipv6Nets": [str(n) for n in addresses if n.version == 6],
    }
    return msgspec.json.encode({name: value for name, value in members.items() if value})


def says(path: Path, expected: bytes) -> bool:
    """Whether a file has at least this content; the file of a predecessor differs."""
    try:
        stored = msgspec.json.decode(path.read_bytes())
        desired = msgspec.json.decode(expected)
    except (*NO_DOCUMENT, OSError):
        return False
    return isinstance(stored, dict) and all(stored.get(n) == v for n, v in desired.items())
