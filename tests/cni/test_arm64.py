"""The executable for arm64, from Debian's cross compiler, run by its emulator on this node.

The emulator runs one program, not a machine: what the program asks of the kernel it asks of
ours, so sockets, descriptors and namespaces are real.
"""

from __future__ import annotations

import os
import platform
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import build_hook
from tests.cni.executable import FULL_SIZE, Daemon, accept, call
from tests.cni.test_vectors import VECTORS, answers, configuration, environment, judge
from tests.cni.world import node_world, pod_namespace, result_of

EMULATOR = shutil.which("qemu-aarch64") or "qemu-aarch64"
IS_ARM = platform.machine() == "aarch64"
SOME = VECTORS if FULL_SIZE else VECTORS[::6]
ARM64, PROGRAM_HEADER, INTERPRETER = 183, 0x38, 3


@pytest.fixture(scope="module")
def arm64(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both names, each a line of shell that runs the executable emulated."""
    folder = tmp_path_factory.mktemp("arm64")
    built = folder / "built"
    if IS_ARM:
        assert build_hook.compile_executable()
        shutil.copy(build_hook.EXECUTABLE, built)
    else:
        build_hook.cross_compile("aarch64", built)
    for name in ("calico", "calico-ipam"):
        program = folder / name
        if IS_ARM:
            program.symlink_to(built)
            continue
        program.write_text(f'#!/bin/sh\nexec {EMULATOR} -0 {name} {built} "$@"\n')
        program.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("cni") / "cni.sock"
    with Daemon(path, accept):
        yield str(path)


def test_it_is_static_and_of_its_kind(arm64: Path) -> None:
    data = (arm64 / "built").read_bytes()
    assert data[:5] == b"\x7fELF\x02", "64 bits"
    (machine,) = struct.unpack_from("<H", data, 18)
    assert machine == ARM64
    (start,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    assert size == PROGRAM_HEADER
    kinds = [struct.unpack_from("<I", data, start + n * size)[0] for n in range(count)]
    assert INTERPRETER not in kinds, "no dynamic loader of the host is asked for"


@pytest.mark.parametrize("vector", SOME, ids=lambda vector: vector["id"])
def test_vectors(vector: dict[str, Any], socket: str, arm64: Path) -> None:
    if answers(vector, "executable"):
        env = environment(vector) | {"CNI_CALICO_SOCKET": socket}
        judge(vector, call(arm64 / "calico-ipam", env, configuration(vector)))


@pytest.mark.asyncio
async def test_a_pod_comes_and_goes(arm64: Path, tmp_path: Path) -> None:
    """The pod's namespace goes over as a descriptor; host-local is run by the executable."""
    local = {"type": "host-local", "subnet": "10.77.0.0/24", "dataDir": str(tmp_path / "local")}
    with node_world(tmp_path) as node, pod_namespace("arm") as pod:
        node.plugins = "/usr/lib/cni"
        async with node.daemon():
            for config in ({}, {"ipam": local}):
                options: dict[str, Any] = {"config": config, "plugin": arm64 / "calico"}
                result = result_of(await node.add(pod, **options))
                address = result["ips"][0]["address"].partition("/")[0]
                assert address in pod.run("ip", "-4", "addr", "show", "dev", "eth0")
                done = await node.delete(pod, **options)
                assert (done.status, done.stdout) == (0, b""), done
                node.assert_clean()
    assert not [name for name in os.listdir(tmp_path / "local/k8s-pod-network") if "10.77" in name]


def test_a_wheel_for_arm64_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the build hook tells the builder: the file, its place in the wheel, the wheel's tag."""
    monkeypatch.setenv(build_hook.MACHINE, "aarch64")
    monkeypatch.setattr(build_hook, "generate_stubs", list)
    told: dict[str, Any] = {"force_include": {}}
    hook = build_hook.BuildHook.__new__(build_hook.BuildHook)
    hook.initialize("standard", told)
    assert told["tag"] == "py3-none-manylinux_2_17_aarch64.musllinux_1_1_aarch64"
    ((path, place),) = told["force_include"].items()
    assert place == "cni/_bin/calico"
    assert struct.unpack_from("<H", Path(path).read_bytes(), 18) == (ARM64,)
    if not IS_ARM:
        assert path != str(build_hook.EXECUTABLE), "this machine's own stays"
    monkeypatch.setenv(build_hook.MACHINE, "vax")
    with pytest.raises(RuntimeError, match="'vax' is not one of aarch64"):
        hook.initialize("standard", told)
