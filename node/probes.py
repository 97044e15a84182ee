"""The probes of Calico's manifests: `calico-node -felix-live -bird-ready`, for exec probes.

They query the health servers of felix and of the speaker on this node; the speaker may run in
another container of the pod. `-bird...` and `-bird6...` both mean our one speaker, and query
nothing where the backend has none. Source: docs/reference/data-model.md#probes-of-a-node. Tested in
tests/node/test_probes.py.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from libcalico import parsing
from libcalico.process import paths
from node.settings.environment import settings

PATHS = {"live": "/liveness", "ready": "/readiness"}
AGENTS = ("felix", "bird", "bird6")
FLAGS = {f"{agent}-{what}": (agent, what) for agent in AGENTS for what in PATHS}
LIMIT = 5.0


def asked(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """The probes that a command line names, with one dash or two; empty for any other command."""
    names = [word.lstrip("-") for word in arguments if word.startswith("-")]
    return [FLAGS[name] for name in names if name in FLAGS]


def main(chosen: Sequence[tuple[str, str]], environ: Mapping[str, str]) -> int:
    """Run the probes; 0, or 1 with a line on stderr for each that fails. Raises InvalidValue."""
    bird = settings(environ).backend == "bird"
    asked_at = ports(environ)
    wrong = []
    for agent, what in dict.fromkeys((agent.removesuffix("6"), what) for agent, what in chosen):
        if agent == "bird" and not bird:
            continue
        host = (environ.get("FELIX_HEALTHHOST") if agent == "felix" else "") or "localhost"
        if error := problem(host, asked_at[agent], PATHS[what]):
            wrong.append(f"calico-node is not {what}: {agent}: {error}")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


def ports(environ: Mapping[str, str]) -> dict[str, int]:
    """The ports of the health servers by agent. Raises InvalidValue."""
    numbers = {"felix": paths.FELIX_HEALTH_PORT, "bird": paths.BGP_PORT}
    for agent, name in (("felix", "FELIX_HEALTHPORT"), ("bird", "CALICO_BGP_HEALTH_PORT")):
        if text := environ.get(name):
            numbers[agent] = parsing.port(name, text)
    return numbers


def problem(host: str, port: int, path: str) -> str:
    """Why a health server is not well; empty when it is (status 200 to 399)."""
    import http.client  # and email with it: not in the memory of who only reads a command line

    connection = http.client.HTTPConnection(host, port, timeout=LIMIT)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return f"http://{host}:{port}{path}: {error}"
    finally:
        connection.close()
    return "" if 200 <= answer.status < 400 else f"{answer.status}: {text}"
