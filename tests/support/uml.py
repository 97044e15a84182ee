"""A second kernel for tests: user-mode Linux, which has what this machine's kernel may lack.

The guest sees the host's files read-only below a tmpfs of its own, and one directory of the host,
`/out`, to write results to. It has one processor and no KVM: processes start twenty times slower
than here, so everything inside gets twenty times the patience (`SLOWER`). Needs the packages
user-mode-linux and kmod.

Invariant UML-1: nothing outlives `run`, and nothing on the host is written but `out`.
Tested in tests/uml/test_guest.py.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
KERNEL = "linux.uml"
SLOWER = 20
MODULES = (
    "veth bridge ipip vxlan ip_tables iptable_filter iptable_nat iptable_mangle iptable_raw"
    " ip6_tables ip6table_filter ip6table_nat ip6table_mangle ip6table_raw ip_set xt_set"
    " nf_conntrack"
)


@dataclass(frozen=True)
class Guest:
    """What a guest printed, and its command's exit code (124: time was up, 125: it died)."""

    code: int
    output: str


def missing() -> str:
    """Why no guest can be started here; empty if one can."""
    for program in (KERNEL, "insmod"):
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            return f"{program} is not installed (./run install)"
    return ""


def run(
    command: Sequence[str],
    out: Path,
    *,
    timeout: float,
    memory: str = "2G",
    environment: Mapping[str, str] | None = None,
) -> Guest:
    """Boot a guest, run a command in it as root, and wait for its end; `timeout` in seconds."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "code").unlink(missing_ok=True)
    exports = "".join(
        f"export {key}={shlex.quote(value)}\n" for key, value in (environment or {}).items()
    )
    (out / "command.sh").write_text(
        f"cd {shlex.quote(str(ROOT))}\nmodprobe -a {MODULES}\n{exports}exec {shlex.join(command)}\n"
    )
    # The guest's memory is a file there; it must not lie on a disk.
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="guest") as memories:
        text, ended = _boot(out, Path(memories), timeout, memory)
    code = out / "code"
    if code.exists():
        return Guest(int(code.read_text()), text)
    return Guest(125 if ended else 124, text)


def _boot(out: Path, memories: Path, timeout: float, memory: str) -> tuple[str, bool]:
    arguments = [
        KERNEL, f"mem={memory}", f"uml_dir={memories}", "umid=guest", "rootfstype=hostfs",
        "rootflags=/", "ro", f"init={HERE / 'uml_init.sh'}", f"GUEST_OUT={out}",
        "con=null", "con0=null,fd:1", "con1=null", "quiet", "loglevel=1", "panic=-1",
    ]  # fmt: skip
    environment = {**os.environ, "TMPDIR": str(memories)}
    shim = _shim(memories)
    if shim is not None:
        environment["LD_PRELOAD"] = str(shim)
    with (out / "kernel.log").open("wb") as log:
        # Its processes are a group of their own, and die with it.
        kernel = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
        ended = True
        try:
            output, _ = kernel.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            ended = False
            os.killpg(kernel.pid, signal.SIGKILL)
            output, _ = kernel.communicate()
        except BaseException:
            os.killpg(kernel.pid, signal.SIGKILL)
            kernel.wait()
            raise
    return output.decode(errors="replace").replace("\r", ""), ended


def _shim(folder: Path) -> Path | None:
    """What lets it run on a processor with a large extended state; None without a compiler."""
    made = folder / "xstate.so"
    command = ["gcc", "-shared", "-fPIC", "-O2", "-o", str(made), str(HERE / "uml_xstate.c")]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return made
