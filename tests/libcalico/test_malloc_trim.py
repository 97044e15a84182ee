"""Free memory between what is kept goes back to the kernel, from one arena alone."""

from __future__ import annotations

import json
import subprocess
import sys

STORY = """
import asyncio, json, threading
from libcalico.process import malloc_trim

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4

def fill():
    some = [bytes(1000 + number % 7) for number in range(40_000)]
    return some[::500]

async def main():
    kept = [fill()]
    for _ in range(4):
        thread = threading.Thread(target=lambda: kept.append(fill()))
        thread.start()
        thread.join()
    full = resident()
    malloc_trim.PAUSE, malloc_trim.WORTH_CPU = 0.05, 0.0
    task = asyncio.create_task(malloc_trim.give_back())
    await asyncio.sleep(0.5)
    task.cancel()
    print(json.dumps([full, resident()]))

if __name__ == "__main__":
    malloc_trim.one_arena()
    asyncio.run(main())
"""


def test_what_is_free_is_given_back() -> None:
    """40 MB that are free, with something kept in every half a megabyte of them."""
    done = subprocess.run(
        [sys.executable, "-c", STORY], capture_output=True, text=True, check=True, timeout=120
    )
    full, after = json.loads(done.stdout)
    assert after < full - 20_000, (full, after)
