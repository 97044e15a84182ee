"""`./run install` where programs are missing: what it asks apt-get for, and what it leaves enabled.

apt-get and dpkg-query are ours here; the directories that packages change lie in a mount namespace.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
APT = """\
#!/bin/sh
echo "apt-get $*" >>"$LOG"
case $* in
    *-s*)
        echo "Inst faketime (0.9 Debian:12 [amd64])"
        echo "Inst libc6 [2.36-9] (2.36-10 Debian:12 [amd64])"
        ;;
    install*)
        mkdir -p /etc/systemd/system/multi-user.target.wants
        ln -s /lib/systemd/system/frr.service /etc/systemd/system/multi-user.target.wants/
        ln -s ../init.d/frr /etc/rc2.d/S01frr
        [ ! -e "$FAILS" ] || exit 100
        umount /usr/bin/faketime
        ;;
esac
"""
DPKG = """\
#!/bin/sh
for name; do :; done
case $name in faketime | frr) exit 1 ;; *) echo installed ;; esac
"""
WORLD = """\
set -e
mount -t tmpfs t /etc/systemd/system
for level in 0 1 2 3 4 5 6; do mkdir -p /etc/rc$level.d; mount -t tmpfs t /etc/rc$level.d; done
ln -s /lib/systemd/system/own.service /etc/systemd/system/own.service
ln -s ../init.d/own /etc/rc2.d/S01own
mount --bind /dev/null /usr/bin/faketime
code=0
./run install || code=$?
find /etc/systemd/system -type l >"$LEFT"
ls /etc/rc2.d >>"$LEFT"
exit $code
"""


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A directory with the two programs in front of all others."""
    for name, text in (("apt-get", APT), ("dpkg-query", DPKG)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def install(world: Path) -> tuple[int, str, list[str], list[str]]:
    """Exit code, what is told, the command lines of apt-get, what is enabled afterwards."""
    log, left = world / "log", world / "left"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", WORLD],
        cwd=ROOT,
        env={
            "PATH": f"{world}:/usr/bin:/bin",
            "LOG": str(log),
            "LEFT": str(left),
            "FAILS": str(world / "fails"),
            "HOME": "/root",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.returncode, done.stderr, log.read_text().splitlines(), left.read_text().splitlines()


def test_only_what_is_missing_is_installed_and_nothing_is_enabled(world: Path) -> None:
    code, told, asked, enabled = install(world)
    assert code == 0, told
    update, simulated, installed = asked
    assert update.startswith("apt-get update")
    for line in (simulated, installed):
        assert line.split()[-2:] == ["faketime", "frr"] or line.split()[-2:] == ["frr", "faketime"]
        assert "--no-upgrade" in line
        assert "--no-remove" in line
    assert " -s " in simulated
    assert "upgraded:\nlibc6 2.36-9 -> 2.36-10\n" in told
    assert enabled == ["/etc/systemd/system/own.service", "K01frr", "S01own"]
    assert "not enabled for the next boot: frr.service" in told


def test_a_failed_installation_enables_nothing_either(world: Path) -> None:
    (world / "fails").touch()
    code, _, _, enabled = install(world)
    assert code == 100
    assert enabled == ["/etc/systemd/system/own.service", "K01frr", "S01own"]
