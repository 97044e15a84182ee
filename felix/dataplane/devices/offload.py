"""Checksums inside tunnels: who computes them, and whether that works.

A VXLAN device hands packets on whose checksum the next device is to fill in: the network card,
or the kernel where the card says that it cannot. Some cards, drivers and hypervisors say that they
can and do it wrongly inside a tunnel; kernels before 5.8 do where the outer packet is translated.
Every such packet is then dropped at the other end in silence: pings work (theirs is never left to
a card), connections hang. So this is tested, not trusted (PAIN-22): to the far ends that routes
lead to, one TCP segment as programs send it, and where that is not answered one with its checksum.

Who decides, in this order:
  `featureDetectOverride: ChecksumOffloadBroken=true`   off, on every tunnel device
  `...=false`                                           on, untested
  a kernel before 5.8                                   off
  the test: found broken                                off on that device, and a condition
  else                                                  left as it is

Invariants:
  OFL-1  The test alone never switches off a device whose own packets were answered.
  OFL-2  Found broken means: unanswered with the offload, answered without it, at one far end, by
         complete segments first and then by the device itself once it is switched off.
  OFL-3  A test without an answer, such as behind a firewall, changes nothing.
Tested in tests/felix/dataplane/test_offload.py.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass

from felix.calc.nodes import IPAddress
from felix.config.parameters import Config
from felix.dataplane.devices.mtu import IPIP, VXLAN, VXLAN_V6
from felix.dataplane.devices.view import KernelView
from felix.dataplane.devices.work import LinkWork
from libcalico.process import tasks
from linux import offload
from linux.errors import KernelError
from linux.links import Link
from linux.tcp_probe import Target, answered, answered_complete

FEATURE = "ChecksumOffloadBroken"
PORT = 179
"""Calico's failsafe ports leave it open; at a tunnel's address it is refused, which will do."""
FAR_ENDS = 3
"""How many are asked in one test."""
PATIENCE = 3.5
"""Seconds for an answer: a lost segment is sent twice more meanwhile."""
AGAIN = (10.0, 60.0, 600.0)
"""Seconds until a test that was not answered is repeated; the last of them for ever."""
LOOK = 10.0
"""Seconds between two looks at a setting that was made."""
_FIRST_SOUND = (5, 8)
_TESTED = {VXLAN: 4, VXLAN_V6: 6}

log = logging.getLogger(__name__)


@dataclass
class _Device:
    """What is known of one device."""

    index: int
    scanned: int = -1
    """The state of the routes when far ends were last looked for."""
    sound: bool | None = None
    tries: int = 0
    due: float = 0.0
    """When to look or test again, by the keeper's clock."""
    broken_to: str = ""
    problem: str = ""
    task: asyncio.Task[None] | None = None


class ChecksumOffload:
    """Settings of the tunnel devices. `clock` gives seconds; `kick` asks for a turn;
    `ready` names the devices that stand.
    """

    def __init__(
        self, clock: Callable[[], float], kick: Callable[[], None], ready: Callable[[], Set[str]]
    ) -> None:
        self._clock, self._kick, self._ready = clock, kick, ready
        self._devices: dict[str, _Device] = {}
        self._said: object = None
        self._kernel_broken = kernel_is_broken(os.uname().release)

    def problems(self, node: str) -> list[tuple[str, str]]:
        """(object, reason) of what was found."""
        problems = []
        for name, device in self._devices.items():
            if device.broken_to:
                problems.append((f"Node({node})", _found(name, device.broken_to)))
            if device.problem:
                problems.append((f"Node({node})", device.problem))
        return problems

    def commit(self, work: LinkWork) -> tuple[int, ...]:
        """Make the devices that stand as decided; tests begin beside. No link is touched."""
        view, config, routes, ready = work.view, work.config, work.routes_written, self._ready()
        if config.feature_detect_override != self._said:
            self._said = config.feature_detect_override
            for device in self._devices.values():
                device.due = 0.0
        for name in (IPIP, VXLAN, VXLAN_V6):
            link, known = view.link_named(name), self._devices.get(name)
            if known is not None and (link is None or known.index != link.index):
                self._forget(name)
            if link is None or name not in ready:
                continue
            device = self._devices.setdefault(name, _Device(link.index))
            news = device.sound is None and not device.tries and device.scanned != routes
            if device.task is None and (news or self._clock() >= device.due):
                device.scanned = routes
                self._look(view, config, link, device)
        return ()

    def close(self) -> None:
        """End the tests; settings stay."""
        for name in list(self._devices):
            self._forget(name)

    def _forget(self, name: str) -> None:
        device = self._devices.pop(name, None)
        if device is not None and device.task is not None:
            device.task.cancel()

    def _look(self, view: KernelView, config: Config, link: Link, device: _Device) -> None:
        device.due = self._clock() + LOOK
        said = dict(config.feature_detect_override).get(FEATURE)
        desired = decided(
            said, kernel_broken=self._kernel_broken, found_broken=device.sound is False
        )
        if said is not None:
            device.broken_to = ""
        try:
            if desired is not None:
                _switch(link.name, on=desired)
            elif device.sound is None and link.name in _TESTED and offload.tx_checksum(link.name):
                self._begin(view, link, device)
            device.problem = ""
        except KernelError as error:
            device.problem = f"{link.name}: {error}"

    def _begin(self, view: KernelView, link: Link, device: _Device) -> None:
        targets = list(far_ends(view, link, _TESTED[link.name]))
        if targets:
            chosen = random.sample(targets, min(FAR_ENDS, len(targets)))
            device.task = tasks.start(
                self._test(link.name, device, chosen), f"checksum test of {link.name}"
            )

    async def _test(self, name: str, device: _Device, targets: list[Target]) -> None:
        try:
            device.sound, device.broken_to = await tested(name, targets)
        except (KernelError, OSError) as error:
            device.problem = f"{name}: checksum offload cannot be tested: {error}"
        finally:
            device.task = None
        if device.sound:
            log.info("checksum offload of %s was tested and works", name)
        elif device.sound is False:
            log.warning("%s", _found(name, device.broken_to))
        else:
            log.debug("checksum offload of %s: no far end answered the test", name)
            device.due = self._clock() + AGAIN[min(device.tries, len(AGAIN) - 1)]
            device.tries += 1
        self._kick()


def _found(name: str, address: str) -> str:
    return (
        f"{name}: checksums that are left to the network card are wrong at {address}: TX checksum"
        f" offload of {name} was switched off, which costs throughput. A newer driver may help;"
        f" featureDetectOverride: {FEATURE}=true decides without a test"
    )


async def tested(name: str, targets: Iterable[Target]) -> tuple[bool | None, str]:
    """Whether it works, None: no far end answered; and the far end where it does not (OFL-1 to
    OFL-3).

    Leaves the offload switched off when it does not work.
    """
    for target in targets:
        if await answered(target, PATIENCE):
            return True, ""
        if not await answered_complete(target, PATIENCE):
            continue
        _switch(name, on=False)
        better = False
        try:
            better = await answered(target, PATIENCE)
        finally:
            if not better:  # something else is wrong with that far end
                _switch(name, on=True)
        if better:
            return False, str(target.address)
    return None, ""


def decided(said: bool | None, *, kernel_broken: bool, found_broken: bool) -> bool | None:
    """Whether the offload is to be on; None: as it is. `said` is the operator's word. Pure."""
    if said is not None:
        return not said
    return False if kernel_broken or found_broken else None


def far_ends(view: KernelView, link: Link, version: int) -> Iterable[Target]:
    """The ends of the tunnel that routes of ours lead to. Pure."""
    own = [
        address.interface.ip
        for (index, _), address in view.addresses.items()
        if index == link.index
        and address.interface.version == version
        and not address.interface.ip.is_link_local
    ]
    if not own:
        return
    seen: set[IPAddress] = set()
    for route in view.own.values():
        for hop in route.next_hops:
            if hop.oif == link.index and hop.gateway is not None and hop.gateway not in seen:
                seen.add(hop.gateway)
                yield Target(own[0], hop.gateway, PORT, link.name)


def kernel_is_broken(release: str) -> bool:
    """Whether a kernel of this release translates outer packets wrongly: before 5.8. Pure."""
    version = re.match(r"(\d+)\.(\d+)", release)
    return version is not None and (int(version[1]), int(version[2])) < _FIRST_SOUND


def _switch(name: str, *, on: bool) -> None:
    if offload.tx_checksum(name) is not on:
        offload.set_tx_checksum(name, on)
        log.info("TX checksum offload of %s is switched %s", name, "on" if on else "off")
