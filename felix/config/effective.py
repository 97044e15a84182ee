"""The configuration in force: resolved from its sources, again whenever one of them changes.

Each problem of a source is logged once, and is a condition for as long as it lasts.
Tested in tests/felix/kernel/test_reconfigure.py.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from felix.config.parameters import PARAMETERS, Config
from felix.config.resolve import read_file, resolve
from libcalico.datastore.syncer import Update
from libcalico.model import Key, Node, ResourceKey
from libcalico.process.logs import level_number

log = logging.getLogger(__name__)


class EffectiveConfig:
    """The parameters of one node; `current` are those in force.

    `stored`: the FelixConfigurations, as the calculation keeps them.
    """

    def __init__(
        self,
        node: str,
        environ: Mapping[str, str],
        file: Path,
        stored: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self._node, self._environ, self._file, self._stored = node, environ, file, stored
        self._labels: Mapping[str, str] = {}
        self._log_level = logging.getLogger().level
        self._problems: list[str] = []
        self._logged: set[str] = set()
        self._unreadable: dict[Key, str] = {}
        self.stale = False
        """Whether a source changed since the configuration was resolved."""
        self.current = self.resolve()

    def resolve(self) -> Config:
        """The parameters as their sources are now; `current` stays as it is."""
        self.stale = False
        resolved = resolve(
            self._node,
            environ=self._environ,
            file_text=self._file_text(),
            stored=self._stored,
            labels=self._labels,
        )
        for problem in resolved.problems:
            text = str(problem)
            if text not in self._logged:
                self._logged.add(text)
                # Calico has some 190 parameters; those of a later step are no mistake.
                severity = logging.INFO if problem.unknown else logging.WARNING
                log.log(severity, "configuration: %s", text)
        self._problems = [str(problem) for problem in resolved.problems if not problem.unknown]
        level = self._log_level
        if "log_severity_screen" in resolved.origins:
            level = level_number(resolved.config.log_severity_screen)
        logging.getLogger().setLevel(level)
        return resolved.config

    def restart_for(self, config: Config) -> list[str]:
        """The parameters with another value in `config` that a running felix cannot follow."""
        return [
            parameter.name
            for parameter in PARAMETERS
            if parameter.restart
            and getattr(config, parameter.attribute) != getattr(self.current, parameter.attribute)
        ]

    def _file_text(self) -> str:
        try:
            return read_file(self._file)
        except OSError as error:
            log.warning("%s cannot be read: %s", self._file, error)
            return ""

    def note_unreadable(self, update: Update) -> None:
        """Keep what of a stored FelixConfiguration cannot be read, as a condition."""
        match update.key:
            case ResourceKey(kind="FelixConfiguration") as key:
                self._unreadable.pop(key, None)
                if update.entry is not None and (broken := update.entry.broken):
                    self._unreadable[key] = f"{broken}; its other parameters are in force"

    def note_change(self, key: Key, value: object) -> None:
        """Become stale by a change of a FelixConfiguration or of this node's labels."""
        match key:
            case ResourceKey(kind="FelixConfiguration"):
                self.stale = True
            case ResourceKey(kind="Node", name=name) if name == self._node:
                before, self._labels = self._labels, _labels(value)
                self.stale |= before != self._labels

    def problems(self) -> list[tuple[str, str]]:
        """The values that were not accepted, as conditions."""
        return [("configuration", text) for text in self._problems]

    def unreadable(self) -> list[tuple[str, str]]:
        """The FelixConfigurations that cannot be read whole, as conditions."""
        return [(str(key), reason) for key, reason in self._unreadable.items()]


def _labels(node: object) -> Mapping[str, str]:
    return node.metadata.labels if isinstance(node, Node) else {}
