"""Delegate plugins (host-local, static, dhcp) for the twin: found in CNI_PATH, run on the host.

A delegate gets our environment with the `CNI_*` that the daemon says, its stdin from a pipe,
and our stderr. It dies with us, and is killed when its time is up.
Tested in tests/cni/test_executable_delegate.py.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable

from cni.python_plugin.call import (
    AGAIN,
    CONFIG,
    ENVIRONMENT,
    INTERNAL,
    OUTPUT_LIMIT,
    Call,
    Env,
    Failure,
)
from cni.python_plugin.text import is_text, number_of, quote, text_of


def exec_result(call: Call, message: dict[str, object]) -> bytes:
    """Run what an `exec` message asks for; the body of its answer."""
    plugin = text_of(message, "plugin").partition(b"\0")[0]
    limit = time.monotonic() + number_of(message, "timeout", 60)
    status, out, code, error = -1, b"", 0, b""
    env = delegate_environment(call.env, message.get("env"))
    try:
        if env is None:
            raise Failure(INTERNAL, b'cannot run plugin "%s": bad environment' % plugin)
        path = delegate_path(call, plugin)
        limit = min(limit, call.deadline)
        status, out = run_delegate(call, plugin, path, env, text_of(message, "stdin"), limit)
    except Failure as failure:
        code, error = failure.code, failure.msg[:1023]
    number = int(number_of(message, "id", 0))
    return b'{"type":"exec_result","id":%d,"status":%d,"stdout":%s,"code":%d,"error":%s}' % (
        number,
        status,
        quote(out),
        code,
        quote(error),
    )


def delegate_environment(own: Env, given: object) -> Env | None:
    """Our environment with every CNI_* replaced; None when it cannot be."""
    if not isinstance(given, dict):
        return None
    made = {name: value for name, value in own.items() if name and not name.startswith(b"CNI_")}
    for key, value in given.items():
        if not is_text(value) or "\0" in key + value or not key or "=" in key:
            return None
        made[key.encode()] = value.encode()
    return made


def delegate_path(call: Call, plugin: bytes) -> bytes:
    """Where the delegate is: the first executable regular file in CNI_PATH. Raises Failure."""
    import stat

    if plugin in (b"", b".", b"..", b"calico") or b"/" in plugin or b"\\" in plugin:
        raise Failure(CONFIG, b'invalid plugin type "%s"' % plugin)
    search = call.get(b"CNI_PATH")
    if not search:
        raise Failure(ENVIRONMENT, b"required env variables [CNI_PATH] missing")
    for folder in filter(None, search.split(b":")):
        path = folder + b"/" + plugin
        try:
            if stat.S_ISREG(os.stat(path).st_mode) and os.access(path, os.X_OK):
                return path
        except OSError:
            continue
    raise Failure(INTERNAL, b'failed to find plugin "%s" in path [%s]' % (plugin, search))


def run_delegate(
    call: Call, plugin: bytes, path: bytes, env: Env, given: bytes, limit: float
) -> tuple[int, bytes]:
    """Exit status (128 + signal for one that was killed by one) and stdout. Raises Failure."""
    die_with_parent, parent = _parent_death(), os.getpid()
    reading, feed = os.pipe()
    gather, writing = os.pipe()
    report, error_pipe = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            die_with_parent()
            if os.getppid() != parent:
                os._exit(127)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            os.dup2(reading, 0)
            os.dup2(writing, 1)
            if call.stderr not in (-1, 2):
                os.dup2(call.stderr, 2)
            os.execve(path, [path], env)
        except OSError as error:
            os.write(error_pipe, b"%d" % (error.errno or 0))
        finally:
            os._exit(127)
    for descriptor in (reading, writing, error_pipe):
        os.close(descriptor)
    out = bytearray()
    try:
        ended = _talk(feed, gather, given, out, limit)
        status = _wait(child, limit) if ended else None
        if status is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            large = len(out) > OUTPUT_LIMIT
            why = b"it printed more than 1 MiB" if large else b"its time was up"
            msg = b'plugin "%s" was killed: %s' % (plugin, why)
            raise Failure(INTERNAL if large else AGAIN, msg)
        problem = os.read(report, 16)
        if problem:
            why = os.strerror(int(problem)).encode()
            raise Failure(INTERNAL, b'cannot run plugin "%s": %s' % (plugin, why))
        return status, bytes(out)
    finally:
        os.close(gather)
        os.close(report)


def _parent_death() -> Callable[[], object]:
    """A function for the child that makes it die with us (PR_SET_PDEATHSIG)."""
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        # A Python without ctypes: the delegate still ends when its time is up.
        return lambda: None
    return lambda: prctl(1, signal.SIGKILL)


def _talk(feed: int, gather: int, given: bytes, out: bytearray, limit: float) -> bool:
    """Feed stdin and gather stdout until the delegate closes it; False when it is to die."""
    os.set_blocking(feed, False)
    view = memoryview(given)
    poll = select.poll()
    poll.register(gather, select.POLLIN)
    poll.register(feed, select.POLLOUT)
    open_feed = True
    try:
        while len(out) <= OUTPUT_LIMIT:
            if open_feed and not view:
                poll.unregister(feed)
                os.close(feed)
                open_feed = False
            ready = poll.poll(1000 * max(0.0, limit - time.monotonic()))
            if not ready:
                return False
            for descriptor, _ in ready:
                if descriptor == gather:
                    chunk = os.read(gather, 16384)
                    if not chunk:
                        return True
                    out += chunk
                else:
                    try:
                        view = view[os.write(feed, view) :]
                    except BlockingIOError:
                        pass
                    except OSError:
                        view = memoryview(b"")  # it reads no further, which is its right
        return False
    finally:
        if open_feed:
            os.close(feed)


def _wait(child: int, limit: float) -> int | None:
    """The exit status, or None when the time is up first."""
    pause = 0.0001
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if time.monotonic() >= limit:
            return None
        time.sleep(pause)
        pause = min(2 * pause, 0.01)
