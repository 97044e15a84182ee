"""The checks that need no daemon, in the order that the conformance list gives (ENV-28).

The daemon repeats them in `cni/request/request.py`; `cni/vectors/` is the one table for all.
Tested in tests/cni/test_vectors.py.
"""

from __future__ import annotations

import errno
import os
import re

from cni.python_plugin.call import (
    CONFIG,
    DECODING,
    ENVIRONMENT,
    FRAME_LIMIT,
    INCOMPATIBLE,
    INTERNAL,
    IO,
    OWN_NETNS,
    PEEK,
    UNKNOWN,
    VERSIONS,
    Call,
    Failure,
    read_stdin,
    words,
)
from cni.python_plugin.text import NotJSON, as_object, checked, is_text, loads, shortened


def learn_version(call: Call, value: object) -> None:
    """Keep the version for error objects, when it is a short string (ERR-02, CFG-05)."""
    if value is None or (is_text(value) and value == ""):
        call.version = b"0.2.0"
    elif is_text(value) and len(value.encode()) < 65 and "\0" not in value:
        call.version = value.encode()


def peek_version(call: Call) -> bool:
    """For answers that do not depend on stdin: learn its cniVersion if it is there at once."""
    data, _ = read_stdin(call, min(call.start + PEEK, call.deadline))
    try:
        value = as_object(data).get("cniVersion")
    except NotJSON:
        return False
    learn_version(call, value)
    return value is not None and value != ""


NAME = re.compile(rb"[a-zA-Z0-9][a-zA-Z0-9_.\-]*")
# What is white space to the reference library (Unicode White_Space).
BLANK = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
REQUIRED: dict[bytes, tuple[bytes, ...]] = {
    b"ADD": (b"CNI_CONTAINERID", b"CNI_NETNS", b"CNI_IFNAME"),
    b"CHECK": (b"CNI_CONTAINERID", b"CNI_NETNS", b"CNI_IFNAME"),
    b"DEL": (b"CNI_CONTAINERID", b"CNI_IFNAME"),
    b"GC": (b"CNI_PATH",),
}
SINCE = {b"CHECK": (0, 4, 0), b"GC": (1, 1, 0), b"STATUS": (1, 1, 0)}
VERSION_TEXT = re.compile(rb"([+-]?[0-9]{1,6})(?:\.([+-]?[0-9]{1,6}))?(?:\.([+-]?[0-9]{1,6}))?")


def environment_fault(call: Call) -> tuple[bytes, bytes] | None:
    """What is wrong with the environment (message, details), or None."""
    required = REQUIRED.get(call.command, ())
    missing = [name for name in required if not call.get(name)]
    if missing:
        return b"required env variables [" + b",".join(missing) + b"] missing", b""
    if b"CNI_CONTAINERID" in required:
        if not NAME.fullmatch(call.get(b"CNI_CONTAINERID")):
            return b"invalid characters in containerID", call.get(b"CNI_CONTAINERID")
        ifname = call.get(b"CNI_IFNAME")
        if len(ifname) > 15:
            return (
                b"interface name is too long",
                b"interface name should be less than 16 characters",
            )
        if ifname in (b".", b".."):
            return b"interface name is . or ..", b""
        if any(char in "/:" + BLANK for char in ifname.decode("utf-8", "surrogateescape")):
            return b"interface name contains / or : or whitespace characters", b""
    for name, value in call.env.items():
        if name.startswith(b"CNI_"):
            try:
                (name + b"=" + value).decode()
            except UnicodeDecodeError:
                return (name + b" is not valid UTF-8")[:191], b""
    return None


def check_config(call: Call) -> None:
    """Read the configuration and check it in the order of EXE-2."""
    data, problem = read_stdin(call, call.deadline)
    prefix = b"error unmarshall network config: "
    if problem:
        raise Failure(IO, b"error reading from stdin: " + words(problem))
    if len(data) > FRAME_LIMIT:
        raise Failure(DECODING, prefix + b"larger than 2 MiB")
    try:
        start, end = checked(data)
    except NotJSON as error:
        where = b"%s at byte %d" % (error.args[0].encode(), error.args[1])
        raise Failure(DECODING, prefix + where) from error
    call.config = data[start:end]
    if not call.config.startswith(b"{"):
        raise Failure(DECODING, prefix + b"not a JSON object")
    document = loads(call.config)
    assert isinstance(document, dict)
    version, name = document.get("cniVersion"), document.get("name")
    learn_version(call, version)
    if name is not None and not is_text(name):
        raise Failure(DECODING, prefix + b"name is not a string")
    call.network = (name or "").encode()
    if not call.network:
        raise Failure(CONFIG, b"missing network name")
    if not NAME.fullmatch(call.network):
        raise Failure(CONFIG, b"invalid characters found in network name", call.network)
    if call.command not in (b"ADD", b"DEL", b"CHECK", b"GC", b"STATUS"):
        raise Failure(ENVIRONMENT, b"unknown CNI_COMMAND: " + call.command)
    if version is not None and not is_text(version):
        raise Failure(DECODING, prefix + b"cniVersion is not a string")
    check_version(call.command, (version or "0.1.0").encode())
    if call.command != b"DEL":
        check_types(document)


def check_version(command: bytes, version: bytes) -> None:
    """Check that we speak the version, and that it knows the command (VER-06 to VER-11)."""
    since = SINCE.get(command)
    if since is not None:
        match = VERSION_TEXT.fullmatch(version)
        if match is None:
            raise Failure(DECODING, b"cniVersion is not a version", version)
        if tuple(max(0, int(part or 0)) for part in match.groups()) < since:
            raise Failure(INCOMPATIBLE, b"config version does not allow " + command)
    if version not in [known.encode() for known in VERSIONS]:
        supported = " ".join(f'"{known}"' for known in VERSIONS).encode()
        details = b'config is "%s", plugin supports [%s]'
        # The executable has C strings here: they end at a NUL.
        shown = shortened(version, 256).partition(b"\0")[0]
        raise Failure(INCOMPATIBLE, b"incompatible CNI versions", details % (shown, supported))


def check_types(document: dict[str, object]) -> None:
    """Refuse a whole conflist, and plugin types with a slash (CFG-20, DLG-01)."""
    if isinstance(document.get("plugins"), list):
        raise Failure(
            CONFIG,
            b"stdin holds a whole network list (it has plugins); a plugin gets one plugin's object",
        )
    ipam = document.get("ipam")
    inner = ipam.get("type") if isinstance(ipam, dict) else None
    for where, value in ((b"type", document.get("type")), (b"ipam.type", inner)):
        if is_text(value) and ("/" in value or "\\" in value):
            msg = b"invalid network configuration: " + where + b" contains a slash"
            raise Failure(CONFIG, msg, value.encode())


def is_netns(descriptor: int) -> bool:
    """Whether a descriptor is a network namespace (one file system holds all namespaces)."""
    import fcntl

    try:
        if os.fstat(descriptor).st_dev != os.stat("/proc/self/ns/net").st_dev:
            return False
    except OSError:
        return False
    try:
        return fcntl.ioctl(descriptor, 0xB703) == 0x40000000
    except OSError as problem:
        # An emulated kernel may not know the kind; the daemon, which enters it, does.
        return problem.errno in (25, 38)


def open_netns(call: Call) -> None:
    """Open the pod's network namespace, which the daemon never does by path (ENV-23)."""
    path = call.get(b"CNI_NETNS")
    if call.command not in (b"ADD", b"CHECK", b"DEL") or call.name != b"calico" or not path:
        return
    problem = 0
    try:
        call.netns = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        problem = error.errno or 0
    absent = problem in (errno.ENOENT, errno.ENOTDIR, errno.ESRCH)
    good = call.netns >= 0 and is_netns(call.netns)
    if not good and (call.command == b"DEL" or (absent and call.command == b"CHECK")):
        # The daemon knows what is left of the container.
        if call.netns >= 0:
            os.close(call.netns)
        call.netns = -1
        return
    if absent:
        raise Failure(UNKNOWN, b"the network namespace of CNI_NETNS does not exist", path)
    if problem in (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE):
        why = os.strerror(problem).encode()
        raise Failure(INTERNAL, b"failed to open netns " + path + b": " + why)
    if not good:
        raise Failure(ENVIRONMENT, b"CNI_NETNS is not a network namespace", path)
    override = call.get(b"CNI_NETNS_OVERRIDE")
    if override != b"1" and override.lower() != b"true":
        ours, theirs = os.stat("/proc/self/ns/net"), os.fstat(call.netns)
        if (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino):
            raise Failure(
                OWN_NETNS, b"plugin's netns and netns from CNI_NETNS should not be the same"
            )
