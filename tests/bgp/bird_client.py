"""A client of BIRD's control socket, written from docs/reference/dataplane.md#birds-control-socket
alone."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from tests.support.patience import HANG

_PEER = re.compile(r"^(Global|Node|Mesh)_(.+)$")


async def ask(path: Path, command: str) -> list[str]:
    """The lines of an answer, codes and all."""
    reader, writer = await asyncio.open_unix_connection(str(path), limit=1 << 20)
    try:
        async with asyncio.timeout(HANG):
            banner = await reader.readline()
            assert banner.startswith(b"0001 "), banner
            writer.write(command.encode() + b"\n")
            lines = []
            while True:
                line = (await reader.readline()).decode().rstrip("\n")
                lines.append(line)
                if re.match(r"\d{4} ", line):
                    return lines
    finally:
        writer.close()


async def peers(path: Path, separator: str) -> list[tuple[str, str, str, str, str]]:
    """(address, type, state, since, info) as Calico's own `calicoctl node status` reads them."""
    rows, inside = [], False
    for line in await ask(path, "show protocols"):
        code, text = line[:4], line[5:]
        if code == "2002":
            assert text.split() == ["name", "proto", "table", "state", "since", "info"]
        elif code == "1002":
            inside = True
            rows.append(text)
        elif line.startswith(" ") and inside:
            rows.append(line[1:])
        else:
            assert code == "0000"
    found = []
    for row in rows:
        columns = row.split(None, 5)
        named = _PEER.match(columns[0])
        if len(columns) == 6 and columns[1] == "BGP" and named:
            address = named[2].replace("_", separator)
            found.append((address, named[1], columns[3], columns[4], columns[5].strip()))
    return found
