"""What ExaBGP 5.0 does otherwise than a node needs, put right in its process at start.

A module has one subject. Each of its functions replaces names of ExaBGP, and says what is wrong
there, which test fails without it, and when it can go. All are proved on real sessions; a release
of ExaBGP without one of the names fails at once, in `exabgp validate` already. (`launch.py`
applies `unused`, before ExaBGP is imported, `signals` and `agent_pipes`.)

Standard library and ExaBGP only. Tested in tests/bgp/test_sessions.py.
"""

from __future__ import annotations

from bgp.speaker.exabgp.upstream import (
    clock,
    dialling,
    handshake,
    listening,
    notifications,
    reloading,
    replacing,
    scheduling,
    sending,
    source_address,
    timers,
    updates,
)


def apply() -> None:
    """All of them: where two replace one name, the later one goes around the earlier one."""
    clock.apply()
    sending.apply()
    timers.apply()
    updates.apply()
    notifications.apply()  # after `sending`
    handshake.apply()
    replacing.apply()
    reloading.apply()  # after `replacing`
    source_address.apply()
    listening.apply()
    dialling.apply()  # after `source_address`
    scheduling.apply()  # last: it wraps what changes a turn
