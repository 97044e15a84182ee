"""Start a program with a private /run and /var/lib: `launch.py RUN_DIRECTORY PROGRAM ARGUMENT...`.

/var/lib is the directory `var-lib` of /run. Run below `ip netns exec`, which has given this
process a mount namespace of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys

if __name__ == "__main__":
    lib = os.path.join(sys.argv[1], "var-lib")
    os.makedirs(lib, exist_ok=True)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "--bind", lib, "/var/lib"], check=True)
    subprocess.run(["mount", "--bind", sys.argv[1], "/run"], check=True)
    os.execvp(sys.argv[2], sys.argv[2:])
