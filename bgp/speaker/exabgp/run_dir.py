"""The directory of the child: the configurations that we write into it.

Every file in it may hold keys, so it is readable by the child alone.
Tested in tests/bgp/test_speaker_contract.py and test_refusals.py.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from bgp.speaker.exabgp import child as children
from bgp.speaker.exabgp import child_command, child_user, config
from bgp.speaker.interface import IPAddress, Peer


class RunDirectory:
    """`path` must be on a tmpfs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._configuration = path / "exabgp.conf"
        self._uid: int | None = None

    def prepare(self) -> str:
        """Make it ready for a child; why the child keeps our uid, where that is found now."""
        why = ""
        if self._uid is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._uid, why = child_user.speaker_id(self._path)
        return why

    def empty(self) -> None:
        """Nothing of an earlier child is left."""
        child_user.prepare_run_dir(self._path, self._uid or 0)

    def write(self, peers: Mapping[IPAddress, Peer]) -> None:
        """The configuration of the next child."""
        self._write(self._configuration, peers)

    def replace(self, peers: Mapping[IPAddress, Peer]) -> None:
        """The configuration of a running child, which reads the old one or the new one."""
        fresh = self._configuration.with_suffix(".new")
        self._write(fresh, peers)
        fresh.rename(self._configuration)

    async def complaint(self, peers: Collection[Peer]) -> str:
        """ExaBGP's complaint about a configuration of these peers; empty if it accepts it."""
        trial = self._configuration.with_suffix(".trial")
        try:
            self._write(trial, {peer.address: peer for peer in peers})
            return await child_command.validate(trial, self._uid or 0) if peers else ""
        except OSError as error:
            return f"its configuration cannot be tried: {error}"
        finally:
            trial.unlink(missing_ok=True)

    async def start(
        self,
        on_lines: children.OnLines,
        on_end: children.OnEnd,
        admit: children.Admit,
    ) -> children.Child:
        """Start a child on what was written. Raises `ChildFailed`."""
        return await children.Child.start(
            self._configuration, self._uid or 0, on_lines, on_end, admit
        )

    def _write(self, path: Path, peers: Mapping[IPAddress, Peer]) -> None:
        text = config.render(peers.values(), sys.executable)
        child_user.write_private(path, text, self._uid or 0)
