"""The variables of a call, checked: `CNI_COMMAND`, what it requires, and the pairs of `CNI_ARGS`.

Pure. Source: docs/reference/cni.md#environment, #cni_args. Tested in `tests/cni/test_request.py`
and `tests/cni/test_vectors.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from cni.request.errors import CNIError, Code

NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.\-]*")
GO_SPACE = frozenset("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | frozenset(
    chr(point) for point in range(0x2000, 0x200B)
)
REQUIRED: Mapping[str, tuple[str, ...]] = {
    "ADD": ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"),
    "CHECK": ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"),
    "DEL": ("CNI_CONTAINERID", "CNI_IFNAME"),
    "GC": ("CNI_PATH",),
}


def check_environment(env: Mapping[str, str]) -> str:
    """Return CNI_COMMAND after checking what this command requires (ENV-02 to ENV-20)."""
    command = env.get("CNI_COMMAND", "")
    if not command:
        raise environment_error("required env variables [CNI_COMMAND] missing")
    required = REQUIRED.get(command, ())
    missing = [name for name in required if not env.get(name)]
    if missing:
        raise environment_error(f"required env variables [{','.join(missing)}] missing")
    if "CNI_CONTAINERID" in required and not NAME.fullmatch(env["CNI_CONTAINERID"]):
        raise environment_error("invalid characters in containerID", env["CNI_CONTAINERID"])
    if "CNI_IFNAME" in required:
        check_ifname(env["CNI_IFNAME"])
    return command


def check_ifname(ifname: str) -> None:
    """Raise CNIError 4 when the kernel could not take `ifname` as a link's name (ENV-20)."""
    if len(ifname.encode("utf-8", "surrogateescape")) > 15:
        raise environment_error(
            "interface name is too long", "interface name should be less than 16 characters"
        )
    if ifname in (".", ".."):
        raise environment_error("interface name is . or ..")
    if any(char in "/:" or char in GO_SPACE for char in ifname):
        raise environment_error("interface name contains / or : or whitespace characters")


def parse_args(text: str, command: str) -> dict[str, str]:
    """Return the pairs of CNI_ARGS (ARG-01 to ARG-05); the last of duplicates wins.

    Unknown keys never fail, because Calico sets IgnoreUnknown for itself. A piece without "="
    is an error of ADD and CHECK (code 4) unless the runtime said IgnoreUnknown; DEL and GC skip
    it, since they work by container id alone.
    """
    pairs: dict[str, str] = {}
    broken = ""
    for piece in text.split(";"):
        key, equals, value = piece.partition("=")
        if equals:
            pairs[key] = value
        elif piece and not broken:
            broken = piece
    ignore = pairs.pop("IgnoreUnknown", "").lower() in ("1", "true")
    if broken and not ignore and command in ("ADD", "CHECK"):
        raise environment_error(f"CNI_ARGS: invalid pair {broken!r}")
    return pairs


def delegate_args(text: str) -> str:
    """Return CNI_ARGS for a delegate: with IgnoreUnknown=1 in front (ARG-14)."""
    return f"IgnoreUnknown=1;{text}" if text else "IgnoreUnknown=1"


def environment_error(msg: str, details: str = "") -> CNIError:
    """The error of a variable that is missing or cannot be used (code 4)."""
    return CNIError(Code.INVALID_ENVIRONMENT, msg, details)
