"""The probes of Calico's manifests: `calico-node -felix-live -bird-ready`, for exec probes.

They ask the agents' own health servers on this node, felix's and that of the speaker, which may be
another container of the pod. `-bird...` and `-bird6...` are both our one speaker, and ask nothing
where the backend has none. Source: docs/reference/data-model.md#probes-of-a-node. Tested in
tests/node/test_probes.py.
"""

from __future__ import annotations

import http.client
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
    """The probes that a command line names, with one dash or two; none: it is something else."""
    names = [word.lstrip("-") for word in arguments if word.startswith("-")]
    return [FLAGS[name] for name in names if name in FLAGS]


def main(wanted: Sequence[tuple[str, str]], environ: Mapping[str, str]) -> int:
    """Ask; 0, or 1 and what is not well on stderr, one line each. Raises InvalidValue."""
    bird = settings(environ).backend == "bird"
    asked_at = ports(environ)
    wrong = []
    for agent, what in dict.fromkeys((agent.removesuffix("6"), what) for agent, what in wanted):
        if agent == "bird" and not bird:
            continue
        host = (environ.get("FELIX_HEALTHHOST") if agent == "felix" else "") or "localhost"
        if told := problem(host, asked_at[agent], PATHS[what]):
            wrong.append(f"calico-node is not {what}: {agent}: {told}")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


def ports(environ: Mapping[str, str]) -> dict[str, int]:
    """Where the health servers listen. Raises InvalidValue."""
    found = {"felix": paths.FELIX_HEALTH_PORT, "bird": paths.BGP_PORT}
    for agent, name in (("felix", "FELIX_HEALTHPORT"), ("bird", "CALICO_BGP_HEALTH_PORT")):
        if text := environ.get(name):
            found[agent] = parsing.port(name, text)
    return found


def problem(host: str, port: int, path: str) -> str:
    """What a health server says against itself; empty when all is well (200 to 399)."""
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
