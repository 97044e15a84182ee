"""After the installation: credentials that stay valid, and the configuration's right moment.

A sidecar (`SLEEP=true`) stays and writes again when an input changes: the service
account's token, which the kubelet renews, etcd's files, the template. It reads them every few
seconds and compares: a watch on mounted files misses the swap of a link (F-19).

In our manifest the init container installs the executables alone, and the daemon writes the
configuration as soon as its socket answers (INS-10): the configuration is what makes a runtime
call the plugin and the kubelet call the node Ready. It stays on shutdown.
Tested in tests/cni_conformance/test_install_keeping.py.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from cni.install import configuration, credentials
from cni.install.settings import HOST, Settings, settings_from
from cni.socket import channel, protocol
from libcalico.errors import MuslinError
from libcalico.process import paths
from libcalico.process.backoff import Backoff

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
CONFIGURATION = ("configuration",)


class Keeper:
    """Writes the configuration and its credentials, and again when an input changed."""

    def __init__(
        self, environ: Mapping[str, str], settings: Settings, chained: Sequence[str] = ()
    ) -> None:
        self._environ, self._settings, self._chained = environ, settings, chained
        self._seen, self._last_error = b"", ""

    def look(self) -> bool:
        """Write if something changed since the last time; whether all is well."""
        now = self._inputs()
        if now == self._seen:
            return True
        try:
            chosen = configuration.plan(self._settings, self._environ)
            configuration.write(self._settings, chosen, self._chained)
        except (MuslinError, OSError) as error:
            if str(error) != self._last_error:
                log.error("the CNI configuration is not written: %s", error)
                self._last_error = str(error)
            return False
        self._seen, self._last_error = now, ""
        return True

    def seen(self) -> None:
        """The present inputs were written out just before, by another caller."""
        self._seen = self._inputs()

    def _inputs(self) -> bytes:
        digest = hashlib.sha256()
        template = self._settings.values["CNI_NETWORK_CONFIG_FILE"]
        for path in [*credentials.inputs(self._settings), *([Path(template)] if template else [])]:
            try:
                content = path.read_bytes()
            except OSError:
                content = b""
            digest.update(len(content).to_bytes(8, "big") + content)
        return digest.digest()


def stay(keeper: Keeper, stopped: threading.Event, seconds: float = LOOK_SECONDS) -> None:
    """Look every `seconds` until `stopped` is set."""
    while not stopped.wait(seconds):
        keeper.look()


def asked(environ: Mapping[str, str]) -> bool:
    """Whether the daemon is to write the configuration (CALICO_CNI_WRITE_CONFIG)."""
    return environ.get("CALICO_CNI_WRITE_CONFIG", "").lower() in ("1", "true", "yes")


async def when_serving(
    environ: Mapping[str, str],
    listening: Path = paths.CNI_SOCKET,
    host: Path = HOST,
    account: Path = paths.SERVICE_ACCOUNT,
) -> None:
    """Wait for the daemon's socket, write the configuration, keep it; for ever.

    Returns at once where CALICO_CNI_WRITE_CONFIG does not ask for it. What cannot be written
    is logged and tried again: pods that run are no worse off. Raises nothing.
    """
    if not asked(environ):
        return
    try:
        settings = settings_from(environ, host, parts=CONFIGURATION, account=account)
    except MuslinError as error:
        log.error("the CNI configuration is not written: %s", error)
        return
    backoff = Backoff(0.1, 1.0)
    while not await answers(listening):
        await backoff.wait()
    keeper, backoff = Keeper(environ, settings, tuple(configuration.CHAINED)), Backoff(1.0, 60.0)
    while True:
        if await asyncio.to_thread(keeper.look):
            backoff.reset()
            await asyncio.sleep(LOOK_SECONDS)
        else:
            await backoff.wait()


async def answers(listening: Path) -> bool:
    """Whether a daemon greets at this socket."""
    try:
        async with asyncio.timeout(2.0):
            line = await channel.connect(listening)
            try:
                got = await line.receive()
            finally:
                line.close()
    except (OSError, TimeoutError, protocol.ProtocolError):
        return False
    return got is not None and isinstance(got[0], protocol.Hello)
