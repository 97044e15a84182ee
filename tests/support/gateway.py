"""An etcd without certificates and users, asked over HTTP as etcdctl would ask it.

A process of etcdctl takes a hundred times longer than the answer, and tests ask often.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
from collections.abc import Sequence
from typing import Any

from tests.support.patience import HANG


def told(port: int, arguments: Sequence[str], stdin: bytes | None) -> bytes | None:
    """What etcdctl would print, or None for what only it can say.

    Source: etcd's gateway from JSON to gRPC, /v3/kv/*, keys and values in base64. Raises
    RuntimeError with what etcd said.
    """
    verb, *rest = arguments
    flags = {word for word in rest if word.startswith("-")}
    words = [word for word in rest if not word.startswith("-")]
    if verb == "put" and not flags and len(words) == (2 if stdin is None else 1):
        value = words[1].encode() if stdin is None else stdin
        _call(port, "put", {"key": _base64(words[0]), "value": _base64(value)})
        return b"OK\n"
    if len(words) != 1:
        return None
    asked = _range(words[0], prefix="--prefix" in flags)
    if verb == "del" and flags <= {"--prefix"}:
        return b"%d\n" % int(_call(port, "deleterange", asked).get("deleted", 0))
    if verb != "get" or not flags <= {"--prefix", "--keys-only", "--print-value-only"}:
        return None
    lines = []
    for pair in _call(port, "range", asked).get("kvs", []):
        key, value = (base64.b64decode(pair.get(part, "")) for part in ("key", "value"))
        if "--print-value-only" not in flags:
            lines.append(key)
        lines.append(b"" if "--keys-only" in flags else value)
    return b"".join(line + b"\n" for line in lines)


def _call(port: int, name: str, asked: dict[str, str]) -> dict[str, Any]:
    try:
        status, answer = ask(port, "POST", f"/v3/kv/{name}", json.dumps(asked))
    except (OSError, http.client.HTTPException) as error:
        raise RuntimeError(f"etcd at port {port} {name}: {error}") from error
    if status != http.HTTPStatus.OK:
        raise RuntimeError(f"etcd at port {port} {name}: {answer}")
    return answer


def ask(port: int, method: str, path: str, body: str | None = None) -> tuple[int, dict[str, Any]]:
    """Status and JSON of one request. Raises OSError, HTTPException."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG)
    with contextlib.closing(line):
        line.request(method, path, body)
        answer = line.getresponse()
        return answer.status, json.loads(answer.read())


def _base64(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()


def _range(key: str, *, prefix: bool) -> dict[str, str]:
    """The keys of a request; with `prefix` the end is the prefix with its last byte one more."""
    raw = key.encode()
    if not prefix:
        return {"key": _base64(raw)}
    if not raw:
        return {"key": _base64(b"\0"), "range_end": _base64(b"\0")}
    return {"key": _base64(raw), "range_end": _base64(raw[:-1] + bytes([raw[-1] + 1]))}
