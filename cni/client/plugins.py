"""Run one plugin: found by its bare name, fed by stdin, killed at its deadline.

Source: CNI specification 1.1.0 section 2, conformance LIB-07, ENV-08, ENV-30, OUT-05.
Tested in tests/cni_conformance/test_library.py.
"""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from cni.request.errors import CNIError, Code
from libcalico.errors import NO_DOCUMENT

BUSY_TRIES = 5
BUSY_SECONDS = 1.0


class _Error(msgspec.Struct):
    code: int = int(Code.INTERNAL)
    msg: str = ""
    details: str = ""


class _Versions(msgspec.Struct):
    cniVersion: str = ""
    supportedVersions: list[str] = []


def find(plugin: str, path: Sequence[str | Path]) -> Path:
    """The executable called `plugin` in the first directory that holds one.

    Raises CNIError 999 when there is none, or the name is no bare name.
    """
    if not plugin or "/" in plugin:
        raise CNIError(Code.INTERNAL, f"invalid plugin name: {plugin!r}")
    for folder in path:
        if folder and (Path(folder) / plugin).is_file():
            return Path(folder) / plugin
    places = " ".join(str(folder) for folder in path)
    raise CNIError(Code.INTERNAL, f"failed to find plugin {plugin!r} in path [{places}]")


def run(
    program: Path, environ: Mapping[str, str], stdin: bytes, timeout: float | None = None
) -> bytes:
    """What the plugin printed. Its stderr goes to ours. Raises the plugin's CNIError.

    `timeout` in seconds; then it gets SIGKILL and the error is code 999. An executable that is
    just being replaced ("text file busy") is tried again, as the runtimes do.
    """
    for left in range(BUSY_TRIES, -1, -1):
        try:
            done = subprocess.run(
                [program],
                env=dict(environ),
                input=stdin,
                stdout=subprocess.PIPE,
                timeout=timeout,
                check=False,
            )
            break
        except subprocess.TimeoutExpired:
            raise CNIError(
                Code.INTERNAL, f"{program.name} was killed: no answer in {timeout} s"
            ) from None
        except OSError as problem:
            if problem.errno != errno.ETXTBSY or not left:
                raise CNIError(
                    Code.INTERNAL, f"{program} cannot be run: {problem.strerror}"
                ) from None
            time.sleep(BUSY_SECONDS)
    if done.returncode == 0:
        return done.stdout
    raise failure(done.stdout, done.returncode)


def failure(stdout: bytes, status: int) -> CNIError:
    """The error that a plugin which failed with `status` left on stdout. Pure."""
    if not stdout.strip():
        return CNIError(Code.INTERNAL, f"netplugin failed with no error message: status {status}")
    try:
        said = msgspec.json.decode(stdout, type=_Error)
    except NO_DOCUMENT:
        text = stdout[:1024].decode(errors="replace")
        return CNIError(Code.INTERNAL, f"netplugin failed: {text!r}")
    return CNIError(said.code, said.msg, said.details)


def versions(
    program: Path, environ: Mapping[str, str] | None = None, timeout: float = 5
) -> list[str]:
    """The versions that a plugin says it speaks (VERSION). Raises CNIError."""
    dummies = dict.fromkeys(("CNI_NETNS", "CNI_IFNAME", "CNI_PATH"), "dummy")
    env = {**(os.environ if environ is None else environ), **dummies, "CNI_COMMAND": "VERSION"}
    answer = run(program, env, b'{"cniVersion":"1.1.0"}', timeout)
    try:
        said = msgspec.json.decode(answer, type=_Versions)
    except NO_DOCUMENT:
        raise CNIError(
            Code.DECODING_FAILURE, f"{program}: VERSION printed no version object"
        ) from None
    # A plugin from before the list existed names only the one that it speaks.
    return said.supportedVersions or [said.cniVersion or "0.1.0"]
