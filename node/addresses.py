"""This node's own addresses: chosen, explained in the log, and doubted where they look wrong.

Start-up and re-detection both ask here, so that both say the same of the same machine.
Tested in tests/node/test_node_address.py and tests/node/test_redetect.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from node import autodetect, interfaces
from node.autodetect import Choice, Interface, IPAddress
from node.environment import AddressWish, IPInterface, Settings

log = logging.getLogger(__name__)

VARIABLES = {4: "IP", 6: "IP6"}


@dataclass(frozen=True, slots=True)
class Machine:
    """What a choice is made from: interfaces, and what Kubernetes calls this node's addresses."""

    interfaces: Sequence[Interface]
    internal: tuple[IPAddress, ...] = ()


async def look(internal: tuple[IPAddress, ...] = ()) -> Machine:
    """The machine as it is now."""
    return Machine(await asyncio.to_thread(interfaces.read), internal)


def wishes(settings: Settings) -> tuple[tuple[int, AddressWish], ...]:
    """What is wished, by family."""
    return ((4, settings.ipv4), (6, settings.ipv6))


def keeps(wish: AddressWish, backend: str, stored: IPInterface | None) -> bool:
    """Whether what is stored (also nothing) stays, whatever the machine has."""
    return backend == "none" or wish.mode == "none" or (not wish.mode and stored is not None)


async def first(wish: AddressWish, version: int, machine: Machine) -> IPInterface:
    """The address of a node that starts; the log says why. Raises MuslinError without one."""
    # `can-reach` may ask DNS, which may take its time.
    choice = await asyncio.to_thread(
        autodetect.choose,
        wish,
        version,
        machine.interfaces,
        interfaces.source_towards,
        machine.internal,
    )
    chosen = autodetect.require(choice, VARIABLES[version], wish.method)
    say(chosen, version, machine)
    return chosen.address


async def again(
    wish: AddressWish, version: int, machine: Machine, stored: IPInterface | None
) -> Choice | None:
    """The address of a node that runs, None when this machine has none to offer."""
    return await asyncio.to_thread(
        autodetect.choose_again,
        wish,
        stored,
        version,
        machine.interfaces,
        interfaces.source_towards,
        machine.internal,
    )


def say(choice: Choice, version: int, machine: Machine) -> None:
    """Tell what was chosen and why, and what about it will hurt."""
    address, variable = choice.address, VARIABLES[version]
    log.info("chose this node's IPv%d address %s: %s", version, address, choice.why)
    if all(address.ip != one.ip for one in autodetect.local(machine.interfaces, version)):
        log.warning("%s %s is on no interface of this node", variable, address.ip)
    elif address.network.prefixlen == address.max_prefixlen:
        log.warning(
            "%s %s has no subnet: cross-subnet pools will encapsulate to every node;"
            " give the address its mask on the interface, or in %s",
            variable,
            address,
            variable,
        )
