"""Make at build time what is never committed: gRPC stubs and the CNI executable.

Runs for a wheel and for an editable install alike. The stubs come from the `.proto` files
in the tree; the executable from one C file, static, by the first compiler found. Without a
compiler the install still succeeds: the Python twin of the executable serves then.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
PROTOS = ("libcalico/datastore/etcd/proto/etcd.proto", "libcalico/cri.proto", "flows/goldmane.proto", "flows/nodes.proto")
EXECUTABLE_SOURCE = ROOT / "cni" / "executable" / "calico.c"
EXECUTABLE = ROOT / "cni" / "_bin" / "calico"
COMPILERS = (("musl-gcc",), ("cc",))
CROSS = {"aarch64": "aarch64-linux-gnu-gcc", "x86_64": "x86_64-linux-gnu-gcc"}
MACHINE = "MUSLIN_MACHINE"
"""Set in the environment to build a wheel for another kind of machine, a key of CROSS."""
FLAGS = ("-std=c11", "-O2", "-static", "-s", "-Wall", "-Wextra", "-D_GNU_SOURCE")


def generate_stubs() -> list[str]:
    """Generate Python message and service stubs beside each `.proto`; returns their paths.

    The types of the messages (`.pyi`) are for mypy alone, and in no wheel.
    """
    from grpc_tools import protoc

    made = []
    for proto in PROTOS:
        status = protoc.main(
            [
                "protoc",
                f"-I{ROOT}",
                f"--python_out={ROOT}",
                f"--pyi_out={ROOT}",
                f"--grpc_python_out={ROOT}",
                str(ROOT / proto),
            ]
        )
        if status != 0:
            raise RuntimeError(f"protoc failed on {proto} with status {status}")
        stem = proto.removesuffix(".proto")
        made += [f"{stem}_pb2.py", f"{stem}_pb2_grpc.py"]
    return made


def compile_executable() -> list[str]:
    """Compile the CNI executable; returns its path, or nothing where no compiler can.

    A compiler that is there but cannot link statically is passed over for the next one.
    """
    for compiler in COMPILERS:
        if shutil.which(compiler[0]) is None:
            continue
        why = _compile(compiler, EXECUTABLE)
        if not why:
            return [str(EXECUTABLE.relative_to(ROOT))]
        print(f"{compiler[0]} cannot make the executable: {why}", file=sys.stderr)
    EXECUTABLE.unlink(missing_ok=True)
    return []


def cross_compile(machine: str, target: Path) -> None:
    """Compile the executable for another kind of machine, as `platform.machine()` calls it.

    Raises RuntimeError where its cross compiler is missing or fails: a wheel for a machine
    holds that machine's executable, or there is none.
    """
    if machine not in CROSS:
        raise RuntimeError(f"{MACHINE}: {machine!r} is not one of {', '.join(CROSS)}")
    if shutil.which(CROSS[machine]) is None:
        raise RuntimeError(f"{MACHINE}: {machine} needs {CROSS[machine]}, which is not installed")
    if why := _compile((CROSS[machine],), target):
        raise RuntimeError(f"{CROSS[machine]} cannot make the executable: {why}")


def _compile(compiler: tuple[str, ...], target: Path) -> str:
    """Put the executable at `target` in one step; returns what the compiler says against it."""
    target.parent.mkdir(exist_ok=True)
    # Several builds may run at once, as several test processes do.
    fresh = target.with_suffix(f".{os.getpid()}")
    command = [*compiler, *FLAGS, "-o", str(fresh), str(EXECUTABLE_SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode == 0:
        fresh.replace(target)
        return ""
    fresh.unlink(missing_ok=True)
    return done.stderr[-2000:] or f"status {done.returncode}"


class BuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """The hatchling hook: both products, shipped as package data."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build and register the products (hatchling build-hook interface)."""
        machine = os.environ.get(MACHINE) or platform.machine()
        included = {product: ROOT / product for product in generate_stubs()}
        if machine == platform.machine():
            made = {product: ROOT / product for product in compile_executable()}
        else:
            other = EXECUTABLE.with_name(f"calico-{machine}")
            cross_compile(machine, other)
            made = {str(EXECUTABLE.relative_to(ROOT)): other}
        for product, path in {**included, **made}.items():
            build_data["force_include"][str(path)] = product
        if made:
            # A static executable needs no C library of the host, only its kind of machine.
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-manylinux_2_17_{machine}.musllinux_1_1_{machine}"
