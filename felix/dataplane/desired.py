"""From the calculation and the parameters to the wanted rules and sets: pure.

Tested in tests/felix/test_forwarding.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from felix.calc.endpoints import Endpoint
from felix.calc.graph import Calculator
from felix.config.parameters import Config
from felix.dataplane.ipsets import Family, WantedSet
from felix.dataplane.settings import rule_settings
from felix.rules.endpoints import EndpointRules
from felix.rules.model import TableModel
from felix.rules.nat import ALL_HOSTS, ALL_POOLS, MASQUERADED_POOLS
from felix.rules.static import tables


class RuleBuilder:
    """The iptables tables of each family; built anew only when what they depend on changed."""

    def __init__(self) -> None:
        self._built: dict[Family, tuple[object, dict[str, TableModel]]] = {}

    def tables(
        self, family: Family, config: Config, calc: Calculator, active: Mapping[str, Endpoint]
    ) -> dict[str, TableModel]:
        """The tables. Without a policy engine every endpoint is open at its end."""
        masquerade = bool(calc.masqueraded_members(family))
        inputs = (config, tuple(sorted(active)), masquerade)
        built = self._built.get(family)
        if built is None or built[0] != inputs:
            endpoints = {name: EndpointRules(name, open_end=True) for name in active}
            settings = rule_settings(config, family)
            built = (inputs, tables(family, settings, endpoints, nat_outgoing=masquerade))
            self._built[family] = built
        return built[1]


def wanted_sets(families: frozenset[int], config: Config, calc: Calculator) -> dict[str, WantedSet]:
    """The ipsets of these families, by name."""
    found: dict[str, WantedSet] = {}
    for number in sorted(families):
        family = cast(Family, number)
        contents = {
            ALL_POOLS: calc.pool_members(family),
            MASQUERADED_POOLS: calc.masqueraded_members(family),
        }
        if config.nat_outgoing_exclusions == "IPPoolsAndHostIPs":
            contents[ALL_HOSTS] = calc.host_members(family)
        for set_id, members in contents.items():
            wanted = WantedSet(set_id, family, "hash:net", members)
            found[wanted.name] = wanted
    return found
