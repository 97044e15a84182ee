"""The CNI plugin's kubeconfig, where there is one: its token is renewed before it expires.

Our own plugin asks the daemon and needs no credentials, so by default there is no such file. A
template that names it makes the installer write it, for other programs (Multus, an older plugin)
that read `calico-kubeconfig` where Calico puts it. From then on this process keeps it valid. The
token is of the service account CALICO_CNI_SERVICE_ACCOUNT, requested with this pod's own account.
Only root reads the file, which is replaced in one step. CALICO_MANAGE_CNI=false leaves the file to
another program.
Source: docs/reference/data-model.md#environment-of-a-node. Tested, with a real API server, in
tests/apiserver/test_node_startup.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from cni.install import credentials
from cni.install.files import opened
from libcalico.errors import NO_DOCUMENT, MuslinError
from libcalico.process import paths
from libcalico.process.backoff import Backoff
from node.settings.environment import Settings

if TYPE_CHECKING:
    from libcalico.kubernetes.access import Access

log = logging.getLogger(__name__)

HOST_FOLDER = Path("/host/etc/cni/net.d")
FILE = credentials.KUBECONFIG
LIFE = 24 * 3600
RENEW_AFTER = LIFE / 4
LOOK_SECONDS = 30.0
NAMESPACE = "kube-system"


class _Status(msgspec.Struct):
    token: str


class _Answer(msgspec.Struct):
    status: _Status


def folder(environ: Mapping[str, str]) -> Path:
    """The directory of the kubeconfig: the host's, as it is mounted here."""
    if named := environ.get("CNI_NET_DIR", ""):
        return Path(named)
    return HOST_FOLDER if HOST_FOLDER.is_dir() else paths.CNI_NET


def needed(environ: Mapping[str, str], chosen: Settings, account: Path) -> bool:
    """Whether there is a token to ask for, and a place for it."""
    in_pod = environ.get("KUBERNETES_SERVICE_HOST") and (account / "token").exists()
    return bool(chosen.manage_cni and in_pod and folder(environ).is_dir())


async def keep(
    environ: Mapping[str, str], chosen: Settings, account: Path = paths.SERVICE_ACCOUNT
) -> None:
    """Keep an existing kubeconfig valid, for ever; returns at once where that is not our task."""
    if not needed(environ, chosen, account):
        return
    backoff, logged = Backoff(1.0, 300.0), ""
    file = folder(environ) / FILE
    while True:
        if not file.is_file():
            # The installer may write one later.
            await asyncio.sleep(LOOK_SECONDS)
            continue
        try:
            await renew(environ, chosen, account)
        except (MuslinError, OSError) as error:
            if str(error) != logged:
                log.warning("the CNI plugin's kubeconfig is not renewed: %s", error)
                logged = str(error)
            await backoff.wait()
            continue
        logged = ""
        backoff.reset()
        await asyncio.sleep(RENEW_AFTER)


async def renew(environ: Mapping[str, str], chosen: Settings, account: Path) -> None:
    """Ask for a token and write the kubeconfig. Raises MuslinError, OSError."""
    from libcalico.kubernetes.access import in_cluster
    from libcalico.kubernetes.client import Client

    source = in_cluster(environ, account)
    space = NAMESPACE
    with suppress(OSError):
        space = (account / "namespace").read_text().strip() or NAMESPACE
    path = f"/api/v1/namespaces/{space}/serviceaccounts/{chosen.cni_account}/token"
    asked = msgspec.json.encode(
        {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "spec": {"expirationSeconds": LIFE},
        }
    )
    client = Client(source)
    try:
        answer = await client.request("POST", path, body=asked)
    finally:
        await client.close()
    try:
        token = msgspec.json.decode(answer, type=_Answer).status.token
    except NO_DOCUMENT as error:
        raise MuslinError(f"POST {path}: the answer holds no token: {error}") from None
    write(folder(environ) / FILE, kubeconfig(source(), token))


def kubeconfig(access: Access, token: str) -> str:
    """The file's text, with Calico's names of cluster, user and context. Pure."""
    return credentials.kubeconfig(access.server, access.ca, token).decode()


def write(file: Path, text: str) -> None:
    """Replace the file in one step; at no moment can any but its owner read it."""
    with opened(file.parent) as where:
        where.replace(file.name, text.encode(), 0o600)
