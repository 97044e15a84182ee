"""Users and roles on a real etcd, by the script that is shipped."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

from libcalico.apiconfig import DatastoreConfig
from libcalico.datastore import connect
from libcalico.datastore.interface import Datastore
from tests.support.etcd import Etcd

SCRIPT = Path(__file__).parent.parent.parent / "manifests" / "etcd-roles"
ROOT = "root:root word"
USER, WORD = "calico-node", "word"


def make_roles(server: Etcd, *arguments: str) -> list[str]:
    """Run the script; the roles it made."""
    command = [str(SCRIPT), *arguments, f"--endpoints={server.endpoint}", *server.ctl_flags]
    done = subprocess.run(
        command, capture_output=True, text=True, env={"PATH": os.environ["PATH"]}, check=False
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.split("\n") if line and not line.startswith("Role ")]


def enable_auth(server: Etcd, users: Mapping[str, str]) -> None:
    """From now on a login is needed. `users` are name:password -> role, or a name alone -> role."""
    for user, role in users.items():
        server.ctl("user", "add", user, *([] if ":" in user else ["--no-password"]))
        server.ctl("user", "grant-role", user.partition(":")[0], role)
    server.ctl("user", "add", ROOT)
    server.ctl("user", "grant-role", "root", "root")
    server.ctl("auth", "enable")
    server.ctl_flags = [*server.ctl_flags, f"--user={ROOT}"]


def end_logins(server: Etcd, user: str = USER, password: str = WORD) -> None:
    """Every token of a user ends at once: its password is written again."""
    server.ctl("user", "passwd", user, "--interactive=false", stdin=password.encode())


@contextmanager
def with_user(path: Path) -> Iterator[tuple[Etcd, DatastoreConfig]]:
    """An etcd of its own that wants a login, and a configuration that has one."""
    server = Etcd(path, ["--auth-token=simple", "--bcrypt-cost=4"])
    server.start()
    try:
        make_roles(server)
        enable_auth(server, {f"{USER}:{WORD}": USER})
        yield server, replace(server.config(), username=USER, password=WORD)
    finally:
        server.stop()


@asynccontextmanager
async def logged_in(path: Path) -> AsyncIterator[Datastore]:
    """A store that came by a login."""
    with with_user(path) as (_, config):
        store = await connect(config)
        try:
            yield store
        finally:
            await store.close()
