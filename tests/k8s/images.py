"""The images of the tests' own pods, made of Debian's static busybox and nothing else."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.cri import image

PAUSE = image.NAME
BUSYBOX = "localhost/muslin-busybox:1"
_ACCOUNTS = {
    "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
    "etc/group": b"root:x:0:\nnobody:x:65534:\n",
}


def busybox() -> str:
    """Where the program is; empty where it is not, or is not static."""
    found = shutil.which("busybox", path="/bin:/usr/bin") or ""
    if not found:
        return ""
    linked = subprocess.run(["ldd", found], capture_output=True, text=True, check=False)
    return "" if linked.returncode == 0 and "=>" in linked.stdout else found


def build(folder: Path) -> list[Path]:
    """Both images, as archives that a runtime imports."""
    program = busybox()
    listed = subprocess.run([program, "--list"], capture_output=True, text=True, check=True)
    links = {f"bin/{name}": "busybox" for name in listed.stdout.split() if name != "busybox"}
    files = {
        "bin/busybox": (Path(program).read_bytes(), 0o755),
        **{name: (content, 0o644) for name, content in _ACCOUNTS.items()},
    }
    archive = image.pack(folder / "busybox.tar", BUSYBOX, files, ["/bin/sh"], links)
    return [image.build(folder), archive]
