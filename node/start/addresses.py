"""This node's own addresses: chosen, explained in the log, and doubted where they look wrong.

Start-up and re-detection both ask here, so that both say the same of the same machine.
Tested in tests/node/test_node_address.py and tests/node/test_redetect.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from node.identity import autodetect, interfaces
from node.identity.autodetect import Choice, Interface, IPAddress
from node.settings.environment import INTERNAL_IP, AddressWish, IPInterface, Settings

log = logging.getLogger(__name__)

VARIABLES = {4: "IP", 6: "IP6"}


@dataclass(frozen=True, slots=True)
class Machine:
    """What a choice is made from: interfaces, and what Kubernetes calls this node's addresses.

    `unanswered`: Kubernetes should have said, and did not.
    """

    interfaces: Sequence[Interface]
    internal: tuple[IPAddress, ...] = ()
    unanswered: bool = False


async def look(internal: tuple[IPAddress, ...] = (), unanswered: bool = False) -> Machine:
    """The machine as it is now."""
    return Machine(await asyncio.to_thread(interfaces.read), internal, unanswered)


def wishes(settings: Settings) -> tuple[tuple[int, AddressWish], ...]:
    """What is wished, by family."""
    return ((4, settings.ipv4), (6, settings.ipv6))


def keeps(wish: AddressWish, backend: str, stored: IPInterface | None) -> bool:
    """Whether what is stored (also nothing) stays, whatever the machine has."""
    return backend == "none" or wish.mode == "none" or (not wish.mode and stored is not None)


def asks_kubernetes(wish: AddressWish) -> bool:
    """Whether an InternalIP could be the answer."""
    return wish.mode == "autodetect" and (not wish.asked or wish.method == INTERNAL_IP)


async def first(
    wish: AddressWish, version: int, machine: Machine, stored: IPInterface | None = None
) -> IPInterface:
    """The address of a node that starts; the log says why. Raises MuslinError without one.

    What was stored when Kubernetes answered stays while it does not, as long as an interface here
    has it: any other choice would be a guess, and would move the node twice.
    """
    kept = _kept(wish, version, machine, stored)
    if kept is not None:
        say(kept, version, machine)
        return kept.address
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
    kept = _kept(wish, version, machine, stored)
    if kept is not None:
        return kept
    return await asyncio.to_thread(
        autodetect.choose_again,
        wish,
        stored,
        version,
        machine.interfaces,
        interfaces.source_towards,
        machine.internal,
    )


def _kept(
    wish: AddressWish, version: int, machine: Machine, stored: IPInterface | None
) -> Choice | None:
    """The stored address, while it is here and Kubernetes does not say otherwise."""
    if not machine.unanswered or stored is None or not asks_kubernetes(wish):
        return None
    for one in autodetect.local(machine.interfaces, version):
        if one.ip == stored.ip:
            return Choice(one, "it is stored and on an interface here; Kubernetes does not answer")
    return None


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
