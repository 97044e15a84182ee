"""Which way the present caller waits for a connection.

Tested in tests/libcalico/test_kubernetes_wire.py, both ways.
"""

from __future__ import annotations

from libcalico.kubernetes.streams.stream import Way
from libcalico.process import unlooped


def way() -> Way:
    """By the loop where one runs."""
    if unlooped.in_loop():
        from libcalico.kubernetes.streams import looped

        return looped
    from libcalico.kubernetes.streams import blocking

    return blocking
