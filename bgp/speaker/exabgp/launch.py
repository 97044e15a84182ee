"""Becomes ExaBGP: binds its life to the agent's, gives privileges away, runs it.

Run as `python -I launch.py PARENT UID ACTION CONFIGURATION [COMMANDS LINES]`. `ACTION` is `server`,
with the descriptors that it reads and writes, or `validate`.

- SIGKILL from the kernel when the agent dies (PR_SET_PDEATHSIG). It is set after the uid
  changes, because a change of credentials clears it.
- Its own uid with only CAP_NET_BIND_SERVICE. UID 0 keeps the uid (where no other uid is
  mapped, or ExaBGP's files cannot be read by others) and drops every other capability.
- No dump of its memory, which holds the keys of sessions, ever reaches a disk, and no other
  process of its user reads it.
- ExaBGP asks for the host's full name at every start and reload; where the resolver is silent
  that takes seconds of silence on every session, so the plain host name serves.
- What else ExaBGP does otherwise than we need is put right in `upstream`.

Standard library, ExaBGP and `bgp` only, which must be installed: `-I` ignores PYTHONPATH.
Tested in tests/bgp/test_exabgp.py.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Callable
from importlib import import_module

_PR_SET_DUMPABLE = 4
_PR_SET_PDEATHSIG, _PR_SET_KEEPCAPS, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 8, 24, 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAP_NET_BIND_SERVICE = 10
_LAST_CAP = 63
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def drop_privileges(uid: int) -> None:
    """Become `uid` (0: stay) with CAP_NET_BIND_SERVICE as the only capability.

    TCP_MD5SIG, IP_TTL and IP_MINTTL need none. Nothing is ambient: what ExaBGP would start has no
    capability at all. Raises `OSError` if the kernel refuses; the caller must not go on then.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.geteuid() != 0:
        return
    for capability in range(_LAST_CAP + 1):
        if capability != _CAP_NET_BIND_SERVICE:
            _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # EINVAL above the last one
    if uid:
        _libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    mask = 1 << _CAP_NET_BIND_SERVICE
    header = struct.pack("II", _CAPABILITY_VERSION_3, 0)
    data = struct.pack("IIIIII", mask, mask, 0, 0, 0, 0)
    if _libc.capset(header, data) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"capset: {os.strerror(number)}")
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)


def die_with(parent: int) -> None:
    """Be killed when `parent` dies; exit now if it already has. No memory for others to read."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def main() -> None:
    """Give up what is not needed, then run ExaBGP in this very process."""
    parent, uid, action, configuration = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:5]
    os.umask(0o077)
    drop_privileges(uid)
    die_with(parent)
    try:
        from setproctitle import setproctitle

        setproctitle("exabgp")
    except ImportError:
        pass
    exabgp = load(action, *map(int, sys.argv[5:]))
    socket.getfqdn = lambda name="": name or socket.gethostname()
    sys.argv = ["exabgp", configuration]
    sys.exit(exabgp())


def load(action: str, *descriptors: int) -> Callable[[], int | None]:
    """ExaBGP's program for this action, put right.

    What imports make stays to the end: looking for garbage in it is a tenth of the start.
    """
    gc.disable()
    from bgp.speaker.exabgp.upstream import unused

    with unused.left_out():
        from bgp.speaker.exabgp.upstream import agent_pipes, patches, signals

        program = import_module(f"exabgp.application.{action}")
    patches.apply()
    signals.quiet()
    if descriptors:
        agent_pipes.agent(*descriptors)
    gc.freeze()
    gc.enable()
    main: Callable[[], int | None] = program.main
    return main


if __name__ == "__main__":
    main()
