"""A plugin of a few lines of shell that keeps what it was given, and a client of two of them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from cni.client import Client, Network, parse

RECORDER = """#!/bin/sh
here=${0%/*}/../told; name=${0##*/}
echo "$CNI_COMMAND $name" >> "$here/calls"
cat > "$here/$CNI_COMMAND-$name.json"
env > "$here/$CNI_COMMAND-$name.env"
[ -f "$here/../fails/$CNI_COMMAND-$name" ] && { cat "$here/../fails/$CNI_COMMAND-$name"; exit 1; }
[ "$CNI_COMMAND" != VERSION ] || echo '{"cniVersion":"1.1.0","supportedVersions":["0.3.1","1.0.0"]}'
[ "$CNI_COMMAND" != ADD ] || cat "$here/../result-$name"
exit 0
"""
RESULT = {
    "cniVersion": "1.0.0",
    "interfaces": [{"name": "eth0", "sandbox": "/run/netns/x", "unknown": 1}],
    "ips": [{"interface": 0, "address": "10.1.2.3/32", "colour": "red"}],
    "unknown": True,
}


class Recorder:
    """A client of two recorders, `first` and `second`."""

    def __init__(self, folder: Path) -> None:
        self.told, self.fails, self.net = folder / "told", folder / "fails", folder / "net.d"
        bin_dir = folder / "bin"
        for made in (self.told, self.fails, self.net, bin_dir):
            made.mkdir()
        for name in ("first", "second"):
            (bin_dir / name).write_text(RECORDER)
            (bin_dir / name).chmod(0o755)
            (folder / f"result-{name}").write_text(json.dumps(RESULT))
        self.folder = folder
        self.client = Client([bin_dir], folder / "cache", {"PATH": os.environ["PATH"], "MY": "own"})

    def network(self, version: str = "1.0.0", **more: Any) -> Network:
        """A list of both; `first` declares two capabilities, one of them off."""
        first = {
            "type": "first",
            "key": 1,
            "capabilities": {"mac": True, "dns": False, "ips": True},
        }
        plugins = [first, {"type": "second"}]
        tree = {"cniVersion": version, "name": "mynet", "plugins": plugins, **more}
        return parse(json.dumps(tree).encode())

    def calls(self) -> list[str]:
        """What ran since the last time, in order."""
        path = self.told / "calls"
        found = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return found

    def given(self, command: str, name: str) -> Any:
        """The configuration that a plugin got."""
        return json.loads((self.told / f"{command}-{name}.json").read_text())

    def environ(self, command: str, name: str) -> dict[str, str]:
        """The environment that a plugin got."""
        lines = (self.told / f"{command}-{name}.env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def fail(self, command: str, name: str, error: str) -> None:
        """Let a plugin fail from now on."""
        (self.fails / f"{command}-{name}").write_text(error)


def put(folder: Path, file: str, **tree: Any) -> None:
    (folder / file).write_text(json.dumps(tree))
