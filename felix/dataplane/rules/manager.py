"""The manager of rules and sets: one back end, what it should hold, and when what goes.

A turn renders what is desired (`render`), writes the sets (`write_sets`), then the rules, and has
`after_rules` close what the kernel refuses or take away what no rule asks any more. The main loop
writes rules at once where the back end can (`Tables.commit_now`), else in their threads
(`Tables.commit`); `felix.dataplane.turn.order` says what waits for them.
Tested in tests/felix/dataplane/test_turns.py and tests/felix/kernel/test_backend_switch.py.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Set
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from felix.calc.changes import Changes
from felix.calc.policy_model import ResolvedPolicy
from felix.config.parameters import Config
from felix.dataplane.devices.work import Listener
from felix.dataplane.rules import backend
from felix.dataplane.rules.backend_mode import Mode, has_ipv6
from felix.dataplane.rules.desired import DesiredRules
from felix.dataplane.rules.ipsets import Sets
from felix.dataplane.rules.other_backend_cleanup import OtherBackendCleanup
from felix.dataplane.rules.removal_timing import RemovalTiming
from felix.dataplane.turn.cooperative_steps import in_slices
from felix.rules.nflog_prefix import Tell
from libcalico.model import ResourceKey
from libcalico.process.tasks import Background
from linux.errors import KernelError

READ_BACK = "read-back of the rules"
IPAddress = IPv4Address | IPv6Address

log = logging.getLogger(__name__)


class Parts(NamedTuple):
    """What writes rules and sets, and what these should hold."""

    tables: backend.Tables
    sets: Sets
    desire: DesiredRules


class RulesManager:
    """Rules and sets of one node. `kick` asks for a turn about everything.

    `families`: the IP versions that are programmed. `guarded`: the tunnels' listeners whose rules
    stand. `telling`: which packets rules are to tell of (`tell`).
    """

    def __init__(self, background: Background, kick: Callable[[], None]) -> None:
        self.tables: backend.Tables | None = None
        self.sets: Sets | None = None
        self.desire: DesiredRules | None = None
        self.mode = Mode()
        self.families: frozenset[int] = frozenset({4})
        self.guarded: frozenset[Listener] = frozenset()
        self.telling = Tell.NOTHING
        self._cleanup = OtherBackendCleanup(background)
        self._removals = RemovalTiming(time.monotonic)
        self._background, self._kick = background, kick

    # -- what others ask -----------------------------------------------------------------------

    @property
    def prepared(self) -> bool:
        """Whether programming has begun, with the parameters of then."""
        return self.tables is not None

    @property
    def backend_name(self) -> str:
        """What people call the back end; empty before programming has begun."""
        return self.tables.name if self.tables is not None else ""

    @property
    def set_writes(self) -> int:
        """Sets that were changed so far."""
        return self.sets.writes if self.sets is not None else 0

    @property
    def set_count(self) -> int:
        """How many kernel sets are desired."""
        return len(self.sets) if self.sets is not None else 0

    @property
    def renders(self) -> int:
        """Chains of policies and endpoints that were rendered so far."""
        return self.desire.book.renders if self.desire and self.desire.book else 0

    @property
    def unusable(self) -> frozenset[str]:
        """Sets that the kernel does not hold as desired."""
        book = self.desire.book if self.desire is not None else None
        return book.unusable if book is not None else frozenset()

    @property
    def tells(self) -> Tell:
        """Which packets the rules of the last turn tell of."""
        return Tell.NOTHING if self.desire is None else self.desire.tell

    @property
    def wait(self) -> float | None:
        """Seconds after which rules are to be taken away; None: there are none such."""
        return self._removals.wait

    def degraded(self) -> dict[ResourceKey, str]:
        """What is not as asked, object by object: closed policies, host endpoints without use."""
        desire = self.desire
        if desire is None or desire.book is None:
            return {}
        return desire.book.degraded() | desire.idle_hosts | desire.unfloated() | desire.strict()

    def tell(self, tell: Tell) -> None:
        """Which packets rules are to tell of (`felix.rules.nflog_prefix`), while there is a
        reader.
        """
        if tell is not self.telling:
            self.telling = tell
            self._kick()

    def warming(self, policy: ResolvedPolicy) -> Iterator[None]:
        """Make and render the rules of a policy ahead, in steps."""
        return self.desire.warming(policy) if self.desire is not None else iter(())

    # -- the steps of a turn -------------------------------------------------------------------

    async def choose(self, config: Config, now: float) -> bool:
        """Begin programming, or go over to another back end; the old one's rules stay till then.

        Returns whether the back end is another one now.
        """
        if not self.mode.differs(config, now):
            return False
        await self._open(config)
        return True

    async def _open(self, config: Config) -> None:
        await self._cleanup.stop()
        ipv6 = config.ipv6_support and has_ipv6()
        self.families = frozenset({4, 6} if ipv6 else {4})
        tables, sets = await backend.open_backend(
            config, self.families, in_nftables=self.mode.wanted, drifted=self.drifted
        )
        self._background.cancel(READ_BACK)
        self.close()
        self.tables, self.sets = tables, sets
        self.mode.used = self.mode.wanted
        self.desire = DesiredRules(self.families, tables, sets)
        families = " and IPv".join(map(str, sorted(self.families)))
        log.info("programming begins: IPv%s, %s", families, tables.name)

    def parts(self) -> Parts:
        """Tables, sets and what they should hold: there once `choose` ran."""
        assert self.tables is not None
        assert self.sets is not None
        assert self.desire is not None
        return Parts(self.tables, self.sets, self.desire)

    async def render(
        self,
        config: Config,
        news: Changes,
        hosts: Mapping[str, Set[IPAddress]],
        asked: frozenset[Listener],
        about: frozenset[str] | None,
    ) -> frozenset[str] | None:
        """Bring the desired rules and sets up to the calculation; `hosts`, `asked` and `about` as
        in `DesiredRules.update`. Returns what the turn is about now that the rules are known.
        """
        desire = self.parts().desire
        floating, desire.tell = desire.floating, self.telling
        parameters = self.mode.parameters(config)
        await in_slices(desire.update(parameters, news, hosts, asked, about))
        if about is None or desire.floating is not floating:
            return None
        return about | desire.looked_at

    async def write_sets(
        self, config: Config, asked: frozenset[Listener], *, reread: bool
    ) -> dict[str, str]:
        """Sets go before the rules that ask them; returns failures, which close policies."""
        _, sets, desire = self.parts()
        if reread:
            sets.forget()
        sets.resize(config.max_ipset_size)
        failures = await sets.commit()
        await in_slices(desire.trust())
        # What may go in this commit is not relied upon, even if the commit is refused.
        self.guarded &= asked
        return failures

    def removals_due(self, *, applied: bool, stands: Callable[[str], bool]) -> bool:
        """Whether what is not desired is to be taken away in this turn. `stands`: whether a link of
        this name is there.
        """
        if not applied or self._removals.due:
            return True
        return self.desire is not None and self.desire.open_ways(stands)

    def after_rules(
        self,
        config: Config,
        asked: frozenset[Listener],
        failures: Mapping[str, str],
        *,
        quiet: bool,
    ) -> dict[str, str]:
        """Close what the kernel refuses, or take away what the rules no longer ask; what stays.

        `quiet`: nothing waits for the next turn.
        """
        tables, sets, desire = self.parts()
        leftovers: dict[str, str] = {}
        if failures and desire.refuse():
            # Now that what the kernel refuses is closed, the rest need not wait.
            self._kick()
        if not failures:
            self.guarded = asked
            came = desire.written()
            # A set that another program's rule uses is a nuisance, not a want of enforcement.
            leftovers = self._removals.sets(tables, sets, served=came and quiet)
            self._cleanup.clean(tables.name, config.iptables_lock_timeout)
        return leftovers

    def sets_lost(self) -> bool:
        """Whether sets may be gone with what another program removed: they are read again then."""
        tables, sets, _ = self.parts()
        lost = tables.take_lost()
        if lost:
            sets.forget()
        return lost

    # -- beside the turns ----------------------------------------------------------------------

    def read_back_beside(self) -> None:
        """Have all rules read, and a turn asked for where they are not as written."""
        if not self._background.busy(READ_BACK):
            tables, sets, desire = self.parts()
            self._background.keep(READ_BACK, lambda: self._read_back(tables, sets, desire))

    async def _read_back(self, tables: backend.Tables, sets: Sets, desire: DesiredRules) -> None:
        try:
            if await tables.read_back() or await desire.reconsider():
                self._kick()
        except KernelError:
            # What could be read may differ; the rest is read again (`Background`).
            self._kick()
            raise
        finally:
            if tables.take_lost():
                sets.forget()

    def drifted(self) -> None:
        """The kernel told that another program changed our tables."""
        if self.sets is not None:
            self.sets.forget()
        self._kick()

    def close(self) -> None:
        """Give back what waits; rules and sets stay."""
        for part in (self.tables, self.sets):
            if part is not None:
                part.close()
