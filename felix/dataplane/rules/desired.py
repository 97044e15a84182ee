"""From the calculation and the parameters to the wanted rules and sets: no I/O in here.

What the calculation tells is a difference; it is kept in the sets and the rule book until it is
in the kernel. Should a difference be lost on the way, `distrust` has the whole told again. What
takes long is done in steps, between which the loop has its other work (`slices`).

Invariants:
  DES-1  An `update` that was given up half-way is made good by the next one: until an update has
         come to its end, the whole is told again.
  DES-2  A step takes far less than 50 ms, however many policies and endpoints there are.
Tested in tests/felix/dataplane/test_chain_store.py, test_chain_store_steps.py and, with a kernel,
test_policy_packets.py.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Set
from typing import cast

from felix.calc.changes import Changes
from felix.calc.endpoints import Endpoint
from felix.calc.hosts import interfaces_of
from felix.calc.policy import PolicyEngine
from felix.calc.policy_model import (
    HostEndpoint,
    IPAddress,
    PolicyChanges,
    ResolvedPolicy,
    SetChange,
    SetKind,
)
from felix.config.parameters import Config
from felix.dataplane.devices.work import Listener
from felix.dataplane.rules.backend import Tables
from felix.dataplane.rules.chain_refcounts import FILTER
from felix.dataplane.rules.chain_store import ChainStore
from felix.dataplane.rules.chain_target import Family
from felix.dataplane.rules.floating import NONE_FLOATING, floating_addresses
from felix.dataplane.rules.ipsets import Sets
from felix.dataplane.rules.settings import rule_settings
from felix.dataplane.rules.static_inputs import (
    OWN_SETS,
    dscp_members,
    dscp_sets,
    own_sets,
    static_facts,
    tunnel_rules,
    unjudged,
)
from felix.rules import ipvs
from felix.rules.inputs import Facts
from felix.rules.nflog_prefix import Tell
from felix.rules.static import tables
from libcalico.model.keys import ResourceKey


class DesiredRules:
    """What the tables and sets of one node should hold. `tell`: which packets are told of;
    `looked_at`: the endpoints that the last update was about, where it was about some; `handed`:
    how much it took of the calculation, by kind.
    """

    def __init__(self, families: frozenset[int], rules: Tables, sets: Sets) -> None:
        self._families = cast("tuple[Family, ...]", tuple(sorted(families)))
        self._rules, self._sets = rules, sets
        self._config: Config | None = None
        self._telling = self.tell = Tell.NOTHING
        self._static: dict[Family, tuple[Config, Facts]] = {}
        self._seen_hosts: Mapping[str, Set[IPAddress]] = {}
        self._serving: Mapping[str, HostEndpoint] = {}
        self._whole = True
        self._active: Mapping[str, Endpoint] = {}
        self._newcomers: set[str] = set()
        self.looked_at: frozenset[str] = frozenset()
        self.handed: Mapping[str, int] = {}
        self._own_sets_of: tuple[object, ...] | None = None
        self._listeners: frozenset[Listener] = frozenset()
        self._services: Set[IPAddress] | None = None
        self.book: ChainStore | None = None
        self.idle_hosts: dict[ResourceKey, str] = {}
        self.floating = NONE_FLOATING

    def distrust(self) -> None:
        """Something went wrong half-way: take the whole next time."""
        self._whole = True

    def update(
        self,
        config: Config,
        news: Changes,
        hosts: Mapping[str, Set[IPAddress]],
        listeners: frozenset[Listener] = frozenset(),
        about: Set[str] | None = None,
    ) -> Iterator[None]:
        """Take what is new, in steps. `hosts`: the host's interfaces with their addresses,
        `listeners`: by what tunnel packets come in, or will as soon as rules say whose. `about`: of
        the endpoints only those of these interfaces are others than before, and all else that is
        given here is as it was; what the calculation tells is taken in any case.

        What the calculation tells is as it was at the first step; what comes between two steps
        is for the next update.
        """
        policies, active = news.policies, news.active
        first, self.looked_at = not policies.flushed, frozenset()
        whole, self._whole = self._whole, True
        self._listeners = listeners
        changes = yield from policies.flushing()
        if whole and not first:
            changes = yield from self._everything(policies)
        self.handed = changes.sizes()
        hosts_differ = whole or bool(changes.host_endpoints) or hosts is not self._seen_hosts
        if hosts_differ:
            self._see_hosts(policies, hosts)
        if whole or hosts_differ or self._services is not None or self._shared(active, about):
            about = None
        if about is None or self.book is None:
            book = self._configure(config, news)
            yield
        else:
            book = self.book
        for change in changes.sets:
            if not change.removed_whole:
                self._sets.change(change)
        yield
        book.take(changes)
        yield
        if whole or changes.endpoints or active is not self._active:
            if about is None:
                names: Iterable[str] = [*(n for n in book.endpoints if n not in active), *active]
            else:
                endpoints = map(news.endpoint, changes.endpoints)
                names = {*about, *(each.interface for each in endpoints if each is not None)}
                self.looked_at = frozenset(names)
            yield from self._endpoints(book, news, names, whole=whole)
            self._active = active
        if hosts_differ:
            book.set_host_endpoints(self._serving)
        book.forget(changes)
        yield from book.write()
        for change in changes.sets:
            if change.removed_whole:
                self._sets.change(change)
        if about is None:
            self._own_sets(config, news)
        self._whole = False

    def _see_hosts(self, policies: PolicyEngine, hosts: Mapping[str, Set[IPAddress]]) -> None:
        """The host's interfaces with their addresses, and the host endpoints that they serve."""
        used = interfaces_of(policies.host_endpoints.values(), hosts)
        self.idle_hosts, self._seen_hosts = used.idle, hosts
        self._serving = used.serving
        self._services = hosts.get(ipvs.LINK)

    def _shared(self, active: Mapping[str, Endpoint], about: Set[str] | None) -> bool:
        """Whether one of these endpoints is, or was, in rules that are not its own."""
        for name in about or ():
            for endpoint in (active.get(name), self._active.get(name)):
                if endpoint is not None and _is_shared(endpoint):
                    return True
        # An address that is an endpoint's own floats no longer (FLT-1).
        return bool(about and self.floating is not NONE_FLOATING)

    def trust(self) -> Iterator[None]:
        """Take from the sets which of them the kernel does not hold as wanted, in steps."""
        if self.book is not None:
            self.book.trust(self._sets.failed)
            yield from self.book.write()

    def warming(self, policy: ResolvedPolicy) -> Iterator[None]:
        """Make and render the rules of a policy ahead, in steps."""
        if self.book is not None:
            yield from self.book.warming(policy)

    def exposed(self) -> frozenset[str]:
        """Interfaces whose pod may have no route before the rules are written.

        Those of new pods for which the kernel still has other chains, of the endpoint or of a
        policy of its: the first packets would meet what a predecessor was allowed.
        """
        if self.book is None or not self._newcomers:
            return frozenset()
        filters = [table for (_, name), table in self._rules.places.items() if name == "filter"]
        newcomers = self._newcomers & self.book.endpoints.keys()
        return self.book.judged(newcomers, lambda name: any(one.differs(name) for one in filters))

    def written(self) -> bool:
        """All that was desired is in the kernel: no endpoint is a newcomer any more. Returns
        whether one was.
        """
        came = bool(self._newcomers)
        self._newcomers.clear()
        if self.book is not None:
            self.book.narrowed = False
            self.book.departed.clear()
        return came

    def open_ways(self, stands: Callable[[str], bool]) -> bool:
        """Whether packets could still come to rules that are not wanted any more.

        Those of an endpoint that lost a family, of one that has not all that its predecessor had,
        and of one that is gone while its interface `stands`.
        """
        book = self.book
        if book is None:
            return False
        places = self._rules.places
        return (
            book.narrowed
            or any(map(stands, book.departed))
            or any(
                places[family, FILTER].differs(name)
                for interface in self._newcomers & book.endpoints.keys()
                for family, name in book.beyond(interface)
            )
        )

    def refuse(self) -> bool:
        """Close what the kernel refuses; returns whether that is something new."""
        refused, book = self._rules.refused, self.book
        if book is None:
            return False
        news = False
        for place, chains in refused.items():
            for name, reason in chains.items():
                news |= book.refuse(place, name, reason)
        return news

    async def reconsider(self) -> bool:
        """Ask the kernel again for what it refused; returns whether it takes some of it now."""
        book = self.book
        taken = False
        for place, chains in (book.refused if book is not None else {}).items():
            for name in await self._rules.accepts(place, chains):
                assert book is not None
                book.accept(place, name)
                taken = True
        return taken

    def unfloated(self) -> dict[ResourceKey, str]:
        """Workloads whose floating addresses do not lead to them."""
        if self._config is None or self._config.floating_ips == "Enabled":
            return self.floating.refused
        reason = "spec.ipNATs: floatingIPs is not Enabled: not translated"
        return {e.key: reason for e in self._active.values() if e.floating}

    def strict(self) -> dict[ResourceKey, str]:
        """What is shut though it is asked for: further source addresses, services in IPVS."""
        if self._config is None:
            return {}
        shut = unjudged(self._config, self._services is not None)
        if self._config.workload_source_spoofing == "Any":
            return shut
        reason = "spec.allowSpoofedSourcePrefixes: workloadSourceSpoofing is not Any: not allowed"
        return shut | {e.key: reason for e in self._active.values() if e.spoofable}

    def _configure(self, config: Config, news: Changes) -> ChainStore:
        allowed = config.floating_ips == "Enabled"
        self.floating = floating_addresses(news.active) if allowed else NONE_FLOATING
        for family in self._families:
            inputs = (config, self._static_facts(family, config, news))
            if self._static.get(family) != inputs:
                settings = rule_settings(config, family)
                self._rules.want(family, tables(family, settings, inputs[1]))
                self._static[family] = inputs
        if self.book is None:
            settings = rule_settings(config, self._families[0], tell=self.tell)
            self.book = ChainStore(self._rules.places, settings, self._rules.dispatch)
            self.book.write_all()
        elif config is not self._config or self.tell is not self._telling:
            self.book.configure(rule_settings(config, self._families[0], tell=self.tell))
        self._config, self._telling = config, self.tell
        return self.book

    def _static_facts(self, family: Family, config: Config, news: Changes) -> Facts:
        tunnels = tunnel_rules(family, config, news.cluster, self._listeners)
        hosts, in_ipvs = bool(self._serving), self._services is not None
        return static_facts(
            family, config, news, tunnels, self.floating, hosts=hosts, in_ipvs=in_ipvs
        )

    def _endpoints(
        self,
        book: ChainStore,
        news: Changes,
        names: Iterable[str],
        *,
        whole: bool,
    ) -> Iterator[None]:
        active, policies = news.active, news.policies
        for interface in names:
            endpoint = active.get(interface)
            policy = policies.endpoint(endpoint.key) if endpoint is not None else None
            if endpoint is None or policy is None:
                # Without a word from the calculation it stays closed.
                book.remove_endpoint(interface)
                yield
                continue
            before, known = self._active.get(interface), book.endpoints.get(interface)
            if before is endpoint and known is policy and not whole:
                continue
            if (
                known is None
                or before is None
                or (before.key, before.container_id) != (endpoint.key, endpoint.container_id)
            ):
                self._newcomers.add(interface)
            book.set_endpoint(interface, policy, endpoint.families, endpoint.limits.chains)
            yield

    def _own_sets(self, config: Config, news: Changes) -> None:
        # There may be thousands of nodes, and most turns are about something else.
        cluster, marked = news.cluster, dscp_members(news.active)
        inputs = (config, cluster.version, self._listeners, self._services, marked)
        if inputs == self._own_sets_of:
            return
        self._own_sets_of = inputs
        tunnels = {
            family: tunnel_rules(family, config, cluster, self._listeners)
            for family in self._families
        }
        sets = own_sets(config, cluster, tunnels, self._services)
        for name, members in {**sets, **dscp_sets(marked)}.items():
            if members is None:
                self._sets.unwant(name)
            else:
                self._sets.want(name, SetKind.NETS, members)

    def _everything(self, engine: PolicyEngine) -> Generator[None, None, PolicyChanges]:
        """The calculation's whole word as one difference."""
        known = self._sets.ids - OWN_SETS
        changes = PolicyChanges(policies=dict(engine.policies), profiles=dict(engine.profiles))
        for set_id, kind in engine.sets.items():
            changes.sets.append(SetChange(set_id, kind, full=engine.members(set_id)))
            yield
        changes.sets += [
            SetChange(set_id, SetKind.NETS, removed_whole=True)
            for set_id in known - engine.sets.keys()
        ]
        for key in self.book.policies - engine.policies.keys() if self.book else ():
            if key.kind != "Profile":
                changes.policies[key] = None
            elif key.name not in engine.profiles:
                changes.profiles[key.name] = None
        return changes


def _is_shared(endpoint: Endpoint) -> bool:
    """Whether rules or sets that are not its own alone name its addresses."""
    marked = endpoint.limits.dscp is not None
    return bool(endpoint.floating or endpoint.spoofable or marked)
