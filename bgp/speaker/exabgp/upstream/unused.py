"""What ExaBGP loads at its start and never uses here.

`asyncio`, `inspect` and `pdb` bring 60 modules of the standard library with them: a fifth of the
processor time of its start. Standard library only. Tested in tests/bgp/test_exabgp.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

NAMES = ("asyncio", "inspect", "pdb")


@contextmanager
def left_out() -> Iterator[None]:
    """While ExaBGP is imported, an empty module stands in the place of each.

    Upstream: what only a debugger uses, or a command of the API that is a coroutine, is imported
        at every start.
    Fails without it: test_exabgp.py, test_exabgp_starts_without_what_it_never_uses.
    Remove when: ExaBGP imports them where it uses them.
    """
    sys.modules.update({name: ModuleType(name) for name in NAMES})
    try:
        yield
    finally:
        for name in NAMES:
            del sys.modules[name]
