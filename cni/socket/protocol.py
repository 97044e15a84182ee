"""Messages of `cni.sock`, protocol v1: what the executable and the daemon tell each other.

The executable `calico` lives a few milliseconds on the host, in the runtime's namespaces;
the daemon `calico-cni` lives long, perhaps in a container. Only the executable may open
`CNI_NETNS` (another process-id or mount namespace resolves the path to another pod) and run
delegate plugins (they keep state on the host's disk). So it carries both, and nothing else.

A frame is a 4-byte big-endian length and that many bytes of JSON, at most `MAX_FRAME`.

1. Both sides send `Hello` as their first frame; neither waits for the other's. A daemon that
   reads another `version` answers nothing and closes; the executable then reports code 11.
2. The executable sends one `Request`. With `has_netns` the descriptor of the pod's network
   namespace travels by SCM_RIGHTS with the first byte of that frame, or of the `Hello` that was
   sent with it in one (as executables do, so that the daemon wakes once).
3. The daemon answers `Result`; before it, any number of `Exec`, one at a time, each answered
   by one `ExecResult`.
4. When the executable cannot write the result to its stdout it sends `Undelivered`: the
   daemon undoes an ADD. When the executable dies (the runtime kills it) the socket closes:
   before `Result` was sent the daemon undoes an ADD too.

Invariant PROTO-1: the protocol is never changed incompatibly. Fields are only added, optional;
message types that a side does not know are ignored. See `docs/cni-protocol.md`.

A DEL that cannot reach the daemon is queued on disk as one `PendingDelete` in one file of
`libcalico.process.paths.CNI_PENDING`, named by `pending_name`, and the runtime gets success
(DEL-14). The file appears by link(2), complete and synced; names that start with "." are
unfinished and ignored (the daemon may remove those older than a minute). The daemon replays
every file at its start, before it serves requests, and again when it finds new ones: it
treats `env` and `stdin` as a request without a namespace, and unlinks the file once the DEL
is done. Files hold the whole configuration, so they are 0600 in a 0700 directory.

Tested in `tests/cni/test_protocol.py` and against the real executable in
`tests/cni/test_executable_daemon.py`.
"""

from __future__ import annotations

import hashlib
import struct
from functools import lru_cache

import msgspec

from libcalico.errors import NO_DOCUMENT

VERSION = 1
MAX_FRAME = 2 * 1024 * 1024
HEADER = struct.Struct(">I")


class ProtocolError(Exception):
    """The other side broke the protocol: a frame too large, not JSON, or cut short."""


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """First frame of either side. `process` is `executable` or `daemon`, `release` for logs."""

    process: str
    version: int = VERSION
    release: str = ""
    features: list[str] = []


class Request(msgspec.Struct, tag="request", frozen=True):
    """One call of the plugin.

    `argv0` is the base name the executable was called by: `calico` or `calico-ipam`. `env`
    holds every `CNI_*` variable, `stdin` the configuration as it came (checked: UTF-8, valid
    JSON, an object). `deadline` is in seconds from now: after it the executable has given up.
    """

    argv0: str
    env: dict[str, str]
    stdin: str
    deadline: float
    has_netns: bool = False


class Exec(msgspec.Struct, tag="exec", frozen=True):
    """Run a delegate plugin on the host.

    `plugin` is a bare type such as `host-local`, looked up in the caller's `CNI_PATH`. `env`
    holds all `CNI_*` variables that the delegate sees; the rest of its environment is the
    executable's own. Its stderr goes to the executable's. After `timeout` seconds (and never
    later than the executable's own deadline) it is killed.
    """

    plugin: str
    env: dict[str, str]
    stdin: str
    id: int = 0
    timeout: float = 60.0


class ExecResult(msgspec.Struct, tag="exec_result", frozen=True):
    """How the delegate ended: exit `status` and `stdout`.

    `status` is 128 + signal number for one that was killed. When it could not be started or
    ran out of time, `status` is -1 and `code`, `error` are the CNI error to report.
    """

    status: int
    stdout: str = ""
    id: int = 0
    code: int = 0
    error: str = ""


class Result(msgspec.Struct, tag="result", frozen=True):
    """The end: what the executable prints on `stdout` (and `stderr`), and its `exit` status.

    `exit` is 0 or 1. `stdout` is one JSON object (a result or an error object) or, for a
    success of DEL, CHECK, GC and STATUS, empty.
    """

    exit: int
    stdout: str = ""
    stderr: str = ""


class Undelivered(msgspec.Struct, tag="undelivered", frozen=True):
    """The result could not be written to stdout: an ADD has to be undone."""

    reason: str = ""


Message = Hello | Request | Exec | ExecResult | Result | Undelivered


_KNOWN = {"hello", "request", "exec", "exec_result", "result", "undelivered"}


class _Tagged(msgspec.Struct):
    """Only the tag, to tell a message of a later release from a malformed one."""

    type: str


class PendingDelete(msgspec.Struct, frozen=True):
    """The content of one file of the queue of DELs; `time` is Unix seconds of the call."""

    version: int
    argv0: str
    env: dict[str, str]
    stdin: str
    time: int


@lru_cache(maxsize=256)
def pending_name(argv0: str, network: str, container_id: str, ifname: str) -> str:
    """Return the file name of a queued DEL: one file per plugin name and attachment."""
    key = "\0".join((argv0, network, container_id, ifname))
    return hashlib.sha256(key.encode()).hexdigest() + ".json"


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
_tag = msgspec.json.Decoder(_Tagged)
_pending: msgspec.json.Decoder[PendingDelete] = msgspec.json.Decoder(PendingDelete)


def encode_frame(message: Message) -> bytes:
    """Return the frame of `message`; raises ProtocolError when it exceeds MAX_FRAME."""
    body = _encoder.encode(message)
    if len(body) > MAX_FRAME:
        raise ProtocolError(f"a frame of {len(body)} bytes exceeds the limit of {MAX_FRAME}")
    return HEADER.pack(len(body)) + body


def decode_body(body: bytes | bytearray | memoryview) -> Message | None:
    """Return the message of one frame's body, or None for a type that this release does not know.

    Raises ProtocolError when the body is not a message at all.
    """
    try:
        return _decoder.decode(body)
    except msgspec.ValidationError as error:
        if _is_unknown(body):
            return None
        raise ProtocolError(f"not a message of cni.sock: {error}") from error
    except NO_DOCUMENT as error:
        raise ProtocolError(f"a frame is not JSON: {error}") from error


def _is_unknown(body: bytes | bytearray | memoryview) -> bool:
    try:
        return _tag.decode(body).type not in _KNOWN
    except NO_DOCUMENT:
        return False


def decode_pending(data: bytes) -> PendingDelete:
    """Return the queued DEL of one file; raises ProtocolError when it is not one."""
    try:
        return _pending.decode(data)
    except NO_DOCUMENT as error:
        raise ProtocolError(f"not a queued DEL: {error}") from error


def take_frame(buffer: bytearray) -> bytearray | None:
    """Cut the first complete frame's body off `buffer`, or return None when more must come.

    Raises ProtocolError as soon as the header announces more than MAX_FRAME.
    """
    if len(buffer) < HEADER.size:
        return None
    (length,) = HEADER.unpack_from(buffer)
    if length > MAX_FRAME:
        raise ProtocolError(f"a frame of {length} bytes exceeds the limit of {MAX_FRAME}")
    end = HEADER.size + length
    if len(buffer) < end:
        return None
    body = buffer[HEADER.size : end]
    del buffer[:end]
    return body
