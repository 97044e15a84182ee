"""The simulated API over a wire, for clients that make their own connections: HTTP/1.1, no TLS.

A client's access names a host (`http://CLIENT.simulated`); the loop leads it to a unix socket on
which this server answers with the client's own weather.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from libcalico.kubernetes.access import Access
from libcalico.kubernetes.client import Client
from libcalico.kubernetes.errors import ApiError, KubernetesError
from tests.simulation.stores.kubernetes import Api, ApiClient
from tests.simulation.stores.weather import Weather


async def client(api: Api, weather: Weather, name: str, folder: Path) -> Client:
    """A real client, and what answers it."""
    behind, path = ApiClient(api, weather), folder / f"{name}.api"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await _one(behind, reader, writer):
                pass
        except (KubernetesError, OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    loop: Any = asyncio.get_running_loop()
    await asyncio.start_unix_server(serve, str(path))
    loop.hosts[f"{name}.simulated"] = str(path)
    return Client(lambda: Access(f"http://{name}.simulated"))


async def _one(
    behind: ApiClient, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, target, _ = head[0].split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (h.partition(":") for h in head)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    parts = urlsplit(target)
    query = dict(parse_qsl(parts.query))
    if query.get("watch"):
        await _watch(behind, parts.path, query, writer)
        return False
    try:
        answer, code = await behind.request(method, parts.path, query, body), 200
    except ApiError as error:
        status = {"kind": "Status", "code": error.status, "reason": error.reason}
        answer, code = msgspec.json.encode({**status, "message": str(error)}), error.status
    writer.write(f"HTTP/1.1 {code} x\r\ncontent-length: {len(answer)}\r\n\r\n".encode() + answer)
    await writer.drain()
    return True


async def _watch(
    behind: ApiClient, path: str, query: Mapping[str, str], writer: asyncio.StreamWriter
) -> None:
    seconds = int(query.get("timeoutSeconds", "300"))
    revision = query.get("resourceVersion", "0")
    asked = {name: value for name, value in query.items() if name == "fieldSelector"}
    async for line in behind.lines(path, revision, asked, seconds=seconds):
        if not line:
            writer.write(b"HTTP/1.1 200 x\r\ntransfer-encoding: chunked\r\n\r\n")
        else:
            writer.write(f"{len(line) + 1:x}\r\n".encode() + line + b"\n\r\n")
        await writer.drain()
    writer.write(b"0\r\n\r\n")
