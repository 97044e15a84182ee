"""A run of tests in a box of its own, so that nothing outlives it, whatever ends it.

The box is a namespace of processes and one of mounts. Its first process is a shell that reaps
orphans; when it ends, or what started it is killed, the kernel ends every process inside, and the
network namespaces and mounts that only they held go with them. The network is the machine's own.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from libcalico.process.process import die_with_parent

BOX = ("unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc")
"""Whoever makes a box by these words starts it with `start`."""
# Names of labs and namespaces carry process ids, and some lie where other runs see them: ids go on
# from the number that the caller has outside, so two boxes do not choose the same ones.
# What is written below /run goes with the box, where there is overlayfs. The names of network
# namespaces always do, and none that lies outside is seen: it could be one that a test chooses.
INSIDE = """
echo "$1" >/proc/sys/kernel/ns_last_pid
mount -t tmpfs tmpfs /mnt && mkdir -p /mnt/upper /mnt/work /run/netns || exit 97
mount -t overlay overlay -o lowerdir=/run,upperdir=/mnt/upper,workdir=/mnt/work /run
mount -t tmpfs tmpfs /run/netns || exit 97
umount -l /mnt
shift
"$@"
exit $?
"""


def command(words: Sequence[str]) -> list[str]:
    """The words that run `words` in a box; `words` themselves where there can be none.

    Namespaces of processes need root and `unshare`.
    """
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return list(words)
    return [*BOX, "sh", "-c", INSIDE, "sh", str(os.getpid()), *words]


def start(words: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """`subprocess.Popen` of words, such as make a box, that ends when the calling thread does."""
    ends = partial(die_with_parent, signal.SIGKILL, os.getpid())
    return subprocess.Popen(words, preexec_fn=ends, **options)


def run(words: Sequence[str], root: Path, environ: Mapping[str, str] = os.environ) -> int:
    """Run words in a box and in a folder; the exit code. It ends when this process does."""
    with start(command(words), cwd=root, env=environ) as inside:
        while True:
            try:
                return inside.wait()
            except KeyboardInterrupt:
                continue  # the terminal told the tests too: they clean up and end
