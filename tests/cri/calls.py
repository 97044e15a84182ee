"""What a runtime really sends: plugins that note their call and hand it to the real one.

/run/cri/bin/NAME      a few lines of shell under the plugin's name, in the runtime's bin_dir
/run/cri/calls/N/      call N: `name`, `env`, `stdin`, and what the plugin answered
/run/cri/fail/COMMAND-NAME  while it is there the plugin fails with its content instead
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from lab.machine import Machine
from libcalico.process import paths

HOME = "/run/cri"
BIN = f"{HOME}/bin"
NOTING = """\
#!/bin/sh
me=${0##*/}
call=$(mktemp -d -p %(home)s/calls "$(date +%%s%%N).XXXX")
cat > "$call/stdin"
env > "$call/env"
echo "$me" > "$call/name"
fail=%(home)s/fail/$CNI_COMMAND-$me
if [ -f "$fail" ]; then
    cp "$fail" "$call/stdout"
    status=1
else
    %(real)s/"$me" < "$call/stdin" > "$call/stdout"
    status=$?
fi
cat "$call/stdout"
exit $status
"""


@dataclass(frozen=True)
class Call:
    """One call of one plugin."""

    plugin: str
    env: dict[str, str]
    config: dict[str, Any]
    answer: dict[str, Any]

    @property
    def title(self) -> str:
        """`ADD calico`"""
        return f"{self.env['CNI_COMMAND']} {self.plugin}"

    @property
    def args(self) -> dict[str, str]:
        """CNI_ARGS."""
        return dict(pair.split("=", 1) for pair in self.env["CNI_ARGS"].split(";"))


class Calls:
    """The plugins of one node, wrapped; and what they were asked."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        for name in ("bin", "calls", "fail"):
            machine.path(f"{HOME}/{name}").mkdir(parents=True, exist_ok=True)
        for plugin in ("calico", "calico-ipam", "portmap", "bandwidth", "loopback"):
            path = machine.path(f"{BIN}/{plugin}")
            path.write_text(NOTING % {"home": HOME, "real": paths.CNI_BIN})
            path.chmod(0o755)

    def seen(self) -> list[Call]:
        """ADDs and DELs in their order, without those for `lo`."""
        found = []
        for folder in sorted(self.machine.path(f"{HOME}/calls").iterdir()):
            if not (folder / "stdout").exists():
                continue
            lines = (folder / "env").read_text().splitlines()
            env = dict(line.split("=", 1) for line in lines if line.startswith("CNI_"))
            if env["CNI_COMMAND"] not in ("ADD", "DEL") or env["CNI_IFNAME"] == "lo":
                continue
            config, answer = (folder / "stdin").read_text(), (folder / "stdout").read_text()
            found.append(
                Call(
                    (folder / "name").read_text().strip(),
                    env,
                    json.loads(config),
                    json.loads(answer) if answer.strip() else {},
                )
            )
        return found

    def verbs(self, plugin: str) -> list[str]:
        """Every CNI_COMMAND that a plugin was called with, in order."""
        found = []
        for folder in sorted(self.machine.path(f"{HOME}/calls").iterdir()):
            # The name is written last.
            if (folder / "name").exists() and (folder / "name").read_text().strip() == plugin:
                lines = (folder / "env").read_text().splitlines()
                found += [
                    line.partition("=")[2] for line in lines if line.startswith("CNI_COMMAND=")
                ]
        return found

    def about(self, pod: str) -> list[Call]:
        """Calls of one pod."""
        return [call for call in self.seen() if call.args["K8S_POD_NAME"] == pod]

    def fail(self, command: str, plugin: str, error: dict[str, Any]) -> None:
        """Let a plugin fail from now on."""
        self.machine.path(f"{HOME}/fail/{command}-{plugin}").write_text(json.dumps(error))

    def mend_all(self) -> list[str]:
        """Every plugin works again; those that did not."""
        failing = sorted(self.machine.path(f"{HOME}/fail").iterdir())
        for one in failing:
            one.unlink()
        return [one.name for one in failing]

    def mend(self, command: str, plugin: str) -> None:
        """It works again."""
        self.machine.path(f"{HOME}/fail/{command}-{plugin}").unlink()
