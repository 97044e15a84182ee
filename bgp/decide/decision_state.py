"""All that decisions are made from, and the decisions, one method each. No clock, no waiting.

The agent feeds it (datastore, services, passwords, felix's facts) and calls the decision that
a change touches; the results go into `Routing` and the plan. Tested in tests/bgp/test_agent.py and,
after any order of events, in test_any_order.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from bgp.cluster import services
from bgp.cluster.interfaces import Interfaces
from bgp.cluster.ownership import host_route
from bgp.cluster.services import ServiceBatch, ServiceKey, ServiceView
from bgp.cluster.view import ClusterView
from bgp.decide import terms
from bgp.decide.former_reflectors import FormerReflectors
from bgp.decide.make_before_break import MakeBeforeBreak
from bgp.decide.routing import Routing
from bgp.peering import peering
from bgp.peering.passwords import Passwords, SecretRef, over
from bgp.peering.peering import Plan, Settings
from bgp.peering.planned import PlannedPeer
from bgp.routes import communities
from bgp.routes.audiences import audiences
from bgp.routes.export_policy import Terms
from bgp.routes.local_routes import Kind
from bgp.routes.validity import Facts
from bgp.speaker.interface import IPAddress, IPNetwork
from libcalico.model.resources.bgpfilter import BGPFilterSpec

log = logging.getLogger(__name__)


class DecisionState:
    """The state that the node `me` decides from."""

    def __init__(self, me: str, settings: Settings, routing: Routing) -> None:
        self.view = ClusterView(me)
        self.former = FormerReflectors()
        self.passwords = Passwords()
        self.old_secrets: Mapping[SecretRef, str] = {}
        self.old_services: frozenset[IPNetwork] = frozenset()
        """The state before the restart: it counts until a source reports something else."""
        self.services_unread = False
        self.tags = communities.Tags()
        self.datastore: frozenset[IPAddress] = frozenset()
        """The addresses of the datastore, as far as they are known."""
        self._settings, self._routing = settings, routing
        self._services: dict[ServiceKey, ServiceView] = {}
        self._filters = terms.FilterTable()
        self._interfaces = Interfaces()

    # -- what is known

    def unlock(self, known: Passwords) -> None:
        """Use new passwords; an old one is forgotten once its source has answered."""
        self.passwords = known
        answered = known.values.keys() | known.problems.keys() - known.unread
        self.old_secrets = {
            ref: value for ref, value in self.old_secrets.items() if ref not in answered
        }

    def serve(self, batch: ServiceBatch) -> None:
        """Apply changes of services."""
        if batch.in_sync:
            self.services_unread, self.old_services = False, frozenset()
        for key, service in batch.changes:
            if service is None:
                self._services.pop(key, None)
            else:
                self._services[key] = service

    def take_filters(self, specs: Mapping[str, BGPFilterSpec]) -> None:
        """The BGPFilters are these."""
        if self._filters.update(specs):
            self._routing.intake.filters = self._filters.rules
            self._routing.judge_again()

    def take_networks(self, networks: Mapping[str, str]) -> bool:
        """The connected networks, as felix names them; returns whether they are new."""
        interfaces = Interfaces.of(networks)
        if interfaces == self._interfaces:
            return False
        self._interfaces = interfaces
        self._routing.intake.interface = interfaces.towards
        return True

    def filters_of(self, peers: Iterable[PlannedPeer]) -> dict[str, BGPFilterSpec]:
        """The BGPFilters that these sessions use."""
        used = {name for each in peers for name in each.filters}
        return {name: self.view.filters[name] for name in used if name in self.view.filters}

    def towards(self, what: IPAddress | IPNetwork) -> str:
        """The interface towards an address or network of ours, empty if unknown."""
        return self._interfaces.towards(what)

    # -- what follows

    @property
    def announces_services(self) -> bool:
        """Whether any range of services is announced."""
        ranges = self._ranges()
        return bool(ranges.cluster or ranges.external or ranges.load_balancer)

    def planned(self, now: float) -> Plan:
        """The sessions that this node shall hold. `now`: seconds, monotonic."""
        self.former.follow(self.view, now)
        return peering.plan(self.view, self._settings, self.known_passwords)

    @property
    def known_passwords(self) -> Passwords:
        """The passwords in use: as their source gave them, else as before the restart."""
        return over(self.passwords, self.old_secrets)

    @property
    def service_addresses(self) -> frozenset[IPNetwork]:
        """The single addresses of services that this node announces."""
        own = self._routing.own.items()
        return frozenset(
            net for net, kind in own if kind is Kind.SERVICE and net.prefixlen == net.max_prefixlen
        )

    def conditions(self) -> list[tuple[str, str]]:
        """Conditions for an operator: values in use that are not confirmed since the start."""
        reports = [
            (
                "BGP passwords",
                f"{ref}: {self.passwords.problems.get(ref, 'not read yet')}: "
                "the value of before the restart is used",
            )
            for ref in sorted(self.known_passwords.values.keys() - self.passwords.values.keys())
        ]
        if self.services_unread and self.announces_services:
            count = len(services.within(self._ranges(), self.old_services))
            why = f"not read since the start: {count} addresses of before it stay announced"
            reports.append(("Kubernetes services", why))
        return reports

    def decide_filters(self) -> None:
        """BGPFilters and communities."""
        self.tags = communities.tags(self.view)
        for problem in self.tags.problems:
            log.error("%s", problem)
        self.take_filters(self.view.filters)

    def decide_own(self) -> None:
        """The routes that this node has itself."""
        ranges = self._ranges()
        connected = self._interfaces.own(self.view.defaults.ignoredInterfaces)
        known = self._services.values()
        own = terms.own_routes(self.view, ranges, known, connected, self.old_services)
        self._routing.have(own, ranges.whole)

    def decide_terms(self, peers: Iterable[PlannedPeer], handover: MakeBeforeBreak) -> None:
        """Decide the terms of import and export."""
        facts = terms.of_import(
            self.view, self._ranges(), self._routing.rib.own, self._interfaces.links, self.datastore
        )
        before = self._routing.intake.facts
        if facts != before:
            self._routing.intake.facts = facts
            self._routing.judge_again(_touched(before, facts))
        rules, interface = self._filters.rules, self._interfaces.towards
        self._routing.agree(
            terms.of_export(self.view, peers, rules, self.tags, interface, handover)
        )

    def recall(self, terms: Terms, peers: Iterable[PlannedPeer]) -> None:
        """Tell these sessions what they were told before: the datastore has not spoken yet."""
        self._routing.agree(
            replace(
                terms,
                audiences=audiences((each.peer.address, each.manner) for each in peers),
                filters=self._filters.rules,
                interface=self._interfaces.towards,
            )
        )

    def _ranges(self) -> services.Ranges:
        return services.ranges(self.view, self._settings.cluster_ips)

    def decide_lent(self) -> None:
        """What follows from the borrowed addresses."""
        self.decide_own()
        self.decide_owners()

    def decide_owners(self) -> None:
        """Judge the paths to networks whose owners changed again."""
        touched, self.view.touched = self.view.touched, set()
        for network in touched:
            self._routing.judge_again(self._routing.rib.inside(network))


def _touched(before: Facts | None, after: Facts) -> set[IPNetwork] | None:
    """The prefixes whose paths may be judged otherwise; None: all. Nodes come one by one."""
    if before is None or replace(before, neighbours=after.neighbours) != after:
        return None
    differing = before.neighbours.items() ^ after.neighbours.items()
    return {host_route(address) for address, _ in differing}
