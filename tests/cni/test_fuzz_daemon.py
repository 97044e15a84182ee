"""Mutated calls to the real daemon, with a real namespace: all of a pod, or nothing of it."""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cni.request.errors import Code
from linux import links
from linux.netlink import Socket
from tests.cni.executable import FULL_SIZE, QUICK, Done, built
from tests.cni.test_vectors import mutated
from tests.cni.world import World, container_id, network_config, node_world, pod_namespace
from tests.support.netns import Namespace
from tests.support.patience import patient, until

CALLS = 2_000 if FULL_SIZE else 60
HURRIED = "-DDEADLINE_MS=5000"
"""Some configurations ask to wait for policy for ever."""
FULL_CONFIG = {
    "log_level": "info",
    "mtu": 1400,
    "num_queues": 1,
    "ipam": {
        "type": "calico-ipam",
        "assign_ipv4": "true",
        "assign_ipv6": "false",
        "ipv4_pools": ["10.65.0.0/24"],
        "ipv6_pools": ["fd65::/112"],
    },
    "container_settings": {"allow_ip_forwarding": False},
    "policy": {"type": "k8s"},
    "nodename": "node1",
    "nodename_file_optional": False,
    "feature_control": {"ip_addrs_no_ipam": False, "floating_ips": False},
    "args": {"cni": {"labels": [{"key": "a", "value": "b"}]}},
    "runtimeConfig": {"portMappings": [], "ips": ["10.65.0.77"], "mac": "02:00:00:00:00:01"},
    "capabilities": {"ips": True},
}
ODD: tuple[Any, ...] = (
    None, True, "", "x", 0, -1, 1 << 40, 1.5, [], {}, [None], {"a": 1}, "10.65.0.0/24", "0.0.0.0/0",
    "fd65::1", "host-local", "../x", "a" * 5000, "02:00:00:00:00:zz", ["192.0.2.1"], "true",
)  # fmt: skip


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with node_world(tmp_path) as world:
        yield world


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every member of every object and list, with what holds it."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in list(pairs):
        yield tree, key
        if isinstance(value, (dict, list)):
            yield from places(value)


def odd_config(dice: random.Random) -> bytes:
    """A configuration with some members replaced or gone, or with damaged bytes."""
    config = network_config(copy.deepcopy(FULL_CONFIG) if dice.random() < 0.7 else {})
    for _ in range(dice.randint(1, 3)):
        holder, key = dice.choice(list(places(config)))
        if dice.random() < 0.25:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(dice.choice(ODD))
    stdin = json.dumps(config).encode()
    return mutated(stdin, dice) if dice.random() < 0.3 else stdin


def made(host: Socket) -> list[str]:
    """The pods' links that there are on the host."""
    return [one.name for one in links.dump(host) if one.name.startswith("cali")]


async def call(node: World, pod: Namespace, verb: str, args: str, stdin: bytes) -> Done:
    import asyncio

    process = await asyncio.create_subprocess_exec(
        built("calico", *QUICK, HURRIED),
        env={
            "CNI_COMMAND": verb,
            "CNI_CONTAINERID": container_id("fuzz"),
            "CNI_NETNS": str(pod.path),
            "CNI_IFNAME": "eth0",
            "CNI_PATH": "/usr/lib/cni",
            "CNI_ARGS": args,
            "CNI_CALICO_SOCKET": str(node.settings.socket),
            "CNI_CALICO_PENDING": str(node.settings.pending),
        },
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(patient(60)):
        out, err = await process.communicate(stdin)
    return Done(process.returncode or 0, out, err.decode())


@pytest.mark.asyncio
@pytest.mark.promise("M-53")
async def test_all_or_nothing(node: World) -> None:
    dice = random.Random(8)
    codes: dict[int, int] = {}
    descriptors = 0
    async with node.daemon() as daemon, node.etcd.connect():
        with pod_namespace() as pod, Socket() as host:
            for number in range(CALLS):
                stdin = odd_config(dice)
                args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web"
                if dice.random() < 0.3:
                    odd = mutated(args.encode(), dice).replace(b"\0", b"")
                    args = odd.decode(errors="replace")
                case = (args, stdin)
                done = await call(node, pod, "ADD", args, stdin)
                code = done.error["code"] if done.status else 0
                codes[code] = codes.get(code, 0) + 1
                # Another IPAM plugin's own errors have no better code.
                others = b"host-local" in stdin or b"failed to find plugin" in done.stdout
                assert code != 999 or others, (number, case, done)
                if done.status == 0:
                    assert json.loads(done.stdout)["cniVersion"], case
                    deleted = await call(node, pod, "DEL", args, stdin)
                    assert deleted.status == 0, (case, deleted)
                if code == Code.TRY_AGAIN_LATER:
                    # A busy machine may still be at the undo when the executable's time is up.
                    await node.becomes_clean()
                assert made(host) == [], (case, done)
                if number % 50 == 0:
                    assert (node.in_use(), node.endpoints(), node.handles()) == (0, {}, {}), case
                    descriptors = descriptors or len(os.listdir("/proc/self/fd"))
            assert "eth0" not in pod.run("ip", "link")
        assert len(os.listdir("/proc/self/fd")) < descriptors + 10
        await until(lambda: daemon.context.journal.count() == 0)
        await node.becomes_clean()
    assert {0, 7} <= codes.keys(), codes
    print(codes)
