"""A cluster's API as its administrator uses it: kubectl, and plain calls for what is polled."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from lab import proc
from lab.errors import LabError
from linux import netns
from tests.k8s.credentials import ADMIN, Credentials
from tests.k8s.releases import CURRENT, Release
from tests.support.patience import HANG

T = TypeVar("T")
MERGE = "application/merge-patch+json"
PATIENCE = 300.0


class Refused(Exception):
    """The API answered with an error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class Api:
    """Speaks from the control plane's namespace."""

    def __init__(self, space: str, credentials: Credentials, release: Release = CURRENT) -> None:
        self.space, self.credentials, self.release = space, credentials, release

    # -- kubectl -------------------------------------------------------------------------------

    def command(self, *words: str) -> list[str]:
        """The argument list of kubectl."""
        return [
            *("nsenter", f"--net=/run/netns/{self.space}", "--"),
            str(self.release.folder() / "kubectl"),
            f"--kubeconfig={self.credentials.config(ADMIN)}",
            f"--cache-dir={self.credentials.folder / 'kubectl'}",
            *words,
        ]

    def kubectl(
        self, *words: str, stdin: str | None = None, timeout: float = PATIENCE, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl. Raises LabError with what it said."""
        return proc.run(
            self.command(*words),
            stdin=None if stdin is None else stdin.encode(),
            environment={"PATH": os.environ["PATH"], "HOME": str(self.credentials.folder)},
            timeout=timeout,
            check=check,
        )

    @contextmanager
    def watching(self, *words: str) -> Iterator[list[str]]:
        """The lines of `kubectl get ... --watch`, of every state from now on; the first is told."""
        lines: list[str] = []
        process = subprocess.Popen(
            self.command("get", *words, "--watch"),
            env={"PATH": os.environ["PATH"], "HOME": str(self.credentials.folder)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        told = map(str.rstrip, process.stdout)
        lines.append(next(told, ""))
        reader = threading.Thread(target=lines.extend, args=(told,), daemon=True)
        reader.start()
        try:
            yield lines
        finally:
            process.kill()
            process.wait()
            reader.join()
            process.stdout.close()

    def apply(self, *objects: Mapping[str, Any] | str) -> str:
        """Have objects, each a tree or a text of many."""
        texts = [one if isinstance(one, str) else json.dumps(one) for one in objects]
        # A stream that begins with a brace is JSON throughout to kubectl 1.20.
        told = "".join(f"---\n{text}\n" for text in texts)
        return self.kubectl("apply", "-f", "-", stdin=told).stdout

    # -- plain calls ---------------------------------------------------------------------------

    def ready(self) -> bool:
        """Whether the API server serves."""
        try:
            return bool(self.call("GET", "/readyz") == "ok")
        except (OSError, Refused, http.client.HTTPException):
            return False

    def get(self, path: str) -> dict[str, Any]:
        """An object or a list."""
        answer: dict[str, Any] = self.call("GET", path)
        return answer

    def items(self, path: str) -> list[dict[str, Any]]:
        """The objects of a list."""
        found: list[dict[str, Any]] = self.get(path)["items"]
        return found

    def find(self, path: str) -> dict[str, Any] | None:
        """An object, or None."""
        try:
            return self.get(path)
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def call(
        self, method: str, path: str, body: object = None, content: str = "application/json"
    ) -> Any:
        """One call. Raises Refused, OSError."""
        return self._inside(lambda: self._call(method, path, body, content))

    def wait(self, what: str, holds: Callable[[], bool], *, timeout: float = PATIENCE) -> float:
        """Poll; an API that does not answer for a moment is no end."""

        def asked() -> bool:
            try:
                return holds()
            except (OSError, http.client.HTTPException, Refused, LabError):
                return False

        return proc.wait_until(asked, what, timeout=timeout, every=0.25)

    def line(self) -> http.client.HTTPSConnection:
        """A connection that stays, to be used by `ask` from anywhere and closed by the caller."""
        line = self._line()
        self._inside(line.connect)
        return line

    def _line(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=str(self.credentials.authority.cert))
        return http.client.HTTPSConnection("127.0.0.1", 6443, timeout=HANG, context=context)

    def _call(self, method: str, path: str, body: object, content: str) -> Any:
        line = self._line()
        try:
            text = ask(line, method, path, body, content).read().decode()
        finally:
            line.close()
        return json.loads(text) if text.startswith(("{", "[")) else text

    def _inside(self, function: Callable[[], T]) -> T:
        """In a thread of its own, which is in the namespace and then ends."""
        outcome: list[T] = []
        failure: list[BaseException] = []

        def body() -> None:
            try:
                fd = netns.open_path(netns.DIRECTORY / self.space)
                try:
                    netns.enter(fd)
                finally:
                    os.close(fd)
                outcome.append(function())
            except BaseException as error:
                failure.append(error)

        thread = threading.Thread(target=body)
        thread.start()
        thread.join()
        if failure:
            raise failure[0]
        return outcome[0]


def ask(
    line: http.client.HTTPSConnection,
    method: str,
    path: str,
    body: object = None,
    content: str = "application/json",
) -> http.client.HTTPResponse:
    """One request as the administrator; the answer, to be read whole. Raises Refused, OSError."""
    headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": content}
    line.request(method, path, None if body is None else json.dumps(body), headers)
    answer = line.getresponse()
    if answer.status >= 300:
        raise Refused(answer.status, answer.read().decode())
    return answer


def ready_pods(found: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those of a list of pods that say they are ready and are not going. Pure."""
    return [
        pod
        for pod in found
        if "deletionTimestamp" not in pod["metadata"]
        and any(
            one["type"] == "Ready" and one["status"] == "True"
            for one in pod.get("status", {}).get("conditions", [])
        )
    ]
