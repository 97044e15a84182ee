"""The one table of input checks against everything that checks input (REQ-1).

Mutated input: tests/cni/test_fuzz.py.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import cni
from cni.python_plugin.main import main
from cni.python_plugin.text import NotJSON, checked
from cni.request.errors import CNIError
from cni.request.request import parse_request, request_version
from tests.cni.executable import (
    BASE,
    BUILDS,
    CONFIG,
    FULL_SIZE,
    Build,
    Daemon,
    Done,
    accept,
    call,
    plugin,
    sanitized,
)

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
def test_executable(vector: dict[str, Any], socket: str, exe: Build) -> None:
    if not answers(vector, "executable"):
        pytest.skip("not asked of the executable")
    env, stdin = environment(vector) | {"CNI_CALICO_SOCKET": socket}, configuration(vector)
    if exe.is_twin and not FULL_SIZE and VECTORS.index(vector) % 4:
        judge(vector, Done(*in_process(env, stdin)))
    else:
        judge(vector, call(exe.plugin("calico-ipam"), env, stdin))


def test_refusals_are_the_same_of_both_without_a_daemon_and_under_both_names(
    socket: str, tmp_path: Path
) -> None:
    """TWIN-1: stdout to the byte, stderr but for the name."""
    for number, vector in enumerate(REFUSED):
        env, stdin = environment(vector), configuration(vector)
        up = call(plugin("calico-ipam"), env | {"CNI_CALICO_SOCKET": socket}, stdin)
        names = ["calico", "calico-ipam"]
        if not FULL_SIZE:  # in turns; 3 and 8 have no common factor, so the twin has both, too
            names = names[:1] if number % 3 else names[1:]
        for build in BUILDS if FULL_SIZE or number % 8 == 0 else BUILDS[:1]:
            for name in names:
                away = env | {"CNI_CALICO_SOCKET": str(tmp_path / "none")}
                down = call(build.plugin(name), away, stdin)
                assert (down.status, down.stdout) == (up.status, up.stdout), vector["id"]
                assert down.stderr.partition(":")[2] == up.stderr.partition(":")[2], vector["id"]
        inside = in_process(env, stdin)
        assert inside == (up.status, up.stdout, up.stderr), vector["id"]


def in_process(env: dict[str, str], stdin: bytes) -> tuple[int, bytes, str]:
    """The twin's answer without a process of its own: for many cases."""
    ends = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
    try:
        os.write(ends[0], stdin)
        os.lseek(ends[0], 0, os.SEEK_SET)
        encoded = {os.fsencode(key): os.fsencode(value) for key, value in env.items()}
        status = main([b"calico-ipam"], encoded, *ends)
        out, err = (os.pread(end, 1 << 22, 0) for end in ends[1:])
        return status, out, err.decode(errors="replace")
    finally:
        for end in ends:
            os.close(end)


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


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(json_like.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=40))
@example(b"01")
@example(b"-")
@example(b"1.5e+")
@example(b'{"a":1 , }')
@example(b'"\\ud800\\u0041"')
@example(b"[" * 513)
@example(b"\xe2\x82")
def test_the_twin_takes_exactly_what_the_daemon_takes_for_json(data: bytes) -> None:
    assert takes(checked, data, NotJSON) == takes(msgspec.json.decode, data, msgspec.DecodeError)


def takes(read: Callable[[bytes], object], data: bytes, refusal: type[Exception]) -> bool:
    try:
        read(data)
    except (refusal, RecursionError) as error:
        # A number may be JSON and yet too large for msgspec.
        return "out of range" in str(error)
    return True
