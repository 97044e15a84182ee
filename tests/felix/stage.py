"""Three pods on a node whose felix enforces policy, and probes between them.

client 10.65.0.1 --.
other  10.65.0.2 --+-- node -- server 10.65.0.3 (named port http = tcp 80)
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.felix.in_kernel import mode
from tests.felix.talk import at_once, ping, tcp, udp
from tests.felix.world import Pod, World, make_world
from tests.support.patience import wait_for

Rules = list[dict[str, Any]]
SELECTED = {"selector": "role == 'server'", "types": ["Ingress"]}
ONLY_CLIENT = {"selector": "role == 'client'"}


@dataclass
class Stage:
    """The world with three pods, and the policies of the case on it."""

    world: World
    client: Pod
    other: Pod
    server: Pod

    def policy(self, name: str, ingress: Rules, **spec: Any) -> None:
        value = {**SELECTED, "ingress": ingress, **spec}
        self.world.put("globalnetworkpolicies", name, "GlobalNetworkPolicy", value)

    def clear(self) -> None:
        for plural in ("globalnetworkpolicies", "globalnetworksets", "tiers"):
            self.world.etcd.ctl(
                "del", "--prefix", f"/calico/resources/v3/projectcalico.org/{plural}/"
            )

    def through(self, *probes: str) -> set[str]:
        """Which of these come through: `who family what`, such as `client 4 tcp 80`."""
        return at_once(probes, self._probe)

    def _probe(self, probe: str) -> bool:
        who, family, what, *numbers = probe.split()
        pod = self.client if who == "client" else self.other
        match what, [int(n) for n in numbers]:
            case "tcp", [port, *source]:
                return tcp(pod, self.server, port, int(family), *source)
            case "udp", [port]:
                return udp(pod, self.server, port, int(family))
            case "ping", []:
                return ping(pod, self.server, int(family))
        raise AssertionError(probe)

    def comes_to(self, passes: set[str], fails: set[str], within: float = 6.0) -> None:
        """Within some seconds exactly `passes` come through."""
        probes = sorted(passes | fails)
        last: set[str] = set()

        def right() -> bool:
            nonlocal last
            last = self.through(*probes)
            return last == passes

        try:
            wait_for(right, limit=within)
        except AssertionError:
            raise AssertionError(
                f"missing {sorted(passes - last)}, leaked {sorted(last - passes)}"
            ) from None


@contextmanager
def make_stage(folder: Path, backend: str, **environment: str) -> Iterator[Stage]:
    """The stage, with felix on this back end; sets hold 128 members and are re-read often."""
    with make_world(folder) as world:
        world.environment |= {
            **mode(backend),
            "FELIX_IPSETSREFRESHINTERVAL": "2",
            "FELIX_MAXIPSETSIZE": "128",
            **environment,
        }
        world.etcd.start()
        world.write_cluster()
        pods = []
        for number, name in enumerate(("client", "other", "server"), 1):
            pod = world.wire(f"cali{number}{name}", f"10.65.0.{number}", f"fd65::{number}")
            ports = [{"name": "http", "protocol": "TCP", "port": 80}]
            world.put_endpoint(name, pod, labels={"role": name}, ports=ports)
            pods.append(pod)
        world.start_felix()
        world.wait_ready()
        stage = Stage(world, *pods)
        stage.comes_to({f"{who} {f} ping" for who in ("client", "other") for f in (4, 6)}, set())
        yield stage


def allow(**match: Any) -> dict[str, Any]:
    return {"action": "Allow", **match}


def both(*probes: str) -> set[str]:
    """The same probes in both families."""
    return {probe.replace("*", family) for probe in probes for family in "46"}


def rules_of(stage: Stage, chain: str = "cali-pi-gnp/case") -> str:
    return "\n".join(text for _, text in stage.world.kernel.counted(chain))


def conditions_of(world: World, name: str) -> list[str]:
    command = ["cat", str(world.folder / "run/calico/status/felix.json")]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    try:
        conditions = json.loads(text)["conditions"]
    except ValueError:
        return []
    return [c["reason"] for c in conditions if name in c["object"]]
