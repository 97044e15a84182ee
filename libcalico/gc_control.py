"""Python's cyclic collector at rest while very much is made at once.

A full pass walks every object there is: beside a quarter of a million it holds the event loop
longer than all other work, and it comes again and again while they are being made, finding
nothing. So it rests meanwhile; and what is made to last can be taken out of its sight for ever.

Tested in tests/libcalico/test_gc_control.py.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_resting = [0, 0]
"""How many want it at rest, and whether it was on before the first."""


@contextmanager
def resting(lasts: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Disable collector passes meanwhile; with several callers, until the last one ends.

    `lasts` is called at the end, unless an exception ends it: if true, no later pass walks what
    exists now. Garbage in a cycle at that moment stays for ever.
    """
    if not _resting[0]:
        _resting[1] = gc.isenabled()
    _resting[0] += 1
    gc.disable()
    try:
        yield
        if lasts():
            gc.freeze()
    finally:
        _resting[0] -= 1
        if not _resting[0] and _resting[1]:
            gc.enable()
