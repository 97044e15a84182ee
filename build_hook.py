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
PROTOS = ("libcalico/datastore/etcd/proto/etcd.proto",)
EXECUTABLE_SOURCE = ROOT / "cni" / "executable" / "calico.c"
EXECUTABLE = ROOT / "cni" / "_bin" / "calico"
COMPILERS = (("musl-gcc",), ("cc",))
FLAGS = ("-std=c11", "-O2", "-static", "-s", "-Wall", "-Wextra", "-D_GNU_SOURCE")


def generate_stubs() -> list[str]:
    """Generate Python message and service stubs beside each `.proto`; returns their paths."""
    from grpc_tools import protoc

    made = []
    for proto in PROTOS:
        status = protoc.main(
            [
                "protoc",
                f"-I{ROOT}",
                f"--python_out={ROOT}",
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
    EXECUTABLE.parent.mkdir(exist_ok=True)
    # Several builds may run at once, as several test processes do.
    fresh = EXECUTABLE.with_suffix(f".{os.getpid()}")
    for compiler in COMPILERS:
        if shutil.which(compiler[0]) is None:
            continue
        command = [*compiler, *FLAGS, "-o", str(fresh), str(EXECUTABLE_SOURCE)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        if done.returncode == 0:
            fresh.replace(EXECUTABLE)
            return [str(EXECUTABLE.relative_to(ROOT))]
        print(f"{compiler[0]} cannot make the executable: {done.stderr[-2000:]}", file=sys.stderr)
    fresh.unlink(missing_ok=True)
    EXECUTABLE.unlink(missing_ok=True)
    return []


class BuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """The hatchling hook: both products, shipped as package data."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build and register the products (hatchling build-hook interface)."""
        stubs, executable = generate_stubs(), compile_executable()
        for product in stubs + executable:
            build_data["force_include"][str(ROOT / product)] = product
        if executable:
            # A static executable needs no C library of the host, only its kind of machine.
            machine = platform.machine()
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-manylinux_2_17_{machine}.musllinux_1_1_{machine}"
