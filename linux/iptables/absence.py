"""What an iptables program says when the kernel lacks a part of xtables, with the cure added.

libxtables names an extension, not a module: the kernel asks for `ipt_NAME` or `ip6t_NAME`, which
every module of an extension knows as its alias, so that name is right on every kernel.
Pure. Tested in tests/linux/test_absence.py; tests/uml/test_without_modules.py has a kernel that
lacks parts.
"""

from __future__ import annotations

import re

from linux.errors import CommandError

_EXTENSION = re.compile(
    r"Extension (\S+?)(?: revision \d+| is)? not supported, missing kernel module\?"
)
_TABLE = re.compile(r"(?:can't|unable to) initialize (?:ip6?tables )?table [`'](\w+)'")


def with_cure(error: CommandError) -> CommandError:
    """The same error, which says what to load if its text tells that something is lacking."""
    prefix = "ip6" if error.command.startswith("ip6") else "ip"
    lacks = [
        (f"match or target {name} of {prefix}tables", f"{prefix}t_{name}")
        for name in dict.fromkeys(_EXTENSION.findall(error.stderr))
    ]
    lacks += [
        (f"table {name} of {prefix}tables", f"{prefix}table_{name}")
        for name in dict.fromkeys(_TABLE.findall(error.stderr))
    ]
    if not lacks:
        return error
    what = " and no ".join(name for name, _ in lacks)
    modules = " ".join(module for _, module in lacks)
    said = f"this kernel has no {what} (modprobe -a {modules}): {error.stderr.strip()}"
    return CommandError(error.command, error.status, said)
