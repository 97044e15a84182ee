"""What an address is: a workload, a host, a network set, or a network that nothing names.

As in Calico: an endpoint of the cluster goes before a host,
a host before a network set, of network sets that with the longest prefix; what is left is `pvt` (an
address of private use) or `pub`. A workload is called by its aggregated name, which all pods of a
controller have.

Felix keeps no object of another node's pod. Its name, and so its aggregated name, follows from the
name of the stored endpoint; what is asked is remembered for a moment.

Invariant:
  FEN-1  Which of several holders of one address is named depends on the holders only.
Tested in tests/felix/flows/test_ends.py.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from felix.calc.graph import Calculator
from felix.calc.sets.pods_by_address import pod_of
from felix.calc.sets.population import Population
from felix.explain.matching import spellings
from flows.record import PRIVATE, PRIVATE_NETWORKS, PUBLIC, End, EndKind
from libcalico.model import ResourceKey
from libcalico.policy_selectors import NAMESPACE_PREFIX, SERVICE_ACCOUNT_PREFIX

IPAddress = IPv4Address | IPv6Address
MOST_KNOWN = 20_000
"""Addresses that are remembered until the next change."""
_PRIVATE = tuple(map(ip_network, PRIVATE_NETWORKS))
_GENERATED = re.compile(r"(.+-)[bcdfghjklmnpqrstvwxz2456789]{5}")
"""A name that Kubernetes made of a prefix: five letters and digits that spell no word."""
_ORDINAL = re.compile(r"(.+-)[0-9]+")
_OF_STATEFUL_SET = "statefulset.kubernetes.io/pod-name"
_INHERITED = (NAMESPACE_PREFIX, SERVICE_ACCOUNT_PREFIX)


@dataclass(frozen=True, slots=True)
class Known:
    """An end, its labels as `key=value`, sorted, and the key of a workload of this node."""

    end: End
    labels: tuple[str, ...] = ()
    endpoint: ResourceKey | None = None


def aggregated(pod: str, labels: Iterable[str] = ()) -> str:
    """The name that all pods of a controller have: `web-7d4b9c-*` of `web-7d4b9c-x2x7k`.

    As Calico's, which has it of the pod's generateName; a pod without a controller keeps its own.
    """
    stateful = any(label.startswith(_OF_STATEFUL_SET) for label in labels)
    answer = (_ORDINAL if stateful else _GENERATED).fullmatch(pod)
    return f"{answer.group(1)}*" if answer is not None else pod


class Ends:
    """The ends of one cluster, by address. `forget` after a change, or once in a while."""

    def __init__(self, calc: Calculator) -> None:
        self._calc = calc
        self._workloads: dict[bytes, Known] = {}
        self._others: dict[bytes, Known] = {}
        self._names: dict[int, Hashable] = {}
        self._hosts: tuple[int, dict[IPAddress, str]] = (-1, {})

    def forget(self) -> None:
        """Look up everything anew."""
        self._workloads.clear()
        self._others.clear()

    def forget_others(self) -> None:
        """Look up anew what was no workload: a pod may be there by now."""
        self._others.clear()

    def known(self, address: bytes) -> Known:
        """What this address is now."""
        answer = self._workloads.get(address) or self._others.get(address)
        if answer is None:
            answer = self._look_up(ip_address(address))
            kind = self._workloads if answer.end.kind is EndKind.WORKLOAD else self._others
            if len(kind) >= MOST_KNOWN:
                kind.clear()
            kind[address] = answer
        return answer

    def _look_up(self, address: IPAddress) -> Known:
        holders = list(self._holders(str(address)))
        workloads = [name for name, _ in holders if isinstance(name, str)]
        if workloads:
            local = self._calc.policy.endpoints
            keys = [_key(name) for name in sorted(workloads)]
            key = next((one for one in keys if one in local), keys[0])
            labels = next(each for name, each in holders if name == _name(key))
            return self._workload(key, labels)
        hosts = [key for key, _ in holders if isinstance(key, ResourceKey)]
        for key in sorted(hosts, key=str):
            if key.kind == "HostEndpoint":
                labels = next(each for name, each in holders if name == key)
                name = self._nodes().get(address, "") or key.name
                return Known(End(EndKind.HOST, name), labels)
        node = self._nodes().get(address)
        if node is not None:
            return Known(End(EndKind.HOST, node))
        return self._network_set(address) or Known(End(EndKind.NETWORK, network(address)))

    def _workload(self, key: ResourceKey, labels: tuple[str, ...]) -> Known:
        endpoint = self._calc.endpoints.get(key)
        if endpoint is not None and endpoint.workload:
            pod = endpoint.workload.rpartition("/")[2]
        else:
            pod = pod_of(key.name)
        end = End(EndKind.WORKLOAD, aggregated(pod, labels), key.namespace)
        return Known(end, labels, key if key in self._calc.policy.endpoints else None)

    def _network_set(self, address: IPAddress) -> Known | None:
        own, *wider = spellings(address)
        for text in (own, *reversed(wider)):
            sets = [
                (key, labels)
                for key, labels in self._holders(text)
                if isinstance(key, ResourceKey) and key.kind.endswith("NetworkSet")
            ]
            if sets:
                key, labels = min(sets, key=lambda one: str(one[0]))
                return Known(End(EndKind.NETWORK_SET, key.name, key.namespace), labels)
        return None

    def _holders(self, text: str) -> Iterator[tuple[Hashable, tuple[str, ...]]]:
        population = self._calc.policy.places.population
        for number in population.holders(text):
            name = self._name_of(population, number)
            if name is not None:
                labels = population.label_sets.labels(population.label_set_of[number])
                yield (
                    name,
                    tuple(
                        sorted(
                            f"{k}={v}" for k, v in labels.items() if not k.startswith(_INHERITED)
                        )
                    ),
                )

    def _name_of(self, population: Population, number: int) -> Hashable | None:
        name = self._names.get(number)
        if name is None or population.numbers.get(name) != number:
            # Numbers are given again; all names at once cost less than a column that follows.
            self._names = {each: name for name, each in population.numbers.items()}
            name = self._names.get(number)
        return name

    def _nodes(self) -> dict[IPAddress, str]:
        version, addresses = self._hosts
        if version != self._calc.cluster_version:
            addresses = {}
            for name, facts in sorted(self._calc.nodes.items(), reverse=True):
                ends = [vtep.address for vtep in facts.vteps]
                if facts.ipip is not None:
                    ends.append(facts.ipip)
                addresses |= dict.fromkeys((*facts.addresses, *ends), name)
            self._hosts = (self._calc.cluster_version, addresses)
        return addresses


def network(address: IPAddress) -> str:
    """What an address is called that nothing in the cluster names."""
    return PRIVATE if any(address in each for each in _PRIVATE) else PUBLIC


def _key(name: str) -> ResourceKey:
    namespace, _, own = name.partition("/")
    return ResourceKey("WorkloadEndpoint", own, namespace)


def _name(key: ResourceKey) -> str:
    return f"{key.namespace}/{key.name}"
