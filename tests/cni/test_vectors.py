"""The one table of input checks against everything that checks input (REQ-1)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import cni
from cni.errors import CNIError
from cni.request import parse_request, request_version
from tests.cni.executable import BASE, CONFIG, Daemon, Done, accept, call, plugin, sanitized

FOLDER = Path(cni.__file__).parent / "vectors"
VECTORS: list[dict[str, Any]] = [
    vector
    for file in sorted(FOLDER.glob("*.json"))
    for vector in json.loads(file.read_text())["vectors"]
]
SMALL = [vector for vector in VECTORS if "stdin_repeat" not in vector]
REFUSED = [vector for vector in VECTORS if "accepted" not in vector["expect"]]


def environment(vector: dict[str, Any]) -> dict[str, str]:
    changed = BASE | vector.get("env", {})
    return {key: value for key, value in changed.items() if value is not None}


def configuration(vector: dict[str, Any]) -> bytes:
    if "stdin" in vector:
        return str(vector["stdin"]).encode("utf-8", "surrogateescape")
    if "stdin_hex" in vector:
        return bytes.fromhex(vector["stdin_hex"])
    if "stdin_repeat" in vector:
        head, left, times, middle, right, again, tail = vector["stdin_repeat"]
        return str(head + left * times + middle + right * again + tail).encode()
    return json.dumps(CONFIG).encode()


def compare(vector: dict[str, Any], found: dict[str, Any]) -> None:
    expect = dict(vector["expect"])
    prefix = expect.pop("msg_prefix", "")
    assert found["msg"].startswith(prefix)
    for key, value in expect.items():
        assert found.get(key, "") == value, (key, found)


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("cni") / "cni.sock"
    with Daemon(path, accept):
        yield str(path)


def judge(vector: dict[str, Any], done: Done) -> None:
    if "accepted" not in vector["expect"]:
        compare(vector, done.error)
        return
    assert done.status == 0, done
    added = vector.get("env", {}).get("CNI_COMMAND", "ADD") == "ADD"
    assert done.stdout == (b'{"accepted":true}\n' if added else b"")


def answers(vector: dict[str, Any], who: str) -> bool:
    return who in vector.get("run", [who])


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_executable(vector: dict[str, Any], socket: str) -> None:
    if not answers(vector, "executable"):
        pytest.skip("not asked of the executable")
    env = environment(vector) | {"CNI_CALICO_SOCKET": socket}
    judge(vector, call(plugin("calico-ipam"), env, configuration(vector)))


def test_refusals_are_the_same_without_a_daemon_and_under_both_names(
    socket: str, tmp_path: Path
) -> None:
    for vector in REFUSED:
        env, stdin = environment(vector), configuration(vector)
        up = call(plugin("calico-ipam"), env | {"CNI_CALICO_SOCKET": socket}, stdin)
        for name in ("calico", "calico-ipam"):
            down = call(plugin(name), env | {"CNI_CALICO_SOCKET": str(tmp_path / "none")}, stdin)
            assert (down.status, down.stdout) == (up.status, up.stdout), vector["id"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_daemon(vector: dict[str, Any]) -> None:
    if not answers(vector, "daemon"):
        pytest.skip("not asked of the daemon")
    env, stdin = environment(vector), configuration(vector)
    if "accepted" in vector["expect"]:
        request = parse_request("calico-ipam", env, stdin)
        assert request.command == env["CNI_COMMAND"]
        assert request.config.name == json.loads(stdin)["name"]
        return
    with pytest.raises(CNIError) as caught:
        parse_request("calico-ipam", env, stdin)
    error = caught.value
    found = {"code": error.code, "msg": error.msg, "details": error.details}
    compare(vector, found | {"cniVersion": request_version(stdin)})


def test_sanitized_executable_on_every_vector(socket: str) -> None:
    def run(vector: dict[str, Any]) -> None:
        env = environment(vector) | {"CNI_CALICO_SOCKET": socket}
        judge(vector, call(sanitized("calico-ipam"), env, configuration(vector)))

    sanitized()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, VECTORS))


def mutated(stdin: bytes, dice: random.Random) -> bytes:
    """`stdin` with a few bytes changed, cut out, doubled or made odd."""
    found = bytearray(stdin[:4096])
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(found) + 1)
        action = dice.randrange(5)
        if action == 0 and at < len(found):
            found[at] = dice.randrange(256)
        elif action == 1:
            del found[at : at + dice.randint(1, 8)]
        elif action == 2:
            found[at:at] = dice.choice(
                [b'"', b"\\", b"{", b"}", b"[", b",", b"\\u", b"\xff", b"\0", b"\\ud800"]
            )
        elif action == 3:
            found[at:at] = found[at : at + dice.randint(1, 40)]
        else:
            del found[at:]
    return bytes(found)


def test_sanitized_executable_on_mutated_input(socket: str) -> None:
    """Whatever comes in: valid CNI JSON comes out, and executable and daemon agree on the code."""
    dice = random.Random(20)
    cases = []
    for number in range(400):
        env = dict(BASE) | {"CNI_COMMAND": dice.choice(["ADD", "DEL", "CHECK", "GC", "STATUS"])}
        if number % 4 == 0:
            key = dice.choice(list(BASE))
            value = mutated(env[key].encode(), dice).replace(b"\0", b"").decode("utf-8", "replace")
            env[key] = value
        stdin = configuration(dice.choice(SMALL) if number % 3 else {})
        cases.append((env, mutated(stdin, dice)))

    def run(case: tuple[dict[str, str], bytes]) -> None:
        env, stdin = case
        done = call(sanitized("calico-ipam"), env | {"CNI_CALICO_SOCKET": socket}, stdin)
        try:
            parse_request("calico-ipam", env, stdin)
            expected = 0
        except CNIError as error:
            expected = error.code
        if not env.get("CNI_COMMAND"):
            assert (done.status, done.stdout) == (0, b"")
        elif env["CNI_COMMAND"] == "VERSION" or (done.status == 0 and expected == 0):
            assert done.status == 0
        elif done.status == 0:
            # What the daemon alone refuses: its own configuration.
            assert expected in (4, 7), (case, expected)
        else:
            assert done.error["code"] == expected, (case, done, expected)

    sanitized()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, cases))
