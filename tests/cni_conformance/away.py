"""What calls say while the daemon is away: each call of a check once more, beside the served one.

The same build, environment and input, with a socket that does not exist and a queue of its own.
A refusal that the executable makes by itself is the same; a DEL is queued, whole; everything else
says truthfully that it is to be tried again. A check is so made with the daemon down, too, and
what it saw stands in the column of the table.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cni.socket import protocol
from tests.cni.executable import BASE, BUILDS, Build, Done, call, config

AS_UP, QUEUED = "as up", "queued"
VERBS = ("ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION")
VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
SINCE = {"CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}
AGAIN, UNAVAILABLE = 11, 50


@dataclass(frozen=True)
class Beside:
    """Makes the calls; `seen` gets the words for their answers."""

    build: Build
    seen: set[str]

    def __call__(
        self, plugin: str, env: Mapping[str, str], stdin: bytes
    ) -> Callable[[Done | None], None]:
        """Make a call; what is returned compares it with the served one (None: there is none).

        Both raise AssertionError for what no call may say without the daemon.
        """
        down = self._ask(plugin, env, stdin)
        return lambda up: self.seen.add(label(env.get("CNI_COMMAND", ""), down, up))

    def _ask(self, plugin: str, env: Mapping[str, str], stdin: bytes) -> Done:
        with tempfile.TemporaryDirectory() as folder:
            queue = Path(folder) / "calico" / "pending"
            places = {"CNI_CALICO_SOCKET": f"{folder}/none", "CNI_CALICO_PENDING": str(queue)}
            done = call(self.build.strict(plugin), {**env, **places}, stdin)
            records = sorted(queue.iterdir()) if queue.exists() else []
            contents = [each.read_bytes() for each in records]
        command = env.get("CNI_COMMAND", "")
        if command == "DEL" and done.status == 0:
            (content,) = contents
            record = protocol.decode_pending(content)
            told = {key: value for key, value in env.items() if key not in places}
            wanted = {key: value for key, value in told.items() if key.startswith("CNI_")}
            assert wanted.items() <= record.env.items(), record
            assert record.stdin.encode() == stdin, record
        else:
            assert contents == [], (done, contents)
        return done


def label(command: str, down: Done, up: Done | None) -> str:
    """The word of the table for an answer. AssertionError where it is none."""
    if command == "DEL" and down.status == 0:
        assert down.stdout == b"", down
        assert "DEL queued" in down.stderr, down
        return QUEUED
    if down.status == 0:
        assert command in ("VERSION", ""), (command, down)
        assert up is None or down.stdout == up.stdout, (down, up)
        return AS_UP
    error = down.error
    if up is not None and (up.status, up.stdout) == (down.status, down.stdout):
        return AS_UP
    assert error["code"] == (UNAVAILABLE if command == "STATUS" else AGAIN), (down, up)
    assert "does not answer" in error["msg"], down
    return f"code {error['code']}"


def of_verb(build: Build, command: str, versions: Sequence[str] = VERSIONS) -> set[str]:
    """What a verb says with the daemon away, at those of the versions that have it."""
    seen: set[str] = set()
    beside = Beside(build, seen)
    for version in (v for v in versions if v >= SINCE.get(command, "")):
        told = config(cniVersion=version)
        if command == "CHECK":
            told["prevResult"] = {"cniVersion": version, "interfaces": [], "ips": []}
        if command == "GC":
            told["cni.dev/valid-attachments"] = []
        env = BASE | {"CNI_COMMAND": command, "CNI_NETNS": ""}
        if command in ("ADD", "CHECK"):
            env |= {"CNI_NETNS": "/proc/self/ns/net", "CNI_NETNS_OVERRIDE": "1"}
        beside("calico", env, json.dumps(told).encode())(None)
    return seen


def of_verbs(verb: str) -> dict[str, set[str]]:
    """The same for both builds, of a verb of the checklist: `ALL` is each. AssertionError."""
    commands = VERBS if verb == "ALL" else (verb,)
    return {
        build.label: set().union(*(of_verb(build, command) for command in commands))
        for build in BUILDS
    }
