"""This node's own addresses: the choice, its reason in the log, and warnings where it looks wrong.

Start-up and re-detection both choose here, so that both agree on the same machine.
Tested in tests/node/test_node_address.py and tests/node/test_redetect.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from node.identity import autodetect, interfaces
from node.identity.autodetect import Choice, Interface, IPAddress
from node.settings.environment import INTERNAL_IP, AddressSetting, IPInterface, Settings

log = logging.getLogger(__name__)

VARIABLES = {4: "IP", 6: "IP6"}


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts of a choice: the interfaces, and this node's InternalIPs in Kubernetes.

    `unanswered`: Kubernetes was asked and did not answer.
    """

    interfaces: Sequence[Interface]
    internal: tuple[IPAddress, ...] = ()
    unanswered: bool = False


async def look(internal: tuple[IPAddress, ...] = (), unanswered: bool = False) -> Machine:
    """The machine as it is now."""
    return Machine(await asyncio.to_thread(interfaces.read), internal, unanswered)


def by_family(settings: Settings) -> tuple[tuple[int, AddressSetting], ...]:
    """The settings of `IP` and `IP6`, with their families."""
    return ((4, settings.ipv4), (6, settings.ipv6))


def keeps(setting: AddressSetting, backend: str, stored: IPInterface | None) -> bool:
    """Whether the stored address, or its absence, stays with any addresses of the machine."""
    return backend == "none" or setting.mode == "none" or (not setting.mode and stored is not None)


def asks_kubernetes(setting: AddressSetting) -> bool:
    """Whether an InternalIP could be chosen."""
    return setting.mode == "autodetect" and (not setting.asked or setting.method == INTERNAL_IP)


async def first(
    setting: AddressSetting, version: int, machine: Machine, stored: IPInterface | None = None
) -> IPInterface:
    """The address of a node that starts; the log says why. Raises MuslinError without one.

    While Kubernetes does not answer, a stored address stays as long as an interface here has it:
    any other choice would be a guess, and would move the node twice.
    """
    kept = _kept(setting, version, machine, stored)
    if kept is not None:
        say(kept, version, machine)
        return kept.address
    # `can-reach` may ask DNS, which may take long.
    choice = await asyncio.to_thread(
        autodetect.choose,
        setting,
        version,
        machine.interfaces,
        interfaces.source_towards,
        machine.internal,
    )
    chosen = autodetect.require(choice, VARIABLES[version], setting.method)
    say(chosen, version, machine)
    return chosen.address


async def again(
    setting: AddressSetting, version: int, machine: Machine, stored: IPInterface | None
) -> Choice | None:
    """The address of a node that runs, None when this machine has none."""
    kept = _kept(setting, version, machine, stored)
    if kept is not None:
        return kept
    return await asyncio.to_thread(
        autodetect.choose_again,
        setting,
        stored,
        version,
        machine.interfaces,
        interfaces.source_towards,
        machine.internal,
    )


def _kept(
    setting: AddressSetting, version: int, machine: Machine, stored: IPInterface | None
) -> Choice | None:
    """The stored address, if it is on an interface here and Kubernetes does not answer."""
    if not machine.unanswered or stored is None or not asks_kubernetes(setting):
        return None
    for one in autodetect.local(machine.interfaces, version):
        if one.ip == stored.ip:
            return Choice(one, "it is stored and on an interface here; Kubernetes does not answer")
    return None


def say(choice: Choice, version: int, machine: Machine) -> None:
    """Log the choice and its reason, and warn where it will cause trouble."""
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
