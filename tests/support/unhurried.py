"""A program of ours with long limits in place of those that a busy machine may exceed."""

from __future__ import annotations

import sys

from tests.support.patience import HANG


def command(main: str, *limits: str) -> list[str]:
    """As `python -m MAIN`; `limits` are settings in seconds, such as `node.probes:LIMIT`."""
    lines = ["import sys", "from importlib import import_module as of"]
    for limit in limits:
        module, _, name = limit.partition(":")
        lines += [f"assert of({module!r}).{name} < {HANG}", f"of({module!r}).{name} = {HANG}"]
    return [sys.executable, "-c", "\n".join([*lines, f"sys.exit(of({main!r}).main())"])]
