"""The lab for an ordinary user: everything in one unshare(1), inside which the user is root.

A demo runs to its end in a world that dies with it. `lab up` must outlive its command, so its world
is held by a process (`lab.house`) and every later command enters it with nsenter(1); the last
`lab down` ends it. There is one such world per user. What a user namespace cannot do: cgroups,
device nodes, any other user id.

Invariant LAB-6: nothing of a rootless lab lies outside its world but the record of it, in a
directory that only the user can read.
Tested in tests/lab/test_rootless.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import proc
from lab.errors import LabError
from lab.machine import FAST_PYTHON, SYSTEM_PATH

HOUSE = Path(__file__).with_name("house.py")
LABS_INSIDE = "run/muslin-lab"
NOBODY = 65534
OBSTACLES = {
    "user/max_user_namespaces": "0",
    "kernel/unprivileged_userns_clone": "0",
    "kernel/apparmor_restrict_unprivileged_userns": "1",
}
UNSHARE = (
    *("unshare", "--user", "--map-root-user", "--net", "--mount", "--pid"),
    *("--fork", "--kill-child"),
)


@dataclass(frozen=True)
class House:
    """A running world: its first process, by the pid that we see."""

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        """Whether it is still this process."""
        return proc.start_time(self.pid) == self.started

    @property
    def empty(self) -> bool:
        """Whether no lab is inside."""
        return not Path(f"/proc/{self.pid}/root/{LABS_INSIDE}").exists()

    def command(self, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` inside, in the caller's directory."""
        enter = ["nsenter", "-t", str(self.pid), "--user", "--preserve-credentials"]
        return [*enter, "--net", "--mount", "--pid", "--", "env", "-C", os.getcwd(), *command]


def needed() -> bool:
    """Whether this user is an ordinary one."""
    return os.geteuid() != 0


def environment() -> dict[str, str]:
    """The environment inside: system programs in PATH, and the usual place of a lab's state."""
    inherited = {key: value for key, value in os.environ.items() if key != "MUSLIN_LAB_DIR"}
    return {**inherited, "PATH": f"{inherited.get('PATH', '')}:{SYSTEM_PATH}"}


def obstacles(read: Mapping[str, str]) -> list[str]:
    """The host's settings (`name -> value`) that forbid it. Pure."""
    names = [name for name, forbidding in OBSTACLES.items() if read.get(name) == forbidding]
    return [f"{name.replace('/', '.')} is {OBSTACLES[name]}" for name in names]


def settings() -> dict[str, str]:
    """The host's settings about user namespaces."""
    values = {}
    for name in OBSTACLES:
        with contextlib.suppress(OSError):
            values[name] = Path("/proc/sys", name).read_text().strip()
    return values


def refusal(said: str) -> LabError:
    """The error for a user whose host forbids it."""
    reasons = "; ".join(filter(None, [said.strip()[-300:], *obstacles(settings())]))
    return LabError(
        f"this host does not let an ordinary user make a lab ({reasons}). "
        "Run the same command as root, for instance with sudo"
    )


def build(command: Sequence[str], *, with_us: bool) -> tuple[subprocess.Popen[bytes], House]:
    """Make a world that runs `command`, or only exists; LabError when the host forbids it.

    `with_us`: it dies when this process dies, in any way.
    """
    reading, writing = os.pipe()
    prefix = ["setpriv", "--pdeathsig", "KILL"] if with_us else []
    with open(reading, closefd=True) as said, tempfile.TemporaryFile() as errors:
        running = subprocess.Popen(
            [*prefix, *UNSHARE, "--", *FAST_PYTHON, str(HOUSE), str(writing), *command],
            stdin=subprocess.DEVNULL,
            stdout=None if with_us else subprocess.DEVNULL,
            stderr=None if with_us else errors,
            env=environment(),
            pass_fds=(writing,),
            start_new_session=True,
        )
        os.close(writing)
        words = proc.first_line(running, said.fileno(), "the rootless world").decode().split()
        if words[:1] != ["ready"]:
            running.wait()
            errors.seek(0)
            raise refusal(" ".join(words) or errors.read().decode(errors="replace"))
    pid = int(words[1])
    started = proc.start_time(pid)
    if started is None:
        raise LabError("the rootless world ended at once")
    return running, House(pid, started)


def run(command: Sequence[str]) -> int:
    """Run a command in a world of its own, which ends with it; its exit code."""
    running, house = build(command, with_us=True)

    def pass_on(number: int, _: object) -> None:
        if house.alive:
            os.kill(house.pid, number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    return running.wait()


def as_nobody(command: Sequence[str]) -> None:
    """Become a user who owns nothing, and then the command: how root tries the rootless way."""
    ids = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    os.execvpe("setpriv", ["setpriv", *ids, "--", *command], {**environment(), "HOME": "/"})


def directory() -> Path:
    """The directory of this user's record, mode 0700; LabError when another user made it."""
    default = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    override = os.environ.get("MUSLIN_LAB_DIR")
    path = Path(override) if override else default / f"muslin-lab-{os.geteuid()}"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise LabError(f"{path} must be a directory of your own with mode 0700")
    return path


def find() -> House | None:
    """This user's world; None when there is none (any more)."""
    try:
        raw = json.loads((directory() / "house.json").read_text())
    except (FileNotFoundError, ValueError):
        return None
    house = House(raw["pid"], raw["started"])
    return house if house.alive else None


@contextlib.contextmanager
def locked(how: int) -> Iterator[bool]:
    """The user's lock: shared while labs come and go, exclusive to make or end the world."""
    with (directory() / "lock").open("w") as handle:
        try:
            fcntl.flock(handle, how)
        except BlockingIOError:
            yield False
        else:
            yield True


def ensure() -> House:
    """This user's world, made when there is none."""
    with locked(fcntl.LOCK_EX):
        house = find()
        if house is None:
            _, house = build([], with_us=False)
            record = {"pid": house.pid, "started": house.started}
            (directory() / "house.json").write_text(json.dumps(record))
        return house


def close_if_empty() -> None:
    """End the world when no lab is left in it and none is being made."""
    with locked(fcntl.LOCK_EX | fcntl.LOCK_NB) as mine:
        house = find() if mine else None
        if house is not None and house.empty:
            os.kill(house.pid, signal.SIGKILL)
            proc.wait_until(
                lambda: not house.alive, "the rootless world ends", timeout=proc.PATIENCE
            )
            (directory() / "house.json").unlink(missing_ok=True)


def lab_command(arguments: Sequence[str]) -> list[str]:
    """`./run lab` inside."""
    return [sys.executable, "-m", "lab", *arguments]


def up(arguments: Sequence[str]) -> int:
    """`lab up` of an ordinary user; its exit code."""
    return make(lab_command(arguments))


def make(command: Sequence[str]) -> int:
    """Run a command that makes a lab in this user's world; its exit code. The world stays."""
    while True:
        ensure()
        with locked(fcntl.LOCK_SH):
            house = find()
            if house is None:
                continue
            code = subprocess.call(house.command(command), env=environment())
        close_if_empty()
        return code


def enter(word: str, name: str, arguments: Sequence[str]) -> int:
    """Any other command of an ordinary user: inside, where there is an inside."""
    house = find()
    if house is None:
        if word != "down":
            raise LabError(f"no lab {name!r} is up: `lab up --lab {name}`")
        print(f"no lab {name!r}, nothing to do", file=sys.stderr)
        return 0
    command = house.command(lab_command(arguments))
    if word != "down":
        os.execvpe(command[0], command, environment())
    code = subprocess.call(command, env=environment())
    close_if_empty()
    return code
