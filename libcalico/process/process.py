"""What every long-running process of ours does at its beginning and at its end."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Coroutine

from libcalico.process import tasks

PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4


def set_name(name: str) -> None:
    """The name that `ps` shows, such as `calico-felix`."""
    import setproctitle

    setproctitle.setproctitle(name)


def die_with_parent(signal_number: int = signal.SIGTERM, parent: int = 0) -> None:
    """Ask the kernel to signal this process when its parent dies (prctl(2)).

    The parent is the *thread* that started us. `parent`: the id of its process, by which one that
    was gone before this call is noticed; 0: not known.
    """
    parent = parent or os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_PDEATHSIG): {os.strerror(number)}")
    if os.getppid() != parent:
        os.kill(os.getpid(), signal_number)


def keep_secrets() -> None:
    """Keep this process's memory to itself: it holds passwords.

    No core dump, with any limits and any `core_pattern` of the kernel, and no other process
    of the same user may read its memory or environment without CAP_SYS_PTRACE (prctl(2),
    PR_SET_DUMPABLE; core(5)). Programs that it starts begin as usual again, without core dumps.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def run_until_signal(main: Coroutine[object, object, int | None]) -> int:
    """Run `main` in a fresh event loop until it returns or SIGTERM or SIGINT comes.

    A signal cancels `main`, which cleans up in its `finally`; the result is then 0. Else
    the result is what `main` returned (None is 0). Exceptions of `main` are raised.
    """

    async def supervise() -> int:
        task = tasks.start(main, "the process")
        stopped = False

        def stop() -> None:
            nonlocal stopped
            stopped = True
            task.cancel()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        try:
            return await task or 0
        except asyncio.CancelledError:
            if not stopped:
                raise
            return 0
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                with contextlib.suppress(RuntimeError):
                    loop.remove_signal_handler(number)

    return asyncio.run(supervise())
