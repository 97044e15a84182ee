"""On which node each endpoint of the cluster is, as far as its addresses matter.

An item of the population that is an endpoint has the number of its node, four bytes; who uses an
address is looked up by the address.

Tested in tests/felix/calc/test_claimed_blocks.py.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from felix.calc.sets.population import Members, Population, texts


class EndpointPlaces:
    """The nodes of the endpoints of a population.

    `moved`, once it is set, hears the addresses whose users may be others now.
    """

    def __init__(self, population: Population) -> None:
        self.population = population
        self.names = [""]
        self._numbers = {"": 0}
        self.moved: Callable[[Iterable[str]], None] | None = None

    def number(self, node: str) -> int:
        """The number of a node, never 0 for a name."""
        number = self._numbers.get(node)
        if number is None:  # the first of its node
            number = self._numbers[node] = len(self.names)
            self.names.append(node)
        return number

    def users(self, address: str) -> set[str]:
        """The nodes with endpoints that have an address."""
        population = self.population
        numbers = {population.nodes[item] for item in population.holders(address)}
        return {self.names[number] for number in numbers if number}

    def members(self, name: Hashable) -> Members:
        """The addresses of an item before it changes; none if there is no such item."""
        number = self.population.numbers.get(name)
        return () if number is None else self.population.members_of[number]

    def put(self, item: int, node: str, before: Members) -> None:
        """An endpoint came or changed; `before`: the addresses that it had."""
        nodes, number = self.population.nodes, self._numbers.get(node) or self.number(node)
        was, nodes[item] = nodes[item], number
        if self.moved is not None:
            after = self.population.members_of[item]
            if before != after or was != number:
                self.moved({*texts(before), *texts(after)})

    def left(self, before: Members) -> None:
        """An endpoint went that had these addresses."""
        if self.moved is not None and before:
            self.moved(texts(before))
