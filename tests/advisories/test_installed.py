"""What is installed has no rights of its own, and no text of a configuration becomes a path.

CVE-2019-8332 and its like: a SUID installer on the host. GHSA-42vc and its like: a plugin's `type`
or a network's name that leads out of its folder.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cni.install.binaries import RECORD
from tests.cni.executable import BASE, BUILDS, CONFIG, QUICK, Build, built, call
from tests.cni.installer import PEM, TEMPLATE, Host
from tests.cni.world import World, node_world, pod_namespace

SPECIAL = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX | stat.S_IWOTH | stat.S_IWGRP
WAYS = (
    "../evil",
    "/evil",
    "../../evil",
    "./../evil",
    "bin/../../evil",
    "..",
    ".",
    "evil/",
    "\0evil",
)


@pytest.mark.promise("ADV-3")
@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_nothing_installed_has_rights_of_its_own(tmp_path: Path, mask: int) -> None:
    """Whatever the image's files and the caller's umask are, and whatever lay there before."""
    host = Host(tmp_path)
    for name, text in PEM.items():
        (host.secrets / name).write_text(text)
    for path in host.image.iterdir():
        path.chmod(0o6777)
    for name in ("calico", "calico-ipam"):
        (host.bin / name).write_text("an older one")
        (host.bin / name).chmod(0o6755)
    old = os.umask(mask)
    try:
        host.run(CNI_NETWORK_CONFIG=TEMPLATE)
    finally:
        os.umask(old)
    found = [*host.bin.rglob("*"), *host.net.rglob("*")]
    assert len(found) > 4
    for path in found:
        about = path.lstat()
        assert not about.st_mode & SPECIAL, (path, oct(about.st_mode))
        assert about.st_uid == 0
    for path in host.bin.iterdir():
        # The record of what came with the image is no program.
        mode = 0o644 if path.name == RECORD else 0o755
        assert stat.S_IMODE(path.stat().st_mode) == mode
    secret = [path for path in host.net.rglob("*") if "kubeconfig" in path.name]
    assert [stat.S_IMODE(path.stat().st_mode) for path in secret] == [0o600]


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A folder of plugins, and a program beside it that must never run."""
    (tmp_path / "bin").mkdir()
    for path in (tmp_path / "evil", tmp_path / "bin" / "evil"):
        path.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\necho '{{}}'\n")
        path.chmod(0o755)
    (tmp_path / "bin" / "evil").unlink()
    return tmp_path


@pytest.mark.promise("ADV-7")
@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.label)
def test_no_text_leads_out_of_its_folder(build: Build, trap: Path) -> None:
    """The daemon is away: the executable alone refuses, or queues below its own folder."""
    plugin = build.strict("calico-ipam") if build.is_twin else built("calico-ipam", *QUICK)
    env = BASE | {
        "CNI_PATH": str(trap / "bin"),
        "CNI_CALICO_SOCKET": str(trap / "none"),
        "CNI_CALICO_PENDING": str(trap / "lib" / "pending"),
    }
    (trap / "lib").mkdir()
    before = tree(trap)
    for way in WAYS:
        text = way.replace("\0", "\\u0000")
        for verb in ("ADD", "DEL"):
            for config in (
                CONFIG | {"type": text},
                CONFIG | {"ipam": {"type": text}},
                CONFIG | {"name": text},
            ):
                stdin = json.dumps(config).replace("\\\\u0000", "\\u0000")
                done = call(plugin, env | {"CNI_COMMAND": verb}, stdin)
                assert done.status in (0, 1)
                assert done.status == 0 or done.error["code"] in (7, 11), done
                if "/" in way and verb == "ADD":
                    assert done.error["code"] == 7, "not even tried"
        for name in ("CNI_CONTAINERID", "CNI_IFNAME"):
            if "\0" not in way:
                deleting = env | {"CNI_COMMAND": "DEL", name: way}
                call(plugin, deleting, json.dumps(CONFIG))
    left = tree(trap) - before
    assert not (trap / "ran").exists()
    assert left
    pending = str(trap / "lib" / "pending")
    assert {path for path in left if not path.startswith(pending)} == set()
    names = [os.path.basename(path) for path in left if path != pending]
    assert all(len(name) == 64 + len(".json") for name in names), names


OWN = ("attachments", "pending", "private", "status")
"""The daemon's own folders, in which no name is anybody else's."""


def tree(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with node_world(tmp_path_factory.mktemp("node")) as world:
        yield world


@pytest.mark.promise("ADV-7")
@pytest.mark.asyncio
async def test_the_daemon_builds_no_path_from_names(node: World, trap: Path) -> None:
    """What a pod, a network and a container may be called, and files that a configuration names."""
    node.plugins = str(trap / "bin")
    (trap / "bin" / "host-local").symlink_to("/usr/lib/cni/host-local")
    before = tree(trap) | tree(node.folder)
    async with node.daemon():
        with pod_namespace() as pod:
            for way in WAYS[:-1]:
                changes: list[dict[str, Any]] = [{"config": {"name": way}}]
                changes.append({"config": {"ipam": {"type": way}}})
                changes.append({"namespace": way})
                changes.append({"container": way})
                for change in changes:
                    asked = {"name": "web-1", **change}
                    done = await node.add(pod, **asked)
                    if done.status:
                        assert done.error["code"] in (4, 7, 11, 100), (change, done)
                    await node.delete(pod, **asked)
                await node.add(pod, way)
                await node.delete(pod, way)
        node.assert_clean()
    assert not (trap / "ran").exists()
    grown = {path for path in (tree(trap) | tree(node.folder)) - before if "/etcd/" not in path}
    own = tuple(f"{node.folder}/{name}" for name in OWN)
    assert [path for path in grown if not path.startswith(own)] == []
