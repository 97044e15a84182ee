"""A node that reflects no more goes on for a while: its clients have no other sessions yet. Pure.

When reflectors become a mesh, or other nodes become reflectors, most sessions of a former reflector
stay, so that nothing is held beyond the plan. What it passes on would be gone at once all the same:
it would withdraw it, and the others would no longer believe it. So all nodes take it for a
reflector until the sessions that follow had the time that every handover has.

  RFL-5  A node that was a reflector counts as one for LIMIT more, while it exists.
Time is a parameter (seconds, monotonic). Tested in tests/bgp/test_former_reflectors.py.
"""

from __future__ import annotations

from bgp.cluster.view import ClusterView
from bgp.decide.make_before_break import LIMIT
from bgp.peering import reflectors


class FormerReflectors:
    """Keeps `former` of a view up to date."""

    def __init__(self, limit: float = LIMIT) -> None:
        self._limit = limit
        self._chosen: dict[str, str] = {}
        self._former: dict[str, tuple[str, float]] = {}
        """Cluster id, and until when."""

    def follow(self, view: ClusterView, now: float) -> None:
        """Take what the settings of now say."""
        before, self._chosen = self._chosen, reflectors.chosen(view)
        self._former |= {name: (own, now + self._limit) for name, own in before.items()}
        self._former = {
            name: (own, until)
            for name, (own, until) in self._former.items()
            if name in view.nodes and name not in self._chosen and until > now
        }
        view.former = {name: own for name, (own, _) in self._former.items()}

    def next_check(self) -> float | None:
        """When one of them has had its time."""
        return min((until for _, until in self._former.values()), default=None)
