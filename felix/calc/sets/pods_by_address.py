"""The pod of an address, anywhere in the cluster, by what the calculation keeps of endpoints.

Felix keeps no object of another node's pod; its name follows from the name of the stored endpoint.
Tested in tests/felix/calc/test_pods_by_address.py.
"""

from __future__ import annotations

from felix.calc.sets.population import Population
from libcalico import names
from libcalico.errors import InvalidValue


def pod_at(population: Population, address: str) -> str:
    """`NAMESPACE/POD` of the workload that has the address, "" where none has; of several, as
    while a pod moves, the first by name. It walks over all names: ask seldom."""
    holders = set(population.holders(address))
    if not holders:
        return ""
    workloads = sorted(
        name
        for name, number in population.numbers.items()
        if number in holders and isinstance(name, str)
    )
    if not workloads:
        return ""
    namespace, _, endpoint = workloads[0].partition("/")
    return f"{namespace}/{pod_of(endpoint)}"


def pod_of(endpoint: str) -> str:
    """The pod by the name of its stored endpoint; that name itself where it says none."""
    try:
        return names.parse(endpoint).workload
    except InvalidValue:
        return endpoint
