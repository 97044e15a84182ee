"""`calico` and `calico-ipam` in Python: the twin of the C executable, for hosts without a compiler.

A container runtime starts this file under either name for every pod event. It must answer as
`cni/executable/` does, to the byte: the same checks in the same order, the same protocol, the
same queue. It needs the standard library alone and runs isolated (`python3 -IS`), so that
nothing in the host's environment or site packages can change what it does. It works on bytes,
as its sibling does: an environment need not be text.

Invariants (tests/cni/test_vectors.py and tests/cni/test_executable*.py run both):
  TWIN-1  A refusal is byte for byte the executable's; EXE-1 to EXE-4 hold.
  TWIN-2  Nothing is imported but the standard library, and what is heavy only where needed.
  TWIN-3  No traceback ever reaches the runtime: what is unexpected is a CNI error, code 999.

`cni.python_plugin.source` joins the parts to the one file that is installed.
"""

from __future__ import annotations

import os
import signal
import sys

from cni.python_plugin.call import (
    CALICO,
    ENVIRONMENT,
    INTERNAL,
    IO,
    RELEASE,
    VERSIONS,
    Call,
    Env,
    Failure,
    write_all,
)
from cni.python_plugin.checks import check_config, environment_fault, open_netns, peek_version
from cni.python_plugin.line import ask_daemon
from cni.python_plugin.text import quote, shortened


def main(arguments: list[bytes], env: Env, stdin: int = 0, stdout: int = 1, stderr: int = 2) -> int:
    """Serve one call and return its exit status. A descriptor that was closed is -1."""
    path = arguments[0] if arguments else b"calico"
    call = Call(path, env, stdin, stdout, stderr)
    try:
        if len(arguments) == 2 and arguments[1].startswith(b"-"):
            return answer_flag(call, arguments[1])
        return serve(call)
    except Failure as failure:
        return fail(call, failure)
    except MemoryError:
        return fail(call, Failure(INTERNAL, b"out of memory"))
    except Exception as error:  # noqa: BLE001 - the answer of a plugin, not a traceback
        return fail(call, Failure(INTERNAL, f"internal error: {type(error).__name__}"))
    finally:
        if call.netns >= 0:
            os.close(call.netns)


def serve(call: Call) -> int:
    """One call by its verb."""
    if not call.command:
        text = "CNI plugin %s v%s\nCNI protocol versions supported: %s\n"
        write_all(call.stderr, (text % (call.name.decode(), RELEASE, ", ".join(VERSIONS))).encode())
        return 0
    if call.command == b"VERSION":
        return answer_version(call)
    fault = environment_fault(call)
    if fault:
        peek_version(call)
        raise Failure(ENVIRONMENT, *fault)
    check_config(call)
    open_netns(call)
    if call.command == b"ADD" and call.stdout < 0:
        raise Failure(IO, b"stdout is closed: the result could not be reported")
    return ask_daemon(call)


def answer_flag(call: Call, flag: bytes) -> int:
    """`-v` and `--version`; any other lone flag is an error (CAL-33)."""
    if flag in (b"-v", b"--version"):
        call.print(RELEASE.encode() + b"\n")
        return 0
    raise Failure(CALICO, b"unknown flag", flag)


def answer_version(call: Call) -> int:
    """The versions that we speak (VER-01 to VER-05)."""
    if not peek_version(call):
        call.version = VERSIONS[-1].encode()
    versions = ",".join(f'"{known}"' for known in VERSIONS).encode()
    body = b'{"cniVersion":%s,"supportedVersions":[%s]}\n' % (quote(call.version), versions)
    return 0 if call.print(body) else 1


def fail(call: Call, failure: Failure) -> int:
    """Print the error object and one line on stderr (EXE-1)."""
    msg = bytes(max(byte, 0x20) for byte in shortened(failure.msg, 512))
    body = b'{"cniVersion":%s,"code":%d,"msg":%s' % (quote(call.version), failure.code, quote(msg))
    details = shortened(failure.details, 512)
    if details:
        body += b',"details":' + quote(details)
    call.print(body + b"}\n")
    write_all(call.stderr, b"%s: code %d: %s\n" % (call.name, failure.code, msg))
    return 1


def plugged(descriptor: int) -> int:
    """`descriptor`, or -1 when it was closed: then /dev/null stands there, so that no socket of
    ours becomes stdin (ENV-15)."""
    try:
        os.fstat(descriptor)
        return descriptor
    except OSError:
        opened = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        if opened != descriptor:
            os.dup2(opened, descriptor, inheritable=False)
            os.close(opened)
        return -1


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ends = [plugged(descriptor) for descriptor in range(3)]
    os._exit(main([os.fsencode(each) for each in sys.argv], dict(os.environb), *ends))
