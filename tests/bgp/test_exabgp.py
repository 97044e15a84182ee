"""ExaBGP's configuration and the child's environment: golden text, refusals, secrets."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace

import pytest

from bgp.speaker.exabgp import child_command, child_user, config
from bgp.speaker.exabgp.session import down_reason
from bgp.speaker.interface import DownReason, Family, IPAddress, Peer

GOLDEN = Path(__file__).with_name("golden") / "exabgp.conf"
PROGRAM = "/usr/bin/python3"


def a_peer(address: str, local: str, **more: object) -> Peer:
    remote: IPAddress = ip_address(address)
    own: IPAddress = ip_address(local)
    values: dict[str, object] = {
        "address": remote,
        "remote_as": 64512,
        "local_address": own,
        "local_as": 64512,
        "router_id": ip_address("10.0.0.1"),
        "families": (Family.of(remote),),
        **more,
    }
    return Peer(**values)  # type: ignore[arg-type]


PEERS = [
    a_peer("fd00::2", "fd00::1", hold_time=9, restart_time=9000),
    a_peer("10.0.0.254", "10.0.0.1", remote_as=64500, ttl_security=2, port=1179, listen_port=180),
    a_peer("10.0.0.2", "10.0.0.1", passive=True, password='a"b;}\n'),
    a_peer("10.0.0.3", "10.0.0.1", keepalive=7, any_source=True, listen_any=True, add_path=False),
]


def test_golden() -> None:
    """The text is fixed and does not depend on the order of the peers."""
    text = config.render(PEERS, PROGRAM)
    assert text == config.render(reversed(PEERS), PROGRAM)  # type: ignore[arg-type]
    assert text == GOLDEN.read_text()


def test_exabgp_accepts_it(tmp_path: Path) -> None:
    """The real ExaBGP validates what we write, and refuses what is broken."""
    good, bad = tmp_path / "good.conf", tmp_path / "bad.conf"
    good.write_text(config.render(PEERS, PROGRAM))
    bad.write_text("neighbor nowhere { }")
    assert asyncio.run(child_command.validate(good, 0)) == ""
    assert asyncio.run(child_command.validate(bad, 0)) != ""


@pytest.mark.parametrize("word", ["", "a b", "a;b", 'a"b', "a{b"])
def test_a_word_that_the_grammar_cannot_carry(word: str) -> None:
    with pytest.raises(ValueError, match="program"):
        config.render(PEERS, word)


def test_password_is_never_shown() -> None:
    """Not in repr, and not as it is in the file."""
    assert 'a"b' not in repr(PEERS[2])
    assert 'a"b' not in config.render(PEERS, PROGRAM)


def test_a_key_is_never_logged() -> None:
    """ExaBGP quotes the configuration line that it does not like."""
    assert child_command.readable(b'md5-password "c2VjcmV0" is wrong') != ""
    assert "c2VjcmV0" not in child_command.readable(b'md5-password "c2VjcmV0" is wrong')
    assert child_command.readable(b"bound \xff") == "bound \ufffd"


def test_exabgp_starts_without_what_it_never_uses() -> None:
    """Neither a debugger nor an event loop; who imports one later has the real one."""
    program = (
        "import sys\n"
        "from bgp.speaker.exabgp import launch\n"
        "from bgp.speaker.exabgp.upstream.unused import NAMES\n"
        "launch.load('server')\n"
        "print(*({*NAMES, 'ssl', 'concurrent.futures'} & set(sys.modules)), 'loaded')\n"
        "import asyncio\n"
        "asyncio.run(asyncio.sleep(0))\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("loaded\n", "")


def test_a_connection_that_is_closed_brings_no_open() -> None:
    """It may have been closed while it waited: its socket is gone, or has no number any more."""
    from bgp.speaker.exabgp.upstream.replacing import _has_open

    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        waiting = SimpleNamespace(io=ours)
        assert _has_open(waiting) is None
        ours.close()
        assert _has_open(waiting) is False
    assert _has_open(SimpleNamespace(io=None)) is False


def test_private_file_is_never_wider(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    old = os.umask(0)
    try:
        child_user.write_private(path, "x", 0)
        child_user.write_private(path, "y", 0)
    finally:
        os.umask(old)
    assert path.read_text() == "y"
    assert path.stat().st_mode & 0o777 == 0o400


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_unreachable_run_directory_keeps_the_uid(tmp_path: Path) -> None:
    """Where another uid cannot pass, ExaBGP keeps ours, and the reason names the directory."""
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    uid, why = child_user.speaker_id(hidden / "bgp")
    assert uid == 0
    assert "cannot be entered" in why


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("closing connection", DownReason.CLOSED),
        ("notification received (6,2)", DownReason.NOTIFICATION_RECEIVED),
        ("notification sent (4,0)", DownReason.NOTIFICATION_SENT),
        (
            "graceful restarted negotiated, closing without sending any notification",
            DownReason.CLOSED,
        ),
        ("", DownReason.CLOSED),
    ],
)
def test_down_reason(words: str, reason: DownReason) -> None:
    assert down_reason(words) is reason
