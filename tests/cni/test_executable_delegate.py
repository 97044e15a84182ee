"""`exec` frames: delegate plugins run by the executable on the host.

The delegates here are small shell scripts and, where Debian's package is there, the real
host-local, which keeps its leases on the disk of the host that the executable runs on.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from cni.socket import protocol
from cni.socket.channel import Channel
from tests.cni.executable import BASE, CONFIG, Build, Daemon, Done, call
from tests.support.patience import HANG

REFERENCE = Path("/usr/lib/cni")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "bin").mkdir()
    return BASE | {
        "CNI_CALICO_SOCKET": str(tmp_path / "private" / "cni.sock"),
        "CNI_PATH": f":/nonexistent:relative/:{tmp_path}/bin/",
        "CNI_ARGS": "K8S_POD_NAME=p",
        "PATH": "/usr/bin:/bin",
        "TRACEPARENT": "kept",
    }


def script(env: dict[str, str], name: str, body: str) -> Path:
    path = Path(env["CNI_PATH"].split(":")[-1]) / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def run(
    exe: Build, env: dict[str, str], *requests: protocol.Exec, executable: Path | None = None
) -> tuple[list[protocol.ExecResult], Done]:
    """Let the daemon ask for these, one after the other, then finish."""
    results: list[protocol.ExecResult] = []

    async def ask(connection: Channel, _: protocol.Request, __: int | None) -> None:
        for request in requests:
            await connection.send(request)
            answer = await connection.receive()
            assert answer is not None
            assert isinstance(answer[0], protocol.ExecResult)
            results.append(answer[0])
        await connection.send(protocol.Result(0, "{}"))

    with Daemon(Path(env["CNI_CALICO_SOCKET"]), ask):
        done = call(executable or exe.plugin("calico-ipam"), env, CONFIG)
    return results, done


@pytest.mark.parametrize("build", ["plugin", "strict"])
def test_a_delegate_gets_environment_and_stdin_and_keeps_its_stderr(
    exe: Build, build: str, env: dict[str, str]
) -> None:
    script(env, "recorder", 'env | sort; echo "--"; cat; echo "to stderr" >&2; exit 3')
    given = {"CNI_COMMAND": "ADD", "CNI_ARGS": 'IgnoreUnknown=1;X="\u00e9', "CNI_IFNAME": "eth0"}
    (result,), done = run(
        exe,
        env,
        protocol.Exec("recorder", given, '{"a":"\u65e5"}', id=7),
        executable=getattr(exe, build)("calico-ipam"),
    )
    assert done == Done(0, b"{}", "to stderr\n")
    assert (result.id, result.status, result.code, result.error) == (7, 3, 0, "")
    environment, _, stdin = result.stdout.partition("--\n")
    seen = dict(line.split("=", 1) for line in environment.splitlines())
    assert {key: value for key, value in seen.items() if key.startswith("CNI_")} == given
    assert seen["TRACEPARENT"] == "kept"
    assert stdin == '{"a":"\u65e5"}'


def test_several_delegates_in_one_call(exe: Build, env: dict[str, str]) -> None:
    script(env, "echo", 'printf "%s" "$CNI_COMMAND"')
    verbs = ["ADD", "CHECK", "DEL"]
    results, _ = run(
        exe,
        env,
        *(protocol.Exec("echo", {"CNI_COMMAND": verb}, "{}", id=n) for n, verb in enumerate(verbs)),
    )
    assert [(result.id, result.stdout) for result in results] == list(enumerate(verbs))


@pytest.mark.parametrize("name", ["../bin/echo", "a/b", "a\\b", "", ".", "..", "calico", "/bin/sh"])
def test_odd_names_are_refused(exe: Build, name: str, env: dict[str, str]) -> None:
    (result,), _ = run(exe, env, protocol.Exec(name, {}, "{}"))
    assert (result.status, result.code) == (-1, 7)


def test_a_delegate_that_cannot_be_found_or_started(exe: Build, env: dict[str, str]) -> None:
    folder = Path(env["CNI_PATH"].split(":")[-1])
    (folder / "directory").mkdir()
    (folder / "plain").write_text("not executable")
    script(env, "broken", "").write_text("#!/nonexistent/interpreter\n")
    names = ["missing", "directory", "plain", "broken"]
    results, _ = run(exe, env, *(protocol.Exec(name, {}, "{}") for name in names))
    assert [(result.status, result.code) for result in results] == [(-1, 999)] * 4
    expected = f'failed to find plugin "missing" in path [{env["CNI_PATH"]}]'
    assert results[0].error == expected
    assert results[3].error.startswith('cannot run plugin "broken": ')


def test_no_search_path_is_an_error_of_the_environment(exe: Build, env: dict[str, str]) -> None:
    env["CNI_PATH"] = ""
    (result,), _ = run(exe, env, protocol.Exec("host-local", {}, "{}"))
    assert (result.code, result.error) == (4, "required env variables [CNI_PATH] missing")


def test_a_delegate_is_killed_when_its_time_is_up(
    exe: Build, env: dict[str, str], tmp_path: Path
) -> None:
    script(env, "sleeper", f"echo $$ > {tmp_path}/pid; exec sleep 600")
    for limit in (0.5, 5, 50):
        started = time.monotonic()
        (result,), _ = run(exe, env, protocol.Exec("sleeper", {}, "{}", timeout=limit))
        assert limit <= time.monotonic() - started < HANG
        assert (result.status, result.code) == (-1, 11)
        if begun(tmp_path / "pid"):
            break
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def begun(pid: Path) -> bool:
    """Whether there was time to begin: where not, more is given."""
    return pid.exists() and pid.read_text().endswith("\n")


def test_a_delegate_never_outlives_our_deadline(
    exe: Build, env: dict[str, str], tmp_path: Path
) -> None:
    script(env, "sleeper", f"echo $$ > {tmp_path}/pid; exec sleep 600")
    results: list[protocol.Message] = []

    async def ask_and_hang(connection: Channel, _: protocol.Request, __: int | None) -> None:
        await connection.send(protocol.Exec("sleeper", {}, "{}"))
        while (answer := await connection.receive()) is not None:
            results.append(answer[0])

    for seconds in (1, 10, 50):
        with Daemon(Path(env["CNI_CALICO_SOCKET"]), ask_and_hang):
            assert call(exe.within(seconds, "calico-ipam"), env, CONFIG).error["code"] == 11
        if begun(tmp_path / "pid"):
            break
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
    assert all(isinstance(result, protocol.ExecResult) for result in results)


def test_exit_by_signal_large_streams_and_bytes_that_are_not_text(
    exe: Build, env: dict[str, str]
) -> None:
    script(env, "killed", "kill -9 $$")
    script(env, "deaf", "exec <&-; echo done")
    script(env, "swallow", "wc -c")
    script(env, "binary", "printf '\\377\\000a'")
    script(env, "flood", "yes")
    script(env, "pipe", "yes | head -n 1; trap")
    big = json.dumps({"x": "y" * 1_000_000})
    names = ["killed", "deaf", "swallow", "binary", "flood", "pipe"]
    for executable in (exe.plugin("calico-ipam"), exe.strict("calico-ipam")):
        results, _ = run(
            exe, env, *(protocol.Exec(name, {}, big) for name in names), executable=executable
        )
        assert results[0].status == 128 + 9
        assert (results[1].status, results[1].stdout) == (0, "done\n")
        assert int(results[2].stdout) == len(big)
        assert results[3].stdout == "\ufffd\0a"
        assert (results[4].status, results[4].code) == (-1, 999)
        assert results[5].stdout == "y\n"  # SIGPIPE has its usual effect in the delegate


@pytest.mark.skipif(not (REFERENCE / "host-local").exists(), reason="no reference plugins")
def test_the_real_host_local(exe: Build, env: dict[str, str], tmp_path: Path) -> None:
    env["CNI_PATH"] = str(REFERENCE)
    leases = tmp_path / "leases"
    ipam = {"type": "host-local", "subnet": "10.99.77.0/24", "dataDir": str(leases)}
    stdin = json.dumps(CONFIG | {"ipam": ipam})
    given = BASE | {"CNI_PATH": str(REFERENCE), "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAME=p"}
    add = protocol.Exec("host-local", given, stdin)
    delete = protocol.Exec("host-local", given | {"CNI_COMMAND": "DEL"}, stdin)
    results, _ = run(exe, env, add, add, delete)
    assert [result.status for result in results] == [0, 1, 0]
    assert json.loads(results[0].stdout)["ips"][0]["address"] == "10.99.77.2/24"
    assert "duplicate allocation" in json.loads(results[1].stdout)["msg"]
    assert not (leases / "net" / "10.99.77.2").exists()
