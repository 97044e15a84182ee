"""An event loop whose time and interleavings come from one seed.

Time passes only here: when nothing is ready the clock jumps to the next timer, and each turn takes
a few random microseconds. What is drawn by the seed is what a real machine leaves open: in which
order and how late descriptors are found readable, when a thread begins and when it is interrupted,
how long a turn takes. What asyncio promises (callbacks in the order of `call_soon`) is kept, for
code may rely on it.

There are no threads: what is meant for one runs at once, and at its system calls the rest of the
loop goes on for a while (`Threads`). So the same seed gives the same run.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import errno
import heapq
import selectors
import socket
import threading
from asyncio import format_helpers
from collections.abc import Callable, Iterable, Mapping
from contextvars import Context
from random import Random
from typing import Any, cast

SIMULATED = 1 << 20
"""Descriptors from here on are of the simulated kernel."""
LAZY = 0.2
"""How often a readable descriptor is found a turn later than it could be."""


class Clock:
    """Seconds since the simulation began, as `time.monotonic` tells them."""

    def __init__(self) -> None:
        self.now = 1000.0


class Selector(selectors.BaseSelector):
    """Waits for simulated descriptors, and for real ones (unix sockets inside this process).

    `readable`: which of these simulated descriptors are, by their owners. `stirred`: since the last
    look in vain another thread wrote to a real one, so that a look may find something.
    """

    def __init__(
        self, clock: Clock, chance: Random, readable: Callable[[Iterable[int]], list[int]]
    ) -> None:
        self._clock, self._chance, self._readable = clock, chance, readable
        self._real = selectors.DefaultSelector()
        self.stirred = True
        self._keys: dict[int, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        if fd < SIMULATED:
            self.stirred = True
            return self._real.register(fileobj, events, data)
        key = selectors.SelectorKey(fd, fd, events, data)
        self._keys[fd] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        if fd < SIMULATED:
            return self._real.unregister(fileobj)
        return self._keys.pop(fd)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        self.unregister(fileobj)
        return self.register(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {**cast("dict[Any, selectors.SelectorKey]", self._real.get_map()), **self._keys}

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        if isinstance(fileobj, int) and fileobj >= SIMULATED:
            return self._keys[fileobj]
        return self._real.get_key(fileobj)

    def close(self) -> None:
        self._real.close()
        self._keys.clear()

    def stir(self) -> None:
        """Somebody wrote to a real descriptor."""
        self.stirred = True

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready now; else time jumps to the next timer."""
        found = self._real.select(0) if self.stirred else []
        self.stirred = bool(found)
        if self._keys:
            found += [(self._keys[fd], selectors.EVENT_READ) for fd in self._readable(self._keys)]
        self._clock.now += self._chance.random() * 2e-4
        if not found:
            if timeout is None:
                raise RuntimeError("the simulation waits for what can never come")
            self._clock.now += max(0.0, timeout)
            return []
        if len(found) > 1:
            found.sort(key=lambda pair: pair[0].fd)
            self._chance.shuffle(found)
        if timeout == 0:
            # There is other work: some of it is found by the next look only.
            return [pair for pair in found if self._chance.random() >= LAZY]
        return found


class Threads:
    """Runs what is meant for threads, one at a time, in the middle of the loop's other work.

    At a system call (`pause`) the rest of the loop goes on for a few turns before the thread does.
    So a thread that began within another's pause ends before it; all else can happen.
    `late`: how many times longer than on an idle machine it takes until one begins and is heard of.
    """

    def __init__(self, loop: Loop, chance: Random) -> None:
        self._loop, self._chance = loop, chance
        self._inside = [False]
        self.pausing = 0.3
        self.late = 1.0

    def pause(self) -> None:
        """A system call: where a thread makes it, others may do something before it goes on."""
        if not self._inside[-1] or self._chance.random() >= self.pausing:
            return
        self._inside.append(False)
        try:
            for _ in range(self._chance.randint(1, 4)):
                self._loop.turn()
        finally:
            self._inside.pop()

    def start(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """The result of a function that a thread is to run."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._loop.call_later(self._chance.random() * 1e-3 * self.late, self._run, function, future)
        return future

    def _run(self, function: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            return
        self._inside.append(True)
        result, error = None, None
        try:
            result = function()
        except BaseException as problem:
            error = problem
        finally:
            self._inside.pop()
        self._loop.call_later(
            self._chance.random() * 2e-3 * self.late, _deliver, future, result, error
        )


def _deliver(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


class _Soon:
    """As `asyncio.Handle`, without what that does for asyncio's debug mode."""

    __slots__ = ("_args", "_callback", "_cancelled", "_context")

    def __init__(self, callback: Any, args: Any, context: Context | None) -> None:
        self._callback, self._args, self._cancelled = callback, args, False
        self._context = contextvars.copy_context() if context is None else context

    def cancel(self) -> None:
        """What was asked for is not done."""
        self._cancelled = True
        self._callback = self._args = None

    def cancelled(self) -> bool:
        """Whether it was."""
        return self._cancelled


class _Timer(float):
    """As `asyncio.TimerHandle`, and compared as the number that its time is.

    Several may have one time: their order is what a heap of them makes of `<`.
    """

    __slots__ = _Soon.__slots__
    cancel, cancelled = _Soon.cancel, _Soon.cancelled
    when = float.__float__


class Loop(asyncio.SelectorEventLoop):
    """See above. `hosts`: the unix socket that answers for a name."""

    def __init__(
        self, clock: Clock, chance: Random, readable: Callable[[Iterable[int]], list[int]]
    ) -> None:
        self._clock = clock
        self.selector = Selector(clock, chance, readable)
        super().__init__(self.selector)
        self.threads = Threads(self, chance)
        self.errors: list[str] = []
        self.hosts: dict[str, str] = {}
        self.programs: Callable[[tuple[str, ...], bytes], tuple[int, bytes, bytes]] | None = None
        self._chance = chance
        self.set_exception_handler(self._failed)

    def time(self) -> float:
        """Simulated seconds."""
        return self._clock.now

    def turn(self) -> None:
        """One turn within another: what is ready now, and what is due."""
        self._once(0.0)

    def _run_once(self) -> None:
        """One turn, as asyncio's own (base_events.py); but turns may be nested."""
        base: Any = self
        timeout: float | None = None
        if base._ready or base._stopping:
            timeout = 0.0
        elif base._scheduled:
            timeout = max(0.0, base._scheduled[0] - self._clock.now)
        self._once(timeout)

    def _once(self, timeout: float | None) -> None:
        base: Any = self
        found = self.selector.select(timeout)
        if found:
            base._process_events(found)
        now = self._clock.now + base._clock_resolution
        scheduled, ready = base._scheduled, base._ready
        while scheduled and scheduled[0] < now:
            handle = heapq.heappop(scheduled)
            if not handle._cancelled:
                ready.append(handle)
        for _ in range(len(ready)):
            if not ready:
                break  # a turn within this one was there before
            handle = ready.popleft()
            if handle._cancelled:
                continue
            try:
                handle._context.run(handle._callback, *handle._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self._broke(handle, error)

    def _broke(self, handle: Any, error: BaseException) -> None:
        what = format_helpers._format_callback_source(handle._callback, handle._args)
        told = {"message": f"Exception in callback {what}", "exception": error}
        self.call_exception_handler(told)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Any:
        """As asyncio's own, without what it does for its debug mode."""
        base: Any = self
        if base._closed:
            base._check_closed()
        handle = _Soon(callback, args, context)
        base._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> Any:
        """As asyncio's own."""
        return self.call_at(self._clock.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Any:
        """As asyncio's own, without what it does for its debug mode."""
        base: Any = self
        if base._closed:
            base._check_closed()
        timer: Any = _Timer(when)
        timer._callback, timer._args, timer._cancelled = callback, args, False
        timer._context = contextvars.copy_context() if context is None else context
        heapq.heappush(base._scheduled, timer)
        return timer

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """A thread of ours, whatever the executor."""
        context = contextvars.copy_context()
        return self.threads.start(lambda: context.run(func, *args))

    async def subprocess_exec(
        self, protocol_factory: Callable[[], Any], *arguments: Any, **_: Any
    ) -> tuple[Any, Any]:
        """A program of the simulated machine: it reads all of its input, then acts and ends."""
        protocol = protocol_factory()
        process = _Process(self, protocol, tuple(map(str, arguments)), self._chance)
        protocol.connection_made(process)
        return process, protocol

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        """Hosts of the simulation are unix sockets."""
        if host not in self.hosts:
            raise OSError(f"{host} is no host of the simulation")
        return [(socket.AF_UNIX, socket.SOCK_STREAM, 0, "", self.hosts[host])]

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Nobody is there but unix sockets."""
        if sock.family != socket.AF_UNIX:
            raise OSError(errno.ENETUNREACH, "no network (simulated)")
        await super().sock_connect(sock, address)

    async def create_server(self, *_: Any, **__: Any) -> Any:
        """Nobody asks for a health page here."""
        return _Deaf()

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, asyncio.CancelledError):
            return  # who waited was cancelled, too
        self.errors.append(f"{context.get('message')}: {error!r}")


class SecondLoop:
    """What a thread with an event loop of its own has: it is this one, told by another name."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ended = threading.Event()
        self._tasks: list[asyncio.Task[Any]] = []

    def create_task(self, work: Any, **named: Any) -> asyncio.Task[Any]:
        """A task of the one loop that there is."""
        task = self._loop.create_task(work, **named)
        self._tasks.append(task)
        return task

    def call_soon_threadsafe(self, act: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """As of the one loop; whoever stops this one waits for that, and so it is at once."""
        if act == self.stop:
            self.stop()
            return None
        return self._loop.call_soon(act, *arguments, **named)

    def run_forever(self) -> None:
        """The thread waits; its work is done elsewhere."""
        self._ended.wait()

    def stop(self) -> None:
        """What was begun here ends."""
        for task in self._tasks:
            task.cancel()
        self._ended.set()

    def get_debug(self) -> bool:
        """No."""
        return False

    def is_running(self) -> bool:
        """Until it is stopped."""
        return not self._ended.is_set()

    def close(self) -> None:
        """Nothing to give back."""


class _Deaf:
    """A server to which nobody connects."""

    class _Socket:
        def getsockname(self) -> tuple[str, int]:
            """A place."""
            return "127.0.0.1", 1

    sockets = (_Socket(),)

    def close(self) -> None:
        """Nothing to give back."""

    async def wait_closed(self) -> None:
        """Closed."""


class _Process(asyncio.SubprocessTransport):
    """A child that runs in no time once its input is closed, and is heard of a little later."""

    def __init__(
        self, loop: Loop, protocol: Any, arguments: tuple[str, ...], chance: Random
    ) -> None:
        super().__init__()
        self._loop, self._protocol, self._arguments = loop, protocol, arguments
        self._chance = chance
        self._code: int | None = None
        self._ended = asyncio.Event()
        self._input = _Input(self._go)
        program = arguments[0]
        if loop.programs is None:
            raise FileNotFoundError(program)

    def get_pid(self) -> int:
        return 4242

    def get_returncode(self) -> int | None:
        return self._code

    def get_pipe_transport(self, fd: int) -> Any:
        return self._input if fd == 0 else _Pipe()

    def close(self) -> None:
        self._input.close()

    def kill(self) -> None:
        self._code = -9
        self._ended.set()

    async def _wait(self) -> int | None:
        # What `asyncio.subprocess.Process.wait` asks of its transport.
        await self._ended.wait()
        return self._code

    def _go(self, data: bytes) -> None:
        self._loop.call_later(self._chance.random() * 5e-3, self._run, data)

    def _run(self, data: bytes) -> None:
        if self._code is not None:
            return
        assert self._loop.programs is not None
        code, out, err = self._loop.programs(self._arguments, data)
        self._loop.call_later(self._chance.random() * 3e-3, self._end, code, out, err)

    def _end(self, code: int, out: bytes, err: bytes) -> None:
        for fd, data in ((1, out), (2, err)):
            if data:
                self._protocol.pipe_data_received(fd, data)
            self._protocol.pipe_connection_lost(fd, None)
        self._protocol.pipe_connection_lost(0, None)
        self._code = code
        self._ended.set()
        self._protocol.process_exited()
        with contextlib.suppress(Exception):
            self._protocol.connection_lost(None)


class _Pipe(asyncio.ReadTransport):
    def close(self) -> None:
        """Nothing to give back."""

    def pause_reading(self) -> None:
        """All of it came at once."""

    def resume_reading(self) -> None:
        """All of it came at once."""


class _Input(asyncio.WriteTransport):
    def __init__(self, done: Callable[[bytes], None]) -> None:
        super().__init__()
        self._done, self._data, self._closed = done, bytearray(), False

    def write(self, data: Any) -> None:
        self._data += data

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._done(bytes(self._data))
