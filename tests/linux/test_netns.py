"""NS-1: a thread is back in its own namespace after `run_in`, or the process is gone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from linux import links, netlink, netns
from linux.errors import KernelError
from tests.support.netns import network_namespace


@pytest.mark.promise("M-108")
def test_a_namespace_we_make_is_one_that_ip_netns_knows() -> None:
    name = f"mt-made-{os.getpid()}"
    path = netns.create(name)
    try:
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
        assert name in listed.stdout.split()
        with pytest.raises(KernelError, match="File exists"):
            netns.create(name)
        fd = netns.open_path(path)
        home = netns.current()
        assert netns.is_netns(fd)
        assert not netns.same(fd, home)
        os.close(fd)
        os.close(home)
    finally:
        netns.delete(name)
    assert not path.exists()
    netns.delete(name)


def test_what_is_no_namespace_is_refused(tmp_path: Path) -> None:
    plain = tmp_path / "file"
    plain.touch()
    with pytest.raises(KernelError, match="not a network namespace"):
        netns.open_path(plain)
    with pytest.raises(KernelError, match="No such file"):
        netns.open_path(tmp_path / "none")
    with pytest.raises(KernelError, match="not a network namespace"):
        netns.open_path("/proc/self/ns/uts")
    with pytest.raises(ValueError, match="one path component"):
        netns.create("../x")


def test_the_thread_is_back_also_after_an_error() -> None:
    with network_namespace("back") as space:
        home = netns.current()
        inside: list[bool] = []

        def fail() -> None:
            here = netns.current()
            inside.append(netns.same(here, space.fd))
            os.close(here)
            raise RuntimeError("planned")

        with pytest.raises(RuntimeError, match="planned"):
            netns.run_in(space.fd, fail)
        now = netns.current()
        assert inside == [True]
        assert netns.same(home, now)
        os.close(home)
        os.close(now)


def test_a_refused_entry_changes_nothing() -> None:
    home = netns.current()
    with open("/dev/null", "rb") as null, pytest.raises(KernelError, match="enter network"):
        netns.run_in(null.fileno(), lambda: None)
    now = netns.current()
    assert netns.same(home, now)
    os.close(home)
    os.close(now)


def test_a_thread_that_cannot_return_ends_the_process() -> None:
    with network_namespace("abort") as space:
        program = (
            "import os, sys\n"
            "from linux import netns\n"
            "netns.current = lambda: os.open('/dev/null', os.O_RDONLY)\n"
            f"netns.run_in(netns.open_path({str(space.path)!r}), lambda: None)\n"
            "print('went on')\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=False
        )
    assert done.returncode == -6
    assert "went on" not in done.stdout
    assert "cannot return" in done.stderr


def test_a_socket_made_inside_stays_inside() -> None:
    with network_namespace("sock", loopback=False) as space:
        with netlink.open_in_netns(space.fd) as sock:
            assert [link.name for link in links.dump(sock)] == ["lo"]
            assert not links.dump(sock)[0].up
        threads = [
            threading.Thread(target=lambda: netlink.open_in_netns(space.fd).close())
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
