"""A reload is not lost when its signal interrupts a log line of ExaBGP's."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import io, os, signal, sys
from exabgp.reactor.interrupt import Signal
if sys.argv[1] == "quiet":
    from bgp.speaker.exabgp.upstream import signals
    signals.quiet()
from exabgp.environment import getenv
from exabgp.logger import log, option
log.init(getenv())

class Interrupted(io.RawIOBase):
    "The signal comes while a line is being written, as it does under load."
    def writable(self):
        return True
    def write(self, data):
        if self.armed:
            self.armed = False
            os.kill(os.getpid(), signal.SIGUSR1)
            for _ in range(1000): pass
        return len(data)

raw = Interrupted(); raw.armed = False
stream = io.TextIOWrapper(io.BufferedWriter(raw), write_through=True)
for handler in option.logger.handlers:
    handler.setStream(stream)
sys.stderr = stream
state = Signal()
state.mark_ready()
raw.armed = True
for number in range(3):
    try:
        log.critical(lambda: "a line of many, " * 2000, "processes")
    except RuntimeError:
        pass
print(state.received == Signal.RELOAD)
state.sigusr1(signal.SIGUSR1, None)
state.sigterm(signal.SIGTERM, None)
state.rearm()
taken = {state.received}
state.rearm()
print(Signal.SHUTDOWN in taken | {state.received})
"""


def run(how: str) -> list[str]:
    command = [sys.executable, "-c", SCRIPT, how]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_signal_in_the_middle_of_a_log_line_counts() -> None:
    """And one that comes while another one waits is taken after it."""
    assert run("quiet") == ["True", "True"]


def test_exabgp_itself_still_loses_it() -> None:
    """When this fails, a newer ExaBGP needs our patch no more."""
    assert run("plain")[0] == "False"
