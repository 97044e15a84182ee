"""A credential from the program that a user of a kubeconfig names by `exec`.

Tested in tests/libcalico/test_kubernetes_delegated.py and tests/apiserver/test_kubeconfig.py.
"""

from __future__ import annotations

import base64
import re
import shutil
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from libcalico.kubernetes.credentials import Credential, Problem, Tree

_CLUSTER_INFO = (
    *("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "extensions"),
)

_MAY_BE_SECRET = re.compile(r"[A-Za-z0-9+/_=.-]{32,}")

_LONGEST = 300


def executed(spec: object, cluster: Tree, ca: bytes, folder: Path) -> Credential:
    from kubernetes.config import ConfigException
    from kubernetes.config.exec_provider import ExecProvider
    from kubernetes.config.kube_config import ConfigNode

    checked = _checked(spec)
    program = _program(checked, folder)
    info = {name: cluster[name] for name in _CLUSTER_INFO if name in cluster}
    if ca:
        info["certificate-authority-data"] = base64.b64encode(ca).decode()
    try:
        node = ConfigNode("exec", {**checked, "command": program})
        status = ExecProvider(node, None, ConfigNode("cluster", info)).run()
    except AttributeError:
        # On a terminal the package does not hold what the program said, and trips over that.
        raise Problem("exec", f"{program} failed; it said above why") from None
    except (ConfigException, ValueError, TypeError) as problem:
        said = without_secrets(str(problem).removeprefix("exec: "), checked)
        raise Problem("exec", f"{program}: {said}") from None
    except OSError as problem:
        why = problem.strerror or "an error of the system"
        raise Problem("exec.command", f"{program} cannot be run: {why}") from None
    return _of_status(status, program)


def _checked(spec: object) -> Tree:
    """The field `exec`, checked as far as the package relies on it. Raises Problem."""
    if not isinstance(spec, Mapping):
        raise Problem("exec", "must be a map")
    for name in ("command", "apiVersion"):
        if not isinstance(spec.get(name), str) or not spec[name]:
            raise Problem(f"exec.{name}", "must be text")
    args, env = spec.get("args") or [], spec.get("env") or []
    if not isinstance(args, list) or not all(isinstance(one, str) for one in args):
        raise Problem("exec.args", "must be a list of texts")
    if not isinstance(env, list) or not all(_is_variable(one) for one in env):
        raise Problem("exec.env", "must be a list of name and value, both text")
    if spec.get("interactiveMode") == "Always" and not (sys.stdin and sys.stdin.isatty()):
        rule = f"is Always, and there is no terminal on which {spec['command']} could ask"
        raise Problem("exec.interactiveMode", rule)
    return dict(spec)


def _is_variable(one: object) -> bool:
    return isinstance(one, Mapping) and all(
        isinstance(one.get(name), str) for name in ("name", "value")
    )


def _program(spec: Tree, folder: Path) -> str:
    """The program's path: beside the kubeconfig where the command has a slash, else in PATH."""
    command: str = spec["command"]
    at = str((folder / command).absolute()) if "/" in command else command
    if program := shutil.which(at):
        return program
    hint = " ".join(str(spec.get("installHint") or "").split())
    rule = f"no program {command!r} that can be run" + (f"; {hint}" if hint else "")
    raise Problem("exec.command", rule)


def _of_status(status: object, program: str) -> Credential:
    if not isinstance(status, Mapping):
        raise Problem("exec", f"{program} gave a status that is no map")
    words = {}
    for name in ("token", "clientCertificateData", "clientKeyData", "expirationTimestamp"):
        words[name] = status.get(name) or ""
        if not isinstance(words[name], str):
            raise Problem("exec", f"{program} gave a status.{name} that is no text")
    token, cert, key, until = words.values()
    if not token and not (cert and key):
        raise Problem("exec", f"{program} gave neither a token nor a certificate with its key")
    return Credential(token, "Bearer", cert.encode(), key.encode(), _moment(until, program))


def _moment(text: str, program: str) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Problem(
            "exec", f"{program} gave a status.expirationTimestamp that is no time"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def without_secrets(text: str, spec: Tree) -> str:
    """One line of a program's output, without what may be a secret."""
    for one in spec.get("env") or ():
        if len(one["value"]) > 3:
            text = text.replace(one["value"], "...")
    return _MAY_BE_SECRET.sub("...", " ".join(text.split()))[:_LONGEST]
