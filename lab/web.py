"""`./run lab web`: the page of `calico-web` on a lab, for a browser of this machine.

No link leads from a lab to its host. So the host's socket is made here and handed to the page,
which runs on a node and reads etcd as the node does.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket

from lab.cluster import Lab
from lab.errors import LabError

PORT = 8091
MISSING = "the page needs the extra `web`, which is not installed here: ./run install"


def installed() -> bool:
    """Whether the page can be served here."""
    return importlib.util.find_spec("nicegui") is not None


def listen(port: int) -> socket.socket:
    """A socket on this machine's loopback, for a child to inherit. Raises LabError."""
    made = socket.socket()
    try:
        made.bind(("127.0.0.1", port))
    except (OSError, OverflowError) as problem:
        made.close()
        raise LabError(f"cannot listen on 127.0.0.1 port {port}: {problem}") from None
    made.listen(128)
    os.set_inheritable(made.fileno(), True)
    return made


def command(lab: Lab, descriptor: int) -> list[str]:
    """The command that serves a lab on an inherited socket, with every node's status files."""
    folders = [
        f"--status={name}=/proc/{lab.machine(name).record.pid}/root/run/calico/status"
        for name in (node.name for node in lab.nodes)
        if lab.machine(name).path("/var/run/calico/status").is_dir()
    ]
    machine = lab.machine(lab.nodes[0].name)
    program = shutil.which("calico-web", path=machine.environment()["PATH"])
    if program is None or not installed():
        raise LabError(MISSING)
    return machine.command([program, f"--fd={descriptor}", *folders])
