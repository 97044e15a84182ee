"""Questions from afar: what this node answers through the aggregator of flows.

While `flowLogsGoldmaneServer` names an aggregator, felix keeps a stream to it (`Attend`), so no
port is open on the node. `QUESTIONS` is the table; a question is a name and a function that yields
JSON objects (`flows/attending.py`). It reads, and changes nothing.

    status   the three status files: {"felix": ..., "bgp": ..., "cni": ...}, null where there is
             none. Conditions are members of each; the last pod starts are `cni.traces`.

gRPC is imported only where an aggregator is named. Tested in
tests/felix/agent/test_questions_afar.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from libcalico.clusterinfo import our_version
from libcalico.errors import InvalidValue
from libcalico.process import paths, status_file
from libcalico.process.tasks import Background

if TYPE_CHECKING:
    from felix.config.parameters import Config
    from flows.attending import Answering, Attendance

PROCESSES = ("felix", "bgp", "cni")
_WORK = "questions from the aggregator"

Answers = AsyncIterator[Mapping[str, object]]


class Status:
    """Answers `status` out of the files of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def __call__(self, arguments: Mapping[str, object]) -> Answers:
        """One answer. Raises InvalidValue with arguments: there are none."""
        for name, value in arguments.items():
            raise InvalidValue(name, value, "the question takes no arguments", "status")
        yield {process: status_file.read(process, self._folder) for process in PROCESSES}


def table(folder: Path = paths.STATUS) -> dict[str, Answering]:
    """The questions of this node, by name."""
    return {"status": Status(folder)}


class QuestionsAfar:
    """The stream to the aggregator, while the parameters name one. Use in the event loop."""

    def __init__(self, node: str, questions: Mapping[str, Answering]) -> None:
        self._node, self._questions = node, questions
        self._background = Background()
        self._named: tuple[str, str, str, str] = ("", "", "", "")
        self._attendance: Attendance | None = None

    def follow(self, config: Config) -> None:
        """Attend at the aggregator that the parameters name."""
        files = config.typha_ca_file, config.typha_cert_file, config.typha_key_file
        self.configure(config.flow_logs_goldmane_server, *files)

    def configure(self, server: str, ca: str = "", certificate: str = "", key: str = "") -> None:
        """Attend at this aggregator, HOST:PORT, with these files of TLS; at none where empty."""
        named = (server, ca, certificate, key)
        if named == self._named:
            return
        self._named = named
        self._background.cancel(_WORK)
        self._attendance = None
        if server:
            self._background.keep(_WORK, self._attend)

    async def _attend(self) -> None:
        from flows.attending import Attendance
        from flows.place import Place

        attendance = Attendance(
            Place(*self._named), self._node, f"v{our_version()}", self._questions
        )
        self._attendance = attendance
        await attendance.run()

    def stop(self) -> None:
        """End the stream."""
        self.configure("")
        self._background.stop()

    def conditions(self) -> list[tuple[str, str]]:
        """Why this node cannot be asked."""
        trouble = self._attendance.trouble if self._attendance is not None else ""
        return [
            *([(_WORK, trouble)] if trouble else []),
            *self._background.conditions(),
        ]
