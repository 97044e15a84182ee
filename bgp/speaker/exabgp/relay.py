"""ExaBGP's API process: hands its two pipes to the agent, then only waits to die.

ExaBGP talks to a program that it starts itself, over that program's stdin and stdout. The
agent must be ExaBGP's parent, not its child. So this program passes both descriptors to
the agent's socket (SCM_RIGHTS): not a byte flows through it, and it costs nothing while
routes do. It lives as long as the agent's socket, because ExaBGP watches it.

It dies with ExaBGP (PR_SET_PDEATHSIG) and with the agent (end of file on the socket).
Standard library only: it runs with `-I -S`. Tested in tests/bgp/test_exabgp.py.
"""

import ctypes
import os
import signal
import socket
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Connect to the socket named in argv, pass the pipes, wait for its end."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
        agent.connect(sys.argv[1])
        socket.send_fds(agent, [str(parent).encode()], [0, 1])
        while agent.recv(64):
            pass
    os._exit(0)


if __name__ == "__main__":
    main()
