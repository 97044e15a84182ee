"""Felix as it meets a kernel without nft_log: `python -m tests.felix.lacking_log`.

The expression that logs gets a name that no kernel knows, and the kernel treats that as it treats
one whose module it does not find.
"""

from __future__ import annotations

import sys

from felix import main
from linux.nftables import statements

_log = statements.log


def log(prefix: str, level: int) -> bytes:
    """The expression under another name of the same length."""
    packed = _log(prefix, level)
    assert packed.count(b"log\0") == 1
    return packed.replace(b"log\0", b"nix\0")


if __name__ == "__main__":
    statements.log = log
    sys.exit(main.main())
