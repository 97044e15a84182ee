"""Our CustomResourceDefinitions in an API server of the tests."""

from __future__ import annotations

import subprocess
import time
from http.client import RemoteDisconnected
from typing import Any

import yaml

from libcalico.crds.document import files
from tests.k8s.binaries import folder as binaries
from tests.support.apiserver import ADMIN, ApiRefused, ApiServer
from tests.support.patience import patient

PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEADLINE = 180.0
ANSWERED = "10s"
"""How long the server takes at most for one question."""


def definitions() -> list[dict[str, Any]]:
    """Every definition, parsed."""
    return [yaml.load(text, yaml.CSafeLoader) for text in files().values()]


def install(api: ApiServer) -> None:
    """Have all of them, served."""
    wanted = definitions()
    for one in wanted:
        api.ensure(PATH, one)
    for one in wanted:
        wait_served(api, one)


def wait_served(api: ApiServer, one: dict[str, Any]) -> None:
    """Wait until a definition's objects can be asked for."""
    deadline = time.monotonic() + patient(DEADLINE)
    while not _served(api, one):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{one['metadata']['name']} is not served")
        time.sleep(0.1)


def _served(api: ApiServer, one: dict[str, Any]) -> bool:
    spec = one["spec"]
    path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
    found = api.call("GET", f"{PATH}/{one['metadata']['name']}").get("status", {})
    states = {row["type"]: row["status"] for row in found.get("conditions") or ()}
    if states.get("NamesAccepted") == "False":
        raise RuntimeError(f"{one['metadata']['name']}: {found['conditions']}")
    if states.get("Established") != "True":
        return False
    try:
        api.call("GET", f"{path}?limit=1&timeout={ANSWERED}")
    except ApiRefused as refused:
        if refused.status not in (404, 504):
            raise
        return False
    except RemoteDisconnected:
        # The server replaces the storage of a definition whose status changes. A question to the
        # old one gets no answer, and its connection ends when its time is over.
        return False
    return True


def kubectl(api: ApiServer, *arguments: str) -> str:
    """What kubectl prints, as admin. Raises CalledProcessError."""
    return subprocess.run(
        [
            str(binaries() / "kubectl"),
            f"--server={api.url}",
            f"--certificate-authority={api.authority.cert}",
            f"--token={ADMIN}",
            f"--cache-dir={api.folder / 'kubectl'}",
            *arguments,
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
