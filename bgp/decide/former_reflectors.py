"""Who has reflected until a moment ago, and who only since: their sessions take a while. Pure.

When reflectors become a mesh, or other nodes become reflectors, most sessions of a former reflector
stay, so that nothing is held beyond the plan. What it passes on would be gone at once all the same:
it would withdraw it, and the others would no longer believe it. So all nodes take it for a
reflector until the sessions that follow had the time that every handover has.

A new reflector may have the cluster id of another one, former or not. What that one reflects it has
to refuse (RFC 4456 8), and has no session yet with those who could tell it instead.

  RFL-5  A node that was a reflector counts as one for LIMIT more, while it exists, also where this
         agent was started anew meanwhile.
  RFL-6  A new reflector takes for LIMIT what others of its cluster reflect, and counts so long as
         their client, also where this agent was started anew meanwhile. What crossed its cluster
         twice it refuses at once: nothing goes in circles.
Time is a parameter (seconds, monotonic). Tested in tests/bgp/test_former_reflectors.py.
"""

from __future__ import annotations

from bgp.cluster.view import ClusterView
from bgp.decide.make_before_break import LIMIT
from bgp.peering import reflectors


class FormerReflectors:
    """Keeps `former` and `fresh` of a view up to date."""

    def __init__(self, limit: float = LIMIT) -> None:
        self._limit = limit
        self._chosen: dict[str, str] | None = None
        self._fresh: dict[str, float] = {}
        """Until when."""
        self._recalled: frozenset[str] = frozenset()
        self._former: dict[str, tuple[str, float]] = {}
        """Cluster id, and until when."""

    def recall(self, reflectors: dict[str, str] | None, fresh: frozenset[str]) -> None:
        """Those that counted before the start of the agent; None: it is not known. `fresh`: the
        new ones of them.
        """
        self._chosen, self._recalled = reflectors, fresh

    def follow(self, view: ClusterView, now: float) -> None:
        """Take what the settings of now say."""
        chosen = reflectors.chosen(view)
        before, self._chosen = chosen if self._chosen is None else self._chosen, chosen
        recalled, self._recalled = self._recalled, frozenset()
        joined = {n for n, own in chosen.items() if before.get(n) != own or n in recalled}
        self._fresh |= dict.fromkeys(joined, now + self._limit)
        self._fresh = {
            name: until for name, until in self._fresh.items() if name in chosen and until > now
        }
        self._former |= {name: (own, now + self._limit) for name, own in before.items()}
        self._former = {
            name: (own, until)
            for name, (own, until) in self._former.items()
            if name in view.nodes and name not in chosen and until > now
        }
        view.former = {name: own for name, (own, _) in self._former.items()}
        view.fresh = set(self._fresh)

    def next_check(self) -> float | None:
        """When one of them has had its time."""
        moments = [*self._fresh.values(), *(until for _, until in self._former.values())]
        return min(moments, default=None)
