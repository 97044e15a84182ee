"""Which endpoints are in force: judged after each turn, for all endpoints or for some.

The program that starts a pod may make its link and its routes itself, and asks only whether the
rules and sets stand (`Await.wired`). `ruled` answers that, with the routes that are left to be
written.

DPL-3 is judged here. Invariant:
  STL-1  An endpoint is ruled only while nothing but its link and its routes is lacking; its routes
         are left to others only while no other endpoint has one of its addresses, and none of
         these is held.
Tested in tests/felix/dataplane/test_in_force.py, test_policy_in_force.py, test_node_server.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from felix.calc.endpoints import Endpoint
from felix.dataplane.devices.view import KernelView
from felix.dataplane.routes.routes import RouteTable
from felix.dataplane.turn.state import State
from libcalico.model import ResourceKey

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network


class InForce:
    """Judges endpoints by what the rules, the view and the routes hold. `withheld`: cni asked
    for an endpoint whose rules are programmed, but whose addresses are not free.
    """

    def __init__(self, state: State, view: KernelView, routes: RouteTable) -> None:
        self._state, self._view, self._routes = state, view, routes
        self._proven: dict[str, tuple[Endpoint, int, int]] = {}
        self._keys: dict[str, ResourceKey] = {}
        self.withheld = False

    def settle(
        self,
        active: Mapping[str, Endpoint],
        judged: Collection[str],
        *,
        families: Set[int],
        floating: Mapping[str, tuple[IPNetwork, ...]],
        unfit: Collection[str],
        rules_written: bool,
        about: Iterable[str] | None,
    ) -> None:
        """`judged`: interfaces with rules, `unfit`: those whose link could not be set up, `about`:
        those that may have changed, None: all.
        """
        state = self._state
        in_force: dict[ResourceKey, Endpoint] = {}
        ruled: dict[ResourceKey, tuple[Endpoint, tuple[IPNetwork, ...]]] = {}
        gone: set[ResourceKey] = set()
        names = list(active) if about is None else about
        for name in names:
            endpoint, before = active.get(name), self._keys.pop(name, None)
            if before is not None and (endpoint is None or before != endpoint.key):
                gone.add(before)
            if endpoint is None:
                self._proven.pop(name, None)
                continue
            self._keys[name] = endpoint.key
            # A refused restore leaves the old rules whole: what they held is still in force.
            stands = rules_written or state.in_force.get(endpoint.key) == endpoint
            if name not in judged or name in unfit or not stands:
                continue
            if self._serves(name, endpoint):
                in_force[endpoint.key] = endpoint
                continue
            if rules_written:
                networks = (*endpoint.networks, *floating.get(name, ()))
                programmed = tuple(network for network in networks if network.version in families)
                ruled[endpoint.key] = endpoint, programmed
        if about is None:
            for gone_name in self._keys.keys() - active.keys():
                del self._keys[gone_name]
                self._proven.pop(gone_name, None)
            state.ruled = ruled
            state.settle(in_force)
            return
        # One that moved to another interface is gone from the first only.
        about_keys = {*gone, *(active[name].key for name in names if name in active)}
        for key in about_keys:
            state.ruled.pop(key, None)
        state.ruled.update(ruled)
        state.settle_some(about_keys, in_force)

    def settle_new(
        self,
        active: Mapping[str, Endpoint],
        judged: Collection[str],
        families: frozenset[int],
        floating: Mapping[str, tuple[IPNetwork, ...]],
        about: Iterable[str],
    ) -> list[ResourceKey]:
        """Rules and sets were just written: those of these that wait for their link, which are
        ruled from now on. What there is to be done with links and routes need not be waited for.
        """
        # Whose addresses are claimed is a matter of the routes wanted (STL-1).
        nothing = frozenset[IPNetwork]()
        self._routes.want_local(active, nothing, self._view, families, floating, about)
        keys = []
        for name in about:
            endpoint = active.get(name)
            if endpoint is None or name not in judged or self._view.link_named(name) is not None:
                continue
            networks = (*endpoint.networks, *floating.get(name, ()))
            programmed = tuple(network for network in networks if network.version in families)
            self._state.ruled[endpoint.key] = endpoint, programmed
            keys.append(endpoint.key)
        return keys

    def stands(self, endpoint: Endpoint) -> bool:
        """Whether its link and routes are as they were when it was found in force: nothing is left
        to be looked at that may have taken them away.
        """
        link, view = self._view.link_named(endpoint.interface), self._view
        if view.outdated or link is None or link.index in view.suspects:
            return False
        return self._serves(endpoint.interface, endpoint)

    def _serves(self, name: str, endpoint: Endpoint) -> bool:
        """Whether its link is up and the kernel has its routes."""
        link = self._view.link_named(name)
        if link is None or not link.up:
            return False
        proof = (endpoint, link.index, self._routes.generation)
        if self._proven.get(name) == proof:
            return True
        if not self._routes.serves(name):
            self._proven.pop(name, None)
            return False
        self._proven[name] = proof
        return True

    def ruled(self, key: ResourceKey, held: Set[IPAddress]) -> tuple[Endpoint, list[str]] | None:
        """The endpoint and the routes that it lacks, if another program may write these (STL-1).

        `held`: addresses that may have no route yet.
        """
        endpoint, networks = self._state.ruled.get(key, (None, ()))
        if endpoint is None:
            return None
        for network in networks:
            free = self._routes.free(endpoint.interface, network, self._view)
            if network.network_address in held or not free:
                self.withheld = True
                return None
        return endpoint, list(map(str, networks))
