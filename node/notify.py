"""Notifying the service manager that this node is started (sd_notify(3), `Type=notify`).

It is one datagram to the socket that systemd names; without one nothing is sent.
Tested in tests/node/test_units.py.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import MutableMapping

log = logging.getLogger(__name__)


def send(text: str, environ: MutableMapping[str, str] = os.environ) -> None:
    """Send a state such as `READY=1`; an error is logged and stops nothing."""
    name = environ.get("NOTIFY_SOCKET", "")
    if not name:
        return
    # A name that begins with @ is in the abstract namespace (unix(7)).
    address = f"\0{name[1:]}" if name.startswith("@") else name
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.sendto(text.encode(), address)
    except OSError as error:
        log.warning("the service manager cannot be told %s: %s", text, error)
