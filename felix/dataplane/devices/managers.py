"""The managers of links: workloads' interfaces, tunnels, MTU and checksum offload.

Each takes a `LinkWork` and makes its part of it so; what it could not do is in `failures` or among
its problems, and is tried again after `wait` seconds or with the next news.

  | manager    | writes                                        | is asked           |
  |------------|-----------------------------------------------|--------------------|
  | interfaces | workloads' links: MAC, state, settings        | in every turn      |
  | shaping    | the bandwidth of workloads that have limits   | in every turn      |
  | tunnels    | vxlan.calico, vxlan-v6.calico, tunl0          | in turns about all |
  | mtu        | the MTU of these, and the file that cni reads | in turns about all |
  | offload    | TX checksum offload of these                  | in turns about all |

Tested in tests/felix/dataplane/test_turns.py and, each, in a file of its name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from felix.calc.cluster_facts import ClusterFacts
from felix.calc.encapsulation import Encapsulation, LastEncapsulation
from felix.config.parameters import Config
from felix.dataplane.devices.interfaces import Interfaces
from felix.dataplane.devices.mtu import MtuKeeper
from felix.dataplane.devices.offload import ChecksumOffload
from felix.dataplane.devices.shaping import Shaping
from felix.dataplane.devices.tunnels import Tunnels
from felix.dataplane.devices.work import LinkWork
from libcalico.process.tasks import Background


class LinkManager(Protocol):
    """What all managers of links have."""

    def commit(self, work: LinkWork) -> Collection[int]:
        """Write what differs; returns the indexes of links that were touched.

        Raises `KernelError` only when the socket fails.
        """


class LinkManagers:
    """All of them. `kick` asks for a turn."""

    def __init__(self, node: str, kick: Callable[[], None], background: Background) -> None:
        clock = time.monotonic
        self.interfaces = Interfaces()
        self.shaping = Shaping()
        self.tunnels = Tunnels(node, clock, kick, background=background)
        self.mtu = MtuKeeper()
        self.offload = ChecksumOffload(clock, kick, lambda: self.tunnels.ready)
        self._encapsulation = LastEncapsulation()

    def commit(self, work: LinkWork, *, whole: bool) -> set[int]:
        """Ask those that the turn concerns; `whole`: it is about everything."""
        managers: list[LinkManager] = [self.interfaces]
        if whole:
            managers += [self.tunnels, self.mtu, self.offload]
        touched = {index for manager in managers for index in manager.commit(work)}
        return touched.union(self.shaping.commit(work, whole=whole))

    @property
    def failures(self) -> Mapping[str, str]:
        """Why links of workloads are not as they must be, by name."""
        return self.interfaces.failures

    @property
    def wait(self) -> float | None:
        """Seconds after which to look again though nothing changed."""
        return self.tunnels.wait

    def encapsulation(self, config: Config, cluster: ClusterFacts) -> Encapsulation:
        """The tunnels that pools and parameters ask for."""
        asked = config.ipip_enabled, config.vxlan_enabled
        return self._encapsulation.of(cluster.pools, cluster.version, *asked)

    def close(self) -> None:
        """End what runs beside; the kernel's settings stay."""
        self.offload.close()
