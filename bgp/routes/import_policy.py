"""What becomes of a path that a peer sent: the import side of a session. Pure.

In this order: loops (RFC 4271, RFC 4456), what may be believed (`bgp.routes.validity`), the
peering's BGPFilters, what is doubted unless one of them accepts it, then the community of
a peer that is about to go (GRACEFUL_SHUTDOWN, RFC 8326: LOCAL_PREF 0). Without filters everything
that is believed and not doubted is taken, as in Calico.

  IMP-1  A session whose filters are not known takes nothing.
Tested in tests/bgp/test_import_policy.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from bgp.routes import filters
from bgp.routes.bestpath import Candidate, acceptable, local_pref
from bgp.routes.filters import Rules, Subject
from bgp.routes.validity import Facts, doubt, refusal
from bgp.speaker.interface import IPAddress, IPNetwork

GRACEFUL_SHUTDOWN = "65535:0"


def _unknown(address: IPAddress) -> str:
    return ""


@dataclass
class ImportPolicy:
    """The judge of `bgp.routes.rib.Rib`. `facts` None: the datastore is not known; felix checks."""

    facts: Facts | None = None
    filters: Mapping[str, Rules] = field(default_factory=dict)
    interface: Callable[[IPAddress], str] = _unknown
    """The interface towards an address, empty if unknown."""

    def judge(self, prefix: IPNetwork, path: Candidate) -> Candidate | str:
        """The path as it is used, or why it is not."""
        reason = acceptable(path)
        if not reason and self.facts is not None:
            reason = refusal(prefix, path, self.facts)
        if reason:
            return reason
        doubtful = doubt(prefix, path, self.facts)
        if path.source.filters:
            chosen = [self.filters.get(name) for name in path.source.filters]
            known = [each for each in chosen if each is not None]
            if len(known) < len(chosen):
                return "a BGPFilter of the peering is not known"  # IMP-1
            accepted, path = self._filter(prefix, path, known)
            if accepted is False:
                return "a BGPFilter of the peering rejects it"
            doubtful = "" if accepted else doubtful
        if doubtful:
            return f"{doubtful}; a BGPFilter that accepts it lets it in"
        if GRACEFUL_SHUTDOWN in path.attributes.communities:
            path = replace(path, preference=0)
        return path

    def _filter(
        self, prefix: IPNetwork, path: Candidate, rules: list[Rules]
    ) -> tuple[bool | None, Candidate]:
        """The decision of the filters (None: no rule matched), and the path as they leave it."""
        attributes = path.attributes
        subject = Subject(
            prefix=prefix,
            internal=path.source.internal,
            learned=True,
            interface=self.interface(path.next_hop),
            as_path=attributes.as_path,
            communities=attributes.communities,
            large_communities=attributes.large_communities,
            priority=filters.priority_of(local_pref(path)),
        )
        verdict = filters.run(rules, filters.IMPORT, subject)
        after = verdict.subject
        if after is subject:
            return verdict.accepted, path
        changed = replace(
            attributes,
            as_path=after.prepended + attributes.as_path,
            as_path_length=len(after.prepended) + attributes.as_path_length,
            communities=after.communities,
            large_communities=after.large_communities,
        )
        path = replace(path, attributes=changed)
        if after.priority_set:
            path = replace(path, preference=filters.local_pref_of(after.priority))
        return verdict.accepted, path
