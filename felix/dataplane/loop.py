"""The main loop: what changed is made so in the kernel, at once when the loop is idle.

One task owns all writes. Changes only set a flag; what arrives while a commit runs is
collected and costs one more commit. Start-up, drift repair and steady state are this one path:
look, compare, write the difference.

One turn takes one value of changes from the calculation (`felix.calc.changes`) and hands it to
three managers: rules with their sets, links, routes. Order of a turn: sets, then rules and, before
or beside them, links and routes (`felix.dataplane.turn.order`), then sets that no rule asks.

Invariants:
  DPL-1  Nothing is written before the datastore and the interfaces have been read whole.
  DPL-2  A commit with nothing to do writes nothing and starts no program.
  DPL-3  An endpoint is reported in force only while the kernel has its routes, its sets, its
         policies' chains and its own, in every family.
  DPL-4  A set that cannot be written closes the policies that need it and holds up nothing else.
  DPL-5  While rules are refused, no pod gets a route that would meet other rules than its own:
         none before the first commit stands, later none whose stale chains the kernel has.
         Nor does a tunnel's device begin to unwrap (TDV-4).
Tested in tests/felix/kernel/test_forwarding.py, test_repair.py, test_restart.py,
test_policy_packets.py, test_policy_refused.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from felix.calc.changes import Changes
from felix.calc.encapsulation import Encapsulation
from felix.calc.endpoints import Endpoint, addresses
from felix.calc.graph import Calculator
from felix.calc.learned_routes import PathTable
from felix.config.parameters import Config
from felix.dataplane.devices.dirty_set import DirtySet
from felix.dataplane.devices.managers import LinkManagers
from felix.dataplane.devices.view import KernelView
from felix.dataplane.devices.work import LinkWork
from felix.dataplane.routes.in_force import InForce
from felix.dataplane.routes.kernel_reader import KernelReader
from felix.dataplane.routes.manager import RouteManager
from felix.dataplane.routes.off_node_routes import TunnelEnds
from felix.dataplane.rules.manager import RulesManager
from felix.dataplane.turn.ahead import Ahead
from felix.dataplane.turn.cooperative_steps import happens_before, in_slices
from felix.dataplane.turn.order import Order, order
from felix.dataplane.turn.resync_timers import ResyncTimers
from felix.dataplane.turn.state import State
from felix.dataplane.turn.turn import Turn
from felix.dataplane.turn.wake import Wake
from libcalico import gc_control
from libcalico.model import ResourceKey
from libcalico.process.backoff import Backoff
from libcalico.process.tasks import Background, beside, start
from linux.errors import KernelError
from linux.links import is_there

IDLE_BEAT = 10.0
TURNS_FOR_WRITES = 3
MUCH = 1000
"""Chains that were rendered in one turn, from which on the collector leaves them alone."""

log = logging.getLogger(__name__)


class Dataplane:
    """Programs one node's kernel from the calculation and the paths.

    `published` is called after every turn, also before the datastore is read: own addresses
    or endpoint states may have changed. `linger`: how long what the kernel tells may wait for more.
    `on_ruled` is called in a turn, of endpoints whose rules and sets stand and whose link lacks.
    """

    def __init__(
        self,
        calc: Calculator,
        paths: PathTable,
        config: Config,
        published: Callable[[], None],
    ) -> None:
        self.calc, self.config = calc, config
        self.state = State()
        self.touched = DirtySet()
        self.view = KernelView(config.interface_prefix, self.touched)
        self.wake = Wake(self.touched)
        self.background = Background()
        self.rules = RulesManager(self.background, self.kick)
        self.links = LinkManagers(calc.node, self.kick, self.background)
        self.routing = RouteManager(
            self.view, self.touched, paths, self.wake, self._flows_are_gone, calc.unread
        )
        self.linger: Callable[[], float] = lambda: 0.0
        self.on_ruled: Callable[[list[ResourceKey]], None] = lambda _: None
        self._published = published
        self._in_force = InForce(self.state, self.view, self.routing.routes)
        self._ahead = Ahead(calc.policy, self.rules.warming, self.kick_some)
        self._host: KernelReader | None = None
        self._backoff = Backoff(0.1, 10.0)
        self._started = 0.0
        self._calc_wait: float | None = None
        self._seen: tuple[Config, int] | None = None
        """The parameters and the version of the cluster's facts that the last turn was made by."""

    # -- what others ask -----------------------------------------------------------------------

    def encapsulation(self) -> Encapsulation:
        """The tunnels that pools and parameters ask for."""
        return self.links.encapsulation(self.config, self.calc.facts)

    def rules_programmed(self, key: ResourceKey) -> tuple[Endpoint, list[str]] | None:
        """An endpoint that lacks nothing but link and routes, with these routes; None: not so."""
        return self._in_force.ruled(key, self.routing.held)

    def stands(self, endpoint: Endpoint) -> bool:
        """Whether what was in force has its link and routes, by all that the kernel has told."""
        return self.hear_now() and self._in_force.stands(endpoint)

    def hear_now(self) -> bool:
        """Take in at once what the kernel has told; whether that was all."""
        return self._host is None or self._host.hear_now()

    # -- what others tell ----------------------------------------------------------------------

    def kick(self) -> None:
        """Something changed: look at everything as soon as the loop is free."""
        self.wake.everything()

    def kick_some(self) -> None:
        """Endpoints or what decides about them changed: the calculation knows which."""
        self.wake.some()

    def _flows_are_gone(self) -> None:
        if self._in_force.withheld:
            self._in_force.withheld = False
            self.kick()
        elif self.routing.routes.table.outstanding():
            self.kick_some()

    def _kernel_spoke(self) -> None:
        # Most of what is told of a pod's link needs no turn: its addresses, or that it is gone.
        about_us = self.touched.concerns(self.state.active)
        if about_us or self.view.stale or self.routing.routes.table.outstanding():
            self.wake.heard.set()
            self.kick_some()

    # -- the loop ------------------------------------------------------------------------------

    async def run(self, beat: Callable[[], None]) -> None:
        """Run for ever; `beat` is called at least every ten seconds while the loop lives."""
        table = self.routing.routes
        host = self._host = KernelReader(self.view, table, self._kernel_spoke, self.linger)
        self._started = asyncio.get_running_loop().time()
        timers = ResyncTimers(asyncio.get_running_loop().time)
        try:
            async with beside(host.watch(), host.pins.watch(), name="the kernel's monitor"):
                await self._turns(host, timers, beat)
        finally:
            self.background.stop()
            await self.routing.stop()
            self.links.close()
            host.close()
            self.rules.close()

    async def _turns(
        self, host: KernelReader, timers: ResyncTimers, beat: Callable[[], None]
    ) -> None:
        retry: float | None = 0.0
        while True:
            beat()
            if retry != 0.0:
                await self.wake.wait(self._until(timers, retry))
            retry = await self._turn(host, timers)
            if self.state.applied:
                self._ahead.begin(self.background)
            self._published()
            await asyncio.sleep(0)  # sockets are served between turns that ask for turns

    def _until(self, timers: ResyncTimers, retry: float | None) -> float:
        """Seconds until something is to be done though nothing was told."""
        parameters = self.rules.mode.parameters(self.config)
        seconds = timers.sleep(parameters, IDLE_BEAT, retry)
        removals = self.rules.wait if retry is None else None
        waits = (self.links.wait, self._calc_wait, removals)
        return min([seconds, *(wait for wait in waits if wait is not None)])

    async def _turn(self, host: KernelReader, timers: ResyncTimers) -> float | None:
        """One look; returns the seconds until a retry, None if all is well."""
        try:
            failures = await self._look(host, timers)
        except KernelError as error:
            failures = {"dataplane": str(error)}
        except Exception as error:
            # A defect of ours, or want of threads, must not take the node's repair away for good.
            failures = {"dataplane": repr(error)}
            if failures != self.state.failures:
                log.exception("a turn of the main loop failed")
            if self.rules.desire is not None:
                self.rules.desire.distrust()
        if failures is None:
            return None
        if not failures:
            self._backoff.reset()
            self.state.failures = {}
            return None
        self.state.fail(failures)
        self.touched.mark_everything()
        return self._backoff.next()

    async def _look(self, host: KernelReader, timers: ResyncTimers) -> dict[str, str] | None:
        """Read what is due, and make a turn of it; None where nothing may be programmed yet."""
        due = timers.due(self.rules.mode.parameters(self.config))
        await host.refresh(everything="links" in due, all_routes="routes" in due)
        if "routes" in due:
            self.links.tunnels.forget()
        news = due or not self.state.applied or self.state.failures
        if news or not self.calc.ready:
            self.touched.mark_everything()
        if not self.calc.ready:
            return None
        began = asyncio.get_running_loop().time()
        failures = await self._apply(host, due)
        self.state.count(began, asyncio.get_running_loop().time(), self._started)
        return failures

    # -- one turn ------------------------------------------------------------------------------

    async def _apply(self, host: KernelReader, due: frozenset[str]) -> dict[str, str]:
        """One turn: render, sets, rules, links and routes, and what is in force then."""
        now = asyncio.get_running_loop().time()
        if await self.rules.choose(self.config, now):
            self.touched.mark_everything()
        turn = await self._render(due)
        set_failures = await self.rules.write_sets(self.config, turn.asked, reread="ipsets" in due)
        self.routing.unsafe = frozenset()
        failures = await self._write(host, turn)
        if "iptables" in due:
            self.rules.read_back_beside()
        quiet = not self.wake.is_set
        leftovers = self.rules.after_rules(self.config, turn.asked, failures, quiet=quiet)
        if self.rules.sets_lost() and not self.state.failures:
            # At once, the first time: after that it is tried again like any other failure.
            self.kick()
        self._judge(turn, rules_written=not failures)
        self.state.applied = self.state.applied or not failures
        failures = {**set_failures, **failures, **leftovers, **turn.failures}
        fit = self.state.applied and not failures
        self.routing.remove_stale(host, turn.news, reread="routes" in due, fit=fit)
        return failures

    async def _render(self, due: frozenset[str]) -> Turn:
        """Take the changes, and bring the desired rules and sets up to them."""
        rules, before = self.rules, self.rules.renders
        with gc_control.resting(lambda: rules.renders - before >= MUCH):
            # What touches very much comes in slices: others work between.
            await in_slices(self.calc.settling(asyncio.get_running_loop().time()))
            self._switch_forwarding_on(due)
            news = self.calc.take_changes(self.config.interface_prefix)
            about = self._take_dirty(news)
            spared = self.routing.endpoints_left(self.state.active, news.active, about)
            self.state.active, self.state.shadowed = news.active, news.shadowed
            used = self.links.encapsulation(self.config, news.cluster)
            asked = rules.guarded
            if about is None:
                asked = self.links.tunnels.listeners(self.view, self.config, news.cluster, used)
            hosts = self.view.host_interfaces()
            about = await rules.render(self.config, news, hosts, asked, about)
            self.state.took({**rules.parts().desire.handed, "interface": len(news.moved)})
        return Turn(news, about, used, asked, spared)

    def _take_dirty(self, news: Changes) -> frozenset[str] | None:
        """What this turn is about; None: everything."""
        self._calc_wait = news.wait
        seen, self._seen = self._seen, (self.config, news.cluster.version)
        if seen is None or seen[0] is not self.config or seen[1] != news.cluster.version:
            # Parameters, or what a Node had: tunnels, routes and rules of other nodes follow.
            self.touched.mark_everything()
        self.touched.mark(news.moved)
        return self.touched.take()

    def _switch_forwarding_on(self, due: frozenset[str]) -> None:
        """Where it is off: at the start, when it may have changed, and when links are read."""
        asked = self.view.global_settings or "links" in due
        if self.config.ip_forwarding != "Enabled" or not asked:
            return
        self.view.global_settings = False
        self.links.interfaces.switch_forwarding_on(self.rules.families)

    async def _write(self, host: KernelReader, turn: Turn) -> dict[str, str]:
        """Write rules, links and routes in the order that `order` gives; what failed of rules."""
        tables, _, desire = self.rules.parts()
        applied = self.state.applied
        sweep = self.rules.removals_due(
            applied=applied, stands=lambda name: is_there(host.sock, name)
        )
        written = applied and tables.commit_now(sweep=sweep)
        exposed = desire.exposed() if applied and not written else frozenset[str]()
        unguarded = not turn.asked <= self.rules.guarded
        goes = order(written=written, applied=applied, exposed=bool(exposed), unguarded=unguarded)
        if goes is Order.WRITTEN:
            self.rules.guarded = turn.asked
            self._tell_ruled(turn)
            await self._write_paths(host, turn, turn.about)
            return {}
        rules = start(tables.commit(sweep=sweep), "rules")
        try:
            if goes is Order.RULES_FIRST:
                await asyncio.wait([rules])
                if rules.result():
                    open_ones = exposed if applied else turn.news.active
                    self.routing.unsafe = addresses(turn.news.active, open_ones)
                else:
                    self.rules.guarded = turn.asked
            else:
                # The writes are handed to their threads; what follows runs beside them. And
                # what the kernel has told is heard: of a new pod's link, as a rule.
                for _ in range(TURNS_FOR_WRITES):
                    await asyncio.sleep(0)
            await self._write_paths_until(rules, host, turn)
        finally:
            failures = await rules
        return failures

    async def _write_paths_until(
        self, rules: asyncio.Task[dict[str, str]], host: KernelReader, turn: Turn
    ) -> None:
        """Links and routes, again whenever the kernel tells something before the rules stand: then
        of the endpoints that it is about, and of those whose links were refused.
        """
        self.wake.heard.clear()
        await self._write_paths(host, turn, turn.about)
        last = False
        while not last and await happens_before(self.wake.heard, rules):
            # Such as the link of the pod whose rules are being written, or just were.
            last = rules.done()
            self.wake.heard.clear()
            await host.refresh(everything=False, all_routes=False)
            again = None if turn.about is None else frozenset(turn.link_failures)
            about = self.touched.take_more(again)
            turn.about = None if turn.about is None or about is None else turn.about | about
            if self.touched.everything:
                self.wake.again()
            await self._write_paths(host, turn, about)

    async def _write_paths(
        self, host: KernelReader, turn: Turn, about: frozenset[str] | None
    ) -> None:
        """Links, and the routes to and by them; of the endpoints of these interfaces, None: all."""
        whole, active = about is None, turn.news.active
        work = LinkWork(
            host.sock,
            self.view,
            self.config,
            turn.news.cluster,
            turn.used,
            [active[name] for name in (active if about is None else about) if name in active],
            self.rules.families,
            self.rules.guarded,
            self.routing.written,
        )
        host.touch(self.links.commit(work, whole=whole))
        turn.link_failures = dict(self.links.failures)
        turn.route_failures = await self.routing.commit(
            host,
            turn.news,
            self.rules.families,
            self.rules.parts().desire.floating.networks,
            self._tunnel_ends(turn.used) if whole else None,
            about,
        )

    def _tunnel_ends(self, used: Encapsulation) -> TunnelEnds:
        tunnels = self.links.tunnels
        means, mtus = tunnels.means(used, self.config), self.links.mtu.of_tunnels(self.view)
        return TunnelEnds(means, tunnels.ends_v6, mtus, tunnels.told)

    def _tell_ruled(self, turn: Turn) -> None:
        """Say of which endpoints the rules stand, before their links and routes do."""
        desire = self.rules.parts().desire
        if turn.about is not None and desire.book is not None:
            rendered, floating = desire.book.endpoints, desire.floating.networks
            self.on_ruled(
                self._in_force.settle_new(
                    turn.news.active, rendered, self.rules.families, floating, turn.about
                )
            )

    def _judge(self, turn: Turn, *, rules_written: bool) -> None:
        """Find out which endpoints are in force now (DPL-3)."""
        desire = self.rules.parts().desire
        changed = self.routing.turn_ended(turn.spared)
        self._in_force.settle(
            turn.news.active,
            desire.book.endpoints if desire.book is not None else (),
            families=self.rules.families,
            floating=desire.floating.networks,
            unfit=turn.link_failures,
            rules_written=rules_written,
            about=None if turn.about is None else turn.about | changed,
        )
