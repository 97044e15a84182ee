"""A session that we end ends with its NOTIFICATION.

Applied by `patches.apply`. Standard library and ExaBGP only. Tested in tests/bgp/test_hostile.py
and test_removal.py.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

from collections.abc import Iterator

from exabgp.bgp.fsm import FSM
from exabgp.bgp.message import Notify
from exabgp.logger import log
from exabgp.reactor import peer as peers
from exabgp.reactor.api.processes import ProcessError, Processes
from exabgp.reactor.network.error import NetworkError

from bgp.speaker.exabgp.upstream.exabgp_types import Neighbor, Peer

NOTICE_BASE = 1000
"""`teardown 3005` sends NOTIFICATION 3/5; `teardown 4` sends 6/4, as in ExaBGP."""

_SPEAKING = (FSM.OPENSENT, FSM.OPENCONFIRM, FSM.ESTABLISHED)


def teardown_with_notice() -> None:
    """An API `teardown` sends its NOTIFICATION, under graceful restart too.

    ExaBGP then closes without one: a peer whose UPDATE cannot be divided, or that passed its
    prefix limit, would never learn why, and keep our routes as if we restarted.

    Upstream: a session under graceful restart is closed without NOTIFICATION.
    Fails without it: test_hostile.py, test_what_cannot_be_read_ends_the_session_with_its_reason.
    Remove when: `teardown` sends it under graceful restart, with any code.
    """
    main, teardown = peers.Peer._main, peers.Peer.teardown

    def run(self: Peer) -> Iterator[object]:
        self._notice = None
        for action in main(self):
            if self._notice is not None:
                raise self._notice
            yield action

    def end(self: Peer, code: int, restart: bool = True) -> None:
        if not self.established():
            teardown(self, 4, restart)
            return
        self._notice = Notify(code // NOTICE_BASE or 6, code % NOTICE_BASE)
        self._delay.reset()

    peers.Peer._main, peers.Peer.teardown = run, end


def removal_with_notice() -> None:
    """A peer that is taken out of the configuration hears so: CEASE 6/3 (RFC 4486).

    ExaBGP only closes, and under graceful restart the peer keeps our routes as if we restarted.
    And one that comes back before it had its last turn stays; ExaBGP would forget it.

    Upstream: a removed peer is only closed, and forgotten if it is back before its last turn.
    Fails without it: test_removal.py, test_a_removed_peer_is_told_and_comes_back_at_once.
    Remove when: ExaBGP sends CEASE 6/3 itself, and keeps a peer that is back.
    """
    remove, reconfigure = peers.Peer.remove, peers.Peer.reconfigure

    def run(self: Peer) -> None:
        if self.proto is not None and self.fsm in _SPEAKING:
            try:
                next(self.proto.new_notification(Notify(6, 3)), None)
            except (NetworkError, ProcessError) as error:
                log.warning(lambda error=error: f"the peer was not told: {error}", self.id())
        remove(self)

    def back(self: Peer, neighbor: Neighbor | None = None) -> None:
        reconfigure(self, neighbor)
        if self.stopping():
            self._restart, self._teardown, self.generator = True, None, None

    peers.Peer.remove, peers.Peer.reconfigure = run, back


def header_errors() -> None:
    """A wrong message header is answered with its NOTIFICATION (RFC 4271 6.1).

    ExaBGP fails in reporting it to its API process, and closes without a word; the `down` that
    follows says enough.

    Upstream: the report of a NOTIFICATION to the API process fails.
    Fails without it: test_hostile.py, test_what_cannot_be_read_ends_the_session_with_its_reason.
    Remove when: a wrong marker is answered with NOTIFICATION 1/1 without this.
    """
    Processes.notification = lambda *_: None


def apply() -> None:
    """From now on."""
    teardown_with_notice()
    removal_with_notice()
    header_errors()
