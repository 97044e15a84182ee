"""The way of a connection's first packet, and who decides at each station of it.

    in by an interface of the host    untracked, preDNAT, applyOnForward: its host endpoint
    from a pod                        the pod's egress policy
    to a pod                          the pod's ingress policy
    out by an interface of the host   applyOnForward: its host endpoint
    to or from the host itself        untracked, preDNAT, then its host endpoint's policy

Every station must let it pass; an untracked or preDNAT policy that allows speaks for the later
stations of its host (docs/reference/dataplane.md#raw-table, #mangle-table, #filter-table). `*` is
asked for pods' interfaces, too, wherever the chains ask it (`felix.rules.hosts`).

Invariants:
  EXP-2  Without host endpoints the verdict between two pods is that of the source's egress and
         the destination's ingress.
  EXP-3  What the datastore cannot tell (which interface a packet takes, who stands behind a
         service) makes the answer uncertain and never changes a verdict in silence.
Tested in tests/felix/explain/test_explain.py, test_random.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from felix.calc.policy_model import ANY_INTERFACE, HostEndpoint, TierView
from felix.config.parameters import Config
from felix.dataplane.rules.settings import rule_settings
from felix.explain.ends import End, What
from felix.explain.flow import Kind, Packet
from felix.explain.matching import Matcher
from felix.explain.notes import masquerade_note, service_notes
from felix.explain.stations import (
    FORWARD,
    HOST,
    NORMAL,
    PRE_DNAT,
    TABLES,
    UNTRACKED,
    Explanation,
    Station,
)
from felix.explain.walk import By, Ruling, walk
from felix.explain.world import NOWHERE, Calculation, World, calculate
from felix.rules.hosts import failsafe_chains
from felix.rules.inputs import RuleSettings


class Questions:
    """Questions about one pair of ends; the calculation is made once for all of them."""

    def __init__(self, world: World, source: End, destination: End) -> None:
        self.world, self.source, self.destination = world, source, destination
        self._ends = (source, destination)
        pods = [e.endpoint for e in self._ends if e.what is What.POD]
        self._pods = frozenset(key for key in pods if key is not None)
        self._hosting = {value.spec.node for _, value in world.of("HostEndpoint")}
        self._calculations: dict[str, Calculation] = {}
        self._matchers: dict[str, Matcher] = {}
        self._configs: dict[str, Config] = {}
        self._settings: dict[tuple[str, int], RuleSettings] = {}

    def calculation(self, node: str) -> Calculation:
        """The calculation that knows the host endpoints of a node, and both pods."""
        where = node if node in self._hosting else NOWHERE
        if where not in self._calculations:
            self._calculations[where] = calculate(self.world, self._pods, where, staged=True)
        return self._calculations[where]

    def matcher(self, node: str) -> Matcher:
        """What rules match there."""
        engine = self.calculation(node).engine
        if engine.node not in self._matchers:
            self._matchers[engine.node] = Matcher(engine)
        return self._matchers[engine.node]

    def config(self, node: str) -> Config:
        """Felix's parameters there, as far as the datastore says."""
        if node not in self._configs:
            self._configs[node] = self.world.config(node)
        return self._configs[node]

    def settings(self, node: str, version: int) -> RuleSettings:
        """What the rules of that node and family depend on."""
        which = (node, version)
        if which not in self._settings:
            self._settings[which] = rule_settings(self.config(node), version)
        return self._settings[which]

    def versions(self) -> list[int]:
        """The families that both ends have."""
        return [v for v in (4, 6) if all(end.address(v) is not None for end in self._ends)]

    def ask(self, kind: Kind, version: int) -> Explanation:
        """What happens to a packet of this kind. Raises MuslinError: an end lacks the family."""
        source, destination = (end.require_address(version) for end in self._ends)
        packet = Packet(source, destination, kind)
        stations: list[Station] = []
        for station in self._way(packet):
            stations.append(station)
            if station.ruling.allowed is False and station.sure:
                break
        allowed = all(s.ruling.allowed is not False for s in stations if s.sure)
        doubtful = any(not s.sure and s.ruling.allowed is False for s in stations)
        guessed = any(end.note for end in self._ends if end.what is What.HOST)
        unknown = service_notes(self.world, stations)
        notes = [*self._notes(packet), *unknown, *(s.ruling.note for s in stations)]
        return Explanation(
            packet,
            allowed,
            tuple(stations),
            tuple(dict.fromkeys(filter(None, notes))),
            certain=not (guessed or unknown or (allowed and doubtful)),
        )

    # -- the way ---------------------------------------------------------------------------------

    def _way(self, packet: Packet) -> Iterator[Station]:
        source, destination = self.source, self.destination
        from_pod, to_pod = source.what is What.POD, destination.what is What.POD
        if source.node and source.node == destination.node:
            if from_pod and to_pod:
                yield from self._through(source.node, packet, source, destination)
            elif from_pod:
                yield from self._to_own_host(source, destination, packet)
            elif to_pod:
                note = "a node reaches its own pods whatever policy says"
                yield Station(True, destination, HOST, Ruling(True, By.SETTING, note=note))
            return
        if from_pod:
            yield from self._through(source.node, packet, source, None)
        elif source.what is What.HOST:
            yield from self._host(source, packet, ingress=False)
        if to_pod:
            yield from self._through(destination.node, packet, None, destination)
        elif destination.what is What.HOST:
            yield from self._host(destination, packet, ingress=True)

    def _through(
        self, node: str, packet: Packet, sender: End | None, receiver: End | None
    ) -> Iterator[Station]:
        """A node forwards; `sender` and `receiver` are its own pods, None what is beyond it."""
        yield from self._enters(node, packet, workload=sender is not None, forward=True)
        if sender is not None:
            yield self.pod_station(sender, packet, ingress=False)
        if receiver is not None:
            yield self.pod_station(receiver, packet, ingress=True)
        for host, sure in self._judges(node, workload=receiver is not None):
            yield from self._stage(node, host, FORWARD, packet, sure=sure, ingress=False)

    def _enters(
        self, node: str, packet: Packet, *, workload: bool, forward: bool
    ) -> Iterator[Station]:
        for host, sure in self._judges(node, workload=workload):
            stages = [PRE_DNAT] if workload else [UNTRACKED, PRE_DNAT]
            for stage in [*stages, FORWARD] if forward else stages:
                accepted = False
                for station in self._stage(node, host, stage, packet, sure=sure, ingress=True):
                    yield station
                    accepted = bool(station.ruling.allowed)
                if accepted:
                    break

    def _judges(self, node: str, *, workload: bool) -> list[tuple[HostEndpoint, bool]]:
        """The host endpoints that may judge at an interface, and whether they do."""
        hosts = [each for _, each in sorted(self.calculation(node).engine.host_endpoints.items())]
        everywhere = [each for each in hosts if each.interface == ANY_INTERFACE][:1]
        if workload:
            return [(each, True) for each in everywhere]
        named = [each for each in hosts if each.interface != ANY_INTERFACE]
        return [(each, not named) for each in (*named, *everywhere)]

    def _stage(
        self,
        node: str,
        host: HostEndpoint,
        stage: str,
        packet: Packet,
        *,
        ingress: bool,
        sure: bool = True,
    ) -> Iterator[Station]:
        policy = host.policy
        lists = {UNTRACKED: policy.untracked, PRE_DNAT: policy.pre_dnat, FORWARD: policy.forward}
        tiers: Sequence[TierView] = lists[stage]
        if not tiers or (stage != FORWARD and self._failsafe(node, stage, packet, ingress)):
            return
        ruling = walk(tiers, None, packet, self.matcher(node), ingress=ingress)
        end = End(What.HOST, f"host endpoint {host.key.name}", (), node, host.key)
        yield Station(ingress, end, stage, ruling, sure, host.interface)

    def pod_station(self, end: End, packet: Packet, *, ingress: bool) -> Station:
        """What a pod's policy says in one direction, without what came before."""
        assert end.endpoint is not None
        calculation = self.calculation(end.node)
        policy = calculation.engine.endpoint(end.endpoint)
        if policy is None:
            why = calculation.refused.get(end.endpoint, "")
            ruling = Ruling(False, By.NOTHING, note=f"{end.title} is not served: {why}")
        else:
            matcher = self.matcher(end.node)
            ruling = walk(policy.tiers, policy.profiles, packet, matcher, ingress=ingress)
        interface = self.world.objects[end.endpoint].spec.interfaceName
        return Station(ingress, end, NORMAL, ruling, interface=interface)

    def _to_own_host(self, source: End, destination: End, packet: Packet) -> Iterator[Station]:
        yield from self._enters(source.node, packet, workload=True, forward=False)
        yield self.pod_station(source, packet, ingress=False)
        action = self.config(source.node).default_endpoint_to_host_action
        note = f"defaultEndpointToHostAction is {action}"
        if action == "RETURN":
            note += ": the host's own rules decide, which are not looked at"
        ruling = Ruling(action in ("ACCEPT", "RETURN"), By.SETTING, note=note)
        yield Station(True, destination, HOST, ruling)

    def _host(self, end: End, packet: Packet, *, ingress: bool) -> Iterator[Station]:
        engine = self.calculation(end.node).engine
        host = None if end.endpoint is None else engine.host_endpoints.get(end.endpoint)
        if host is None:
            note = f"{end.title} has no host endpoint: nothing judges it"
            yield Station(ingress, end, NORMAL, Ruling(True, By.NOTHING, note=note))
            return
        for stage in (UNTRACKED, PRE_DNAT) if ingress else (UNTRACKED,):
            for station in self._stage(end.node, host, stage, packet, ingress=ingress):
                yield station
                if station.ruling.allowed:
                    return
        if self._failsafe(end.node, NORMAL, packet, ingress):
            ruling = Ruling(True, By.FAILSAFE)
        else:
            policy = host.policy
            matcher = self.matcher(end.node)
            ruling = walk(policy.tiers, policy.profiles, packet, matcher, ingress=ingress)
        yield Station(ingress, end, NORMAL, ruling, interface=host.interface)

    def _failsafe(self, node: str, stage: str, packet: Packet, ingress: bool) -> bool:
        hosts = self.settings(node, packet.version).hosts
        into, out = failsafe_chains(TABLES[stage], packet.version, hosts)
        matcher = self.matcher(node)
        return any(matcher.hold(rule.match, packet) for rule in (into if ingress else out).rules)

    # -- what else is to be known ----------------------------------------------------------------

    def _notes(self, packet: Packet) -> Iterator[str]:
        yield from (end.note for end in self._ends)
        if self.source.what is What.POD:
            yield from masquerade_note(self.world, self.source, packet)
        yield from self.world.unreadable
        for end in self._ends:
            for key, reason in sorted(self.calculation(end.node).engine.conditions.items()):
                if key.kind.endswith(("Policy", "Profile")) and not key.kind.startswith("Staged"):
                    yield f"{key}: {reason}"
