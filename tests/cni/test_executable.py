"""The executable alone: no daemon, no network namespace of a pod, whatever its surroundings.

Expectations: it answers VERSION and every fault of the input by itself, and survives closed
descriptors, slow or missing stdin, hostile environments, a directory in the place of stdin.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from cni.request.result import SUPPORTED_VERSIONS
from tests.cni.executable import (
    BASE,
    CONFIG,
    Build,
    Done,
    away_from_daemon,
    call,
    config,
    plugin,
)
from tests.support.patience import HANG


@pytest.fixture
def away(tmp_path: Path) -> dict[str, str]:
    return away_from_daemon(tmp_path)


# VERSION and the flags


@pytest.mark.parametrize("name", ["calico", "calico-ipam"])
@pytest.mark.parametrize("version", SUPPORTED_VERSIONS)
def test_version_echoes_what_was_asked(exe: Build, name: str, version: str) -> None:
    done = call(exe.plugin(name), {"CNI_COMMAND": "VERSION"}, {"cniVersion": version})
    assert done.status == 0
    assert json.loads(done.stdout) == {
        "cniVersion": version,
        "supportedVersions": list(SUPPORTED_VERSIONS),
    }


@pytest.mark.parametrize("stdin", [b"", b"{", b"[]", b'{"cniVersion":5}', b'{"name":"x"}', b"\xff"])
def test_version_without_a_readable_version_is_our_newest(exe: Build, stdin: bytes) -> None:
    dummies = {"CNI_NETNS": "dummy", "CNI_IFNAME": "dummy", "CNI_PATH": "dummy"}
    done = call(exe.plugin(), {"CNI_COMMAND": "VERSION"} | dummies, stdin)
    assert (done.status, json.loads(done.stdout)["cniVersion"]) == (0, "1.1.0")


@pytest.mark.parametrize("written", [b"", b'{"cniVersion":"0.4.0"}'])
def test_version_does_not_wait_for_a_silent_stdin(exe: Build, written: bytes) -> None:
    reading, writing = os.pipe()
    os.write(writing, written)
    started = time.monotonic()
    done = subprocess.run(
        [exe.plugin()],
        stdin=reading,
        env={"CNI_COMMAND": "VERSION"},
        capture_output=True,
        timeout=HANG,
        check=True,
    )
    assert 0.2 < time.monotonic() - started < HANG
    expected = "0.4.0" if written else "1.1.0"
    assert json.loads(done.stdout)["cniVersion"] == expected
    os.close(reading)
    os.close(writing)


def test_version_is_quick(exe: Build) -> None:
    """TIM-01: an answer costs no more than some starts of a program that does nothing.

    Both in turns, in processor time of the children, so that neighbours do not count. The program
    is static and needs less than /bin/true; the twin is Python and is held against Python.
    """
    nothing = [sys.executable, "-S", "-c", ""] if exe.is_twin else ["/bin/true"]
    answers, starts, plugin = [], [], exe.plugin()
    for _ in range(15 if exe.is_twin else 60):
        begun = children_time()
        call(plugin, {"CNI_COMMAND": "VERSION"}, {"cniVersion": "1.0.0"})
        answered = children_time()
        subprocess.run(nothing, check=True)
        answers.append(answered - begun)
        starts.append(children_time() - answered)
    assert sum(answers) < (8 if exe.is_twin else 2) * sum(starts)


def children_time() -> float:
    """Processor seconds of the processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_version_needs_no_privileges(exe: Build, tmp_path: Path) -> None:
    done = call(exe.plugin(), {"CNI_COMMAND": "VERSION"}, user=65534, group=65534, extra_groups=[])
    assert done.status == 0


def test_no_command_prints_about_on_stderr(exe: Build) -> None:
    for env in ({}, {"CNI_COMMAND": ""}):
        done = call(exe.plugin(), env)
        assert (done.status, done.stdout) == (0, b"")
        assert "CNI plugin calico v" in done.stderr
        assert f"CNI protocol versions supported: {', '.join(SUPPORTED_VERSIONS)}" in done.stderr


def test_flags_and_ignored_arguments(exe: Build) -> None:
    from importlib.metadata import version

    def run(*arguments: str, env: dict[str, str] | None = None) -> Done:
        done = subprocess.run(
            [exe.plugin(), *arguments], env=env or {}, input=b"", capture_output=True, check=False
        )
        return Done(done.returncode, done.stdout, done.stderr.decode())

    assert run("-v") == run("--version") == Done(0, f"{version('muslin')}\n".encode(), "")
    assert run("-x").error["code"] == 100
    answer = run("foo", "bar", env={"CNI_COMMAND": "VERSION"})
    assert (answer.status, json.loads(answer.stdout)["cniVersion"]) == (0, "1.1.0")


# The namespace


def test_missing_and_wrong_namespaces(exe: Build, away: dict[str, str], tmp_path: Path) -> None:
    plain, fifo = tmp_path / "plain", tmp_path / "fifo"
    plain.write_text("")
    os.mkfifo(fifo)
    cases = {
        str(tmp_path / "gone"): 3,
        str(plain / "below"): 3,
        "/proc/999999999/ns/net": 3,
        str(plain): 4,
        str(fifo): 4,
        str(tmp_path): 4,
        "/proc/self/ns/mnt": 4,
        "x" * 5000: 4,
        "/proc/self/ns/net": 8,
    }
    for path, code in cases.items():
        for command in ("ADD", "CHECK"):
            done = call(exe.hasty(), away | {"CNI_COMMAND": command, "CNI_NETNS": path}, CONFIG)
            # Whether something is still held only the daemon knows, and 3 says: nothing (ERR-06).
            expected = 11 if command == "CHECK" and code == 3 else code
            assert done.error["code"] == expected, (path[:80], done)
        if code != 8:
            env = away | {"CNI_COMMAND": "DEL", "CNI_NETNS": path}
            assert call(exe.hasty("calico"), env, CONFIG).status == 0
    env = away | {"CNI_COMMAND": "DEL", "CNI_NETNS": "/proc/self/ns/net"}
    assert call(exe.plugin(), env, CONFIG).error["code"] == 8


def test_own_namespace_is_allowed_when_overridden(exe: Build, away: dict[str, str]) -> None:
    own = away | {"CNI_NETNS": "/proc/self/ns/net"}
    for value, code in [("1", 11), ("TRUE", 11), ("true", 11), ("0", 8), ("yes", 8)]:
        done = call(exe.hasty("calico"), own | {"CNI_NETNS_OVERRIDE": value}, CONFIG)
        assert done.error["code"] == code, value


def test_the_ipam_plugin_opens_no_namespace(exe: Build, away: dict[str, str]) -> None:
    env = away | {"CNI_NETNS": "b", "CNI_IFNAME": "c", "CNI_PATH": "d"}
    assert call(exe.hasty("calico-ipam"), env, CONFIG).error["code"] == 11


# The order of the checks (ENV-28)

FAULTS: list[tuple[int, dict[str, str], dict[str, Any] | str]] = [
    (4, {"CNI_IFNAME": "a/b"}, {}),
    (6, {}, "{"),
    (7, {}, {"name": "-bad"}),
    (4, {"CNI_COMMAND": "NOPE"}, {}),
    (1, {}, {"cniVersion": "9.9.9"}),
    (3, {"CNI_NETNS": "/nonexistent/namespace"}, {}),
]


def test_of_two_faults_the_earlier_is_reported(exe: Build, away: dict[str, str]) -> None:
    for (first, second), code in [(pair, pair[0][0]) for pair in combinations(FAULTS, 2)]:
        env = away | second[1] | first[1]
        if env["CNI_COMMAND"] == "NOPE" and "a/b" in env["CNI_IFNAME"]:
            continue  # an unknown command requires nothing, so nothing else is wrong
        if isinstance(first[2], str) or isinstance(second[2], str):
            stdin: Any = "{"
        else:
            stdin = CONFIG | second[2] | first[2]
        assert call(exe.plugin(), env, stdin).error["code"] == code, (first, second)


# Surroundings


def test_stdin_of_a_mebibyte_in_small_pieces(exe: Build, away: dict[str, str]) -> None:
    body = json.dumps(config(args={"cni": {"labels": "x" * 2**20}}, cniVersion="9.9.9")).encode()
    with subprocess.Popen(
        [exe.plugin()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=BASE, bufsize=0
    ) as process:
        assert process.stdin is not None
        for byte in body[:2000]:
            process.stdin.write(bytes([byte]))
        for at in range(2000, len(body), 4093):
            process.stdin.write(body[at : at + 4093])
        stdout, _ = process.communicate(timeout=HANG)
    assert json.loads(stdout)["code"] == 1


def test_stdin_that_cannot_be_read(exe: Build, away: dict[str, str]) -> None:
    directory = os.open("/", os.O_RDONLY)
    closed = ["sh", "-c", 'exec "$0" <&-', str(exe.plugin())]
    for command, options in [([str(exe.plugin())], {"stdin": directory}), (closed, {})]:
        if exe.is_twin and options:
            continue  # the interpreter itself refuses such a stdin, before it reads any script
        done = subprocess.run(command, env=BASE, capture_output=True, check=False, **options)  # type: ignore[call-overload]
        error = Done(done.returncode, done.stdout, "").error
        assert error["code"] == 5
        assert error["msg"].startswith("error reading from stdin: ")
    os.close(directory)


def test_stdin_that_never_ends_ends_at_our_deadline(exe: Build, away: dict[str, str]) -> None:
    reading, writing = os.pipe()
    done = subprocess.run(
        [exe.short("calico")],
        stdin=reading,
        env=BASE,
        capture_output=True,
        timeout=HANG,
        check=False,
    )
    assert Done(done.returncode, done.stdout, "").error["code"] == 5
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("redirect", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-", "2>&- 9>&1"])
def test_closed_descriptors_do_no_harm(exe: Build, redirect: str, away: dict[str, str]) -> None:
    for executable in (exe.hasty("calico"), exe.strict()):
        done = subprocess.run(
            ["sh", "-c", f'exec "$0" {redirect}', str(executable)],
            input=json.dumps(CONFIG).encode(),
            env=away | {"CNI_NETNS_OVERRIDE": "1", "CNI_NETNS": "/proc/self/ns/net"},
            capture_output=True,
            timeout=HANG,
            check=False,
        )
        assert done.returncode == 1
        if ">&-" not in redirect.replace("2>&-", ""):
            assert json.loads(done.stdout)["code"] == (5 if "<&-" in redirect else 11)


def test_broken_stdout_is_no_signal(exe: Build, away: dict[str, str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [exe.plugin()],
        env=BASE,
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=writing,
        check=False,
    )
    assert done.returncode == 1
    os.close(writing)


def test_a_deleted_working_directory_and_a_noisy_environment(
    exe: Build, away: dict[str, str], tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    noise = {"PYTHONHOME": "/x", "LC_ALL": "C", "JUNK": "\udcff", "LD_PRELOAD": "/nonexistent.so"}
    script = 'cd "$1" && rmdir "$1" && exec "$0"'
    done = subprocess.run(
        ["/bin/sh", "-c", script, str(exe.plugin()), str(gone)],
        env={"PATH": "/bin:/usr/bin", "CNI_COMMAND": "VERSION"},
        input=b"",
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
    assert call(exe.plugin(), {"CNI_COMMAND": "VERSION"} | noise).status == 0


def test_out_of_memory_is_a_cni_error(away: dict[str, str]) -> None:
    """Of the executable only: below some MiB no interpreter starts at all."""
    import resource

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (512 * 1024, 512 * 1024))

    body = json.dumps(config(args="x" * 1_000_000))
    done = call(plugin(), away, body, preexec_fn=limit)
    assert (done.error["code"], done.error["msg"]) == (999, "out of memory")


def test_a_configuration_has_two_mebibytes_at_most(exe: Build, away: dict[str, str]) -> None:
    """Spaces behind it count, and say nothing."""
    status = away | {"CNI_COMMAND": "STATUS"}
    largest = json.dumps(config()).ljust(2 << 20)
    assert "larger" not in call(exe.hasty(), status, largest).error["msg"]
    error = call(exe.hasty(), status, largest + " ").error
    assert (error["code"], error["msg"].rpartition(": ")[2]) == (6, "larger than 2 MiB")


def test_no_secret_is_ever_echoed(exe: Build, away: dict[str, str]) -> None:
    canary = "canary-b7e1"
    broken = json.dumps(config(policy={"k8s_auth_token": canary}))
    for stdin in (broken + "x", broken[:-3], broken.replace('"net"', "5"), broken):
        for command in ("ADD", "STATUS", "DEL", "GC"):
            env = away | {"CNI_COMMAND": command}
            done = call(exe.hasty("calico-ipam"), env, stdin)
            assert canary not in done.stdout.decode() + done.stderr
