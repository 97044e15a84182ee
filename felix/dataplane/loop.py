"""The main loop: whatever changed, make the kernel as desired; at once when idle.

One task owns all writes. Changes only set a flag; what arrives while a commit runs is
collected and costs one more commit. Start-up, drift repair and steady state are this one path:
look, compare, write the difference.

Order of a commit: sets, then rules and routes side by side, then sets that nobody needs.
An endpoint without its chains is dropped by the dispatch chains, so a route that is there
first opens nothing; rules go before routes only at the very first commit, when the hooks may
not stand yet, and where the kernel still holds a predecessor's chains. What is to be taken away
waits a little and is taken away at once, because it holds up what comes (linux.iptables).

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
import time
from collections.abc import Callable, Iterable

from felix.calc.encapsulation import Encapsulation, LastEncapsulation
from felix.calc.endpoints import Endpoint, IPAddress, addresses
from felix.calc.graph import Calculator
from felix.calc.learned_routes import PathTable
from felix.config.parameters import Config
from felix.dataplane.devices.dirty_set import DirtySet
from felix.dataplane.devices.interfaces import Interfaces
from felix.dataplane.devices.mtu import MtuKeeper
from felix.dataplane.devices.offload import ChecksumOffload
from felix.dataplane.devices.tunnels import Door, Tunnels
from felix.dataplane.devices.view import KernelView
from felix.dataplane.routes.conntrack_flush import ConntrackFlusher
from felix.dataplane.routes.in_force import InForce
from felix.dataplane.routes.kernel_reader import KernelReader, has_ipv6
from felix.dataplane.routes.off_node_routes import OffNodeRoutes
from felix.dataplane.routes.routes import RouteTable
from felix.dataplane.routes.stale_routes import StaleRoutes
from felix.dataplane.routes.writing import Outcome
from felix.dataplane.rules import backend
from felix.dataplane.rules.desired import Desire
from felix.dataplane.rules.ipsets import Sets
from felix.dataplane.rules.other_backend_cleanup import OtherBackendCleanup
from felix.dataplane.rules.removal_timing import RemovalTiming
from felix.dataplane.turn.ahead import Ahead
from felix.dataplane.turn.cooperative_steps import happens_before, in_slices
from felix.dataplane.turn.resync_timers import ResyncTimers
from felix.dataplane.turn.state import State
from felix.dataplane.turn.turn import Parts, Turn
from libcalico import gc_control
from libcalico.model import ResourceKey
from libcalico.process.backoff import Backoff
from libcalico.process.tasks import Background, beside, start
from libcalico.process.waiting import set_within
from linux.errors import KernelError
from linux.links import is_there
from linux.prefixes import Prefix

IDLE_BEAT = 10.0
TURNS_FOR_WRITES = 3
READ_BACK = "read-back of the rules"
MUCH = 1000
"""Chains that were rendered in one turn, from which on the collector leaves them alone."""
ROUTES_AT_ONCE = 0.1
"""A turn's seconds for routes."""

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
        self.calc, self.paths, self.config = calc, paths, config
        self.state = State()
        self.touched = DirtySet()
        self.view = KernelView(config.interface_prefix, self.touched)
        self.routes = RouteTable(self.touched)
        self._settled = InForce(self.state, self.view, self.routes)
        self.predecessors = StaleRoutes()
        self.off_node = OffNodeRoutes(calc, paths, self.view, self.routes)
        self.interfaces = Interfaces()
        self.mtu = MtuKeeper()
        self.background = Background()
        self.tunnels = Tunnels(calc.node, time.monotonic, self.kick, background=self.background)
        self.offload = ChecksumOffload(time.monotonic, self.kick)
        self.tables: backend.Tables | None = None
        self._mode = backend.Mode()
        self._cleaner = OtherBackendCleanup(self.background)
        self._ahead = Ahead(calc.policy, lambda: self._desire, self.kick_some)
        self._sets: Sets | None = None
        self._published = published
        self.linger: Callable[[], float] = lambda: 0.0
        self.on_ruled: Callable[[list[ResourceKey]], None] = lambda _: None
        self._host: KernelReader | None = None
        self._wake = asyncio.Event()
        # Something waits that is not as patient as paths are.
        self._hurry = False
        self._heard = asyncio.Event()
        self._unsafe: frozenset[IPAddress] = frozenset()
        self._guarded: frozenset[Door] = frozenset()
        self._leftovers = False
        self._families: frozenset[int] = frozenset({4})
        self._prepared = False
        self._backoff = Backoff(0.1, 10.0)
        self._flusher = ConntrackFlusher(self._flows_are_gone)
        self._desire: Desire | None = None
        self._started = 0.0
        self._telling = False
        self._held: float | None = None
        self._routed: set[str] = set()
        self._spared: set[IPAddress] = set()
        self._encapsulation = LastEncapsulation()
        self._config_seen: Config | None = None
        self._sweeping = RemovalTiming(time.monotonic)

    @property
    def prepared(self) -> bool:
        """Whether programming has begun, with the parameters of then."""
        return self._prepared

    @property
    def set_writes(self) -> int:
        """Sets that were changed so far."""
        return self._sets.writes if self._sets is not None else 0

    @property
    def set_errors(self) -> int:
        """How often a set could not be written so far."""
        return self._sets.errors if self._sets is not None else 0

    @property
    def sets(self) -> int:
        """How many kernel sets are wanted."""
        return len(self._sets) if self._sets is not None else 0

    @property
    def renders(self) -> int:
        """Chains of policies and endpoints that were rendered so far."""
        return self._desire.book.renders if self._desire and self._desire.book else 0

    def degraded(self) -> dict[ResourceKey, str]:
        """What is not as asked, object by object: closed policies, host endpoints without use."""
        desire = self._desire
        if desire is None or desire.book is None:
            return {}
        return desire.book.degraded() | desire.idle_hosts | desire.unfloated() | desire.strict()

    def encapsulation(self) -> Encapsulation:
        """The tunnels that pools and parameters ask for."""
        config, calc = self.config, self.calc
        asked = config.ipip_enabled, config.vxlan_enabled
        return self._encapsulation.of(calc.pools, calc.cluster_version, *asked)

    @property
    def families(self) -> frozenset[int]:
        """The families that are programmed."""
        return self._families

    @property
    def unusable(self) -> frozenset[str]:
        """Sets that the kernel does not hold as wanted."""
        book = self._desire.book if self._desire is not None else None
        return book.unusable if book is not None else frozenset()

    @property
    def tells(self) -> bool:
        """Whether the rules of the last turn tell of denied packets."""
        return self._desire is not None and self._desire.tell

    def tell_drops(self, wanted: bool) -> None:
        """Whether rules tell of denied packets (`felix.rules.nflog_prefix`): while a reader is
        there."""
        if wanted is not self._telling:
            self._telling = wanted
            self.kick()

    def kick(self) -> None:
        """Something changed: look at everything as soon as the loop is free."""
        self.touched.mark_everything()
        self.kick_some()

    def kick_some(self) -> None:
        """Endpoints or what decides about them changed: the calculation knows which."""
        self._hurry = True
        self._wake.set()

    def ruled(self, key: ResourceKey) -> tuple[Endpoint, list[str]] | None:
        """An endpoint that lacks nothing but link and routes, with these routes; None: not so."""
        return self._settled.ruled(key, self._flusher.held | self._unsafe)

    def stands(self, endpoint: Endpoint) -> bool:
        """Whether what was in force has its link and routes, by all that the kernel has told."""
        return self.hear_now() and self._settled.stands(endpoint)

    def flows_forgotten(self, endpoint: Endpoint) -> None:
        """Its link is gone, and after that its flows were deleted by another program."""
        self.routes.link_left(endpoint.interface)
        self._spared.update(network.network_address for network in endpoint.networks)

    def _flows_are_gone(self) -> None:
        if self._settled.withheld:
            self._settled.withheld = False
            self.kick()
        elif self.routes.table.outstanding():
            self.kick_some()

    def _kernel_spoke(self) -> None:
        # Most of what is told of a pod's link needs no turn: its addresses, or that it is gone.
        about_us = self.touched.concerns(self.state.active)
        if about_us or self.view.stale or self.routes.table.outstanding():
            self._heard.set()
            self.kick_some()

    def hear_now(self) -> bool:
        """Take in at once what the kernel has told; whether that was all."""
        return self._host is None or self._host.hear_now()

    def _rules_drifted(self) -> None:
        if self._sets is not None:
            self._sets.forget()
        self.kick()

    def paths_changed(self, prefixes: Iterable[Prefix]) -> None:
        """These paths differ now."""
        self.off_node.paths_changed(prefixes)
        self._go_on()

    def _go_on(self) -> None:
        """There is more to be done, which is not urgent."""
        self.touched.mark_everything()
        self._wake.set()

    async def run(self, beat: Callable[[], None]) -> None:
        """Run for ever; `beat` is called at least every ten seconds while the loop lives."""
        host = self._host = KernelReader(self.view, self.routes, self._kernel_spoke, self.linger)
        self._started = asyncio.get_running_loop().time()
        timers = ResyncTimers(asyncio.get_running_loop().time)
        try:
            async with beside(host.watch(), host.pins.watch(), name="the kernel's monitor"):
                await self._turns(host, timers, beat)
        finally:
            self.background.stop()
            await self._flusher.stop()
            self.offload.close()
            host.close()
            if self._sets is not None:
                self._sets.close()
            if self.tables is not None:
                self.tables.close()

    async def _turns(
        self, host: KernelReader, timers: ResyncTimers, beat: Callable[[], None]
    ) -> None:
        retry: float | None = 0.0
        while True:
            beat()
            if retry != 0.0:
                await self._wait(self._until(timers, retry))
            retry = await self._turn(host, timers)
            if self.state.applied:
                self._ahead.begin(self.background)
            self._published()
            await asyncio.sleep(0)  # sockets are served between turns that ask for turns

    def _until(self, timers: ResyncTimers, retry: float | None) -> float:
        """Seconds until something is to be done though nothing was told."""
        seconds = timers.sleep(self._mode.parameters(self.config), IDLE_BEAT, retry)
        sweep = self._sweeping.wait if retry is None else None
        for wait in (self.tunnels.wait, self._held, sweep):
            seconds = seconds if wait is None else min(seconds, wait)
        return seconds

    async def _wait(self, seconds: float) -> None:
        if not await set_within(self._wake, seconds):
            self.touched.mark_everything()
        self._wake.clear()
        self._hurry = False

    async def _turn(self, host: KernelReader, timers: ResyncTimers) -> float | None:
        """One look; returns the seconds until a retry, None if all is well."""
        try:
            due = timers.due(self._mode.parameters(self.config))
            await host.refresh(everything="links" in due, all_routes="routes" in due)
            if "routes" in due:
                self.tunnels.forget()
            news = due or not self.state.applied or self.state.failures
            if news or self.config is not self._config_seen or not self.calc.ready:
                self.touched.mark_everything()
            self._config_seen = self.config
            if not self.calc.ready:
                return None
            began = asyncio.get_running_loop().time()
            failures = await self._apply(host, due)
            self._leftovers |= "routes" in due
            if self._leftovers and not failures and self._routes_settled():
                self._leftovers = False
                pools, wanted = self.calc.pools.values(), self.routes.table.desired.keys()
                self.predecessors.sweep(host, self.view, pools, wanted, self.calc.cluster)
            self.state.count(began, asyncio.get_running_loop().time(), self._started)
        except KernelError as error:
            failures = {"dataplane": str(error)}
        except Exception as error:
            # A defect of ours, or want of threads, must not take the node's repair away for good.
            failures = {"dataplane": repr(error)}
            if failures != self.state.failures:
                log.exception("a turn of the main loop failed")
            if self._desire is not None:
                self._desire.distrust()
        if not failures:
            self._backoff.reset()
            self.state.failures = {}
            return None
        self.state.fail(failures)
        self.touched.mark_everything()
        return self._backoff.next()

    def _routes_settled(self) -> bool:
        return self.state.applied and self.routes.remote_known and not self.off_node.waits

    async def _prepare(self) -> None:
        """Begin programming, or go over to another back end; the old one's rules stay till then."""
        await self._cleaner.stop()
        wants_ipv6 = self.config.ipv6_support and has_ipv6()
        self._families = frozenset({4, 6} if wants_ipv6 else {4})
        nft, drifted = self._mode.wanted, self._rules_drifted
        tables, sets = await backend.open_backend(
            self.config, self._families, in_nftables=nft, drifted=drifted
        )
        self.background.cancel(READ_BACK)
        for old in (self.tables, self._sets):
            if old is not None:
                old.close()
        self.tables, self._sets = tables, sets
        self._mode.used = self._mode.wanted
        self._desire = Desire(self._families, self.tables, self._sets)
        self._prepared = True
        families = " and IPv".join(map(str, sorted(self._families)))
        log.info("programming begins: IPv%s, %s", families, self.tables.name)

    async def _apply(self, host: KernelReader, due: frozenset[str]) -> dict[str, str]:
        """One turn: render, sets, rules, links and routes, and what is in force then.

        Sets are written before the rules that ask them. Rules are written before, or beside, the
        links and routes that packets come by (`_apply_beside_rules` says which).
        """
        if self._mode.differs(self.config, asyncio.get_running_loop().time()):
            await self._prepare()
            self.touched.mark_everything()
        parts = self._parts()
        tables, sets, desire = parts
        turn = await self._render(desire, due)
        if "ipsets" in due:
            sets.forget()
        sets.resize(self.config.max_ipset_size)
        set_failures = await sets.commit()
        await in_slices(desire.trust())
        self._unsafe = frozenset()
        # What may go in this commit is not relied upon, even if the commit is refused.
        self._guarded &= turn.asked
        sweep = self._sweep_now(host)
        failures: dict[str, str] = {}
        if self.state.applied and tables.commit_now(sweep=sweep):
            # Written, without a program or a thread.
            self._guarded = turn.asked
            self._tell_ruled(desire, turn)
            await self._apply_paths(host, turn)
        else:
            failures = await self._apply_beside_rules(host, parts, turn, sweep=sweep)
        if "iptables" in due and not self.background.busy(READ_BACK):
            self.background.keep(READ_BACK, lambda: self._read_back(tables, desire))
        leftovers = self._after_rules(parts, turn, failures)
        self._settled.settle(
            turn.active,
            desire.book.endpoints if desire.book is not None else (),
            families=self._families,
            floating=desire.floating.networks,
            unfit=turn.link_failures,
            rules_written=not failures,
            about=None if turn.about is None else turn.about | self._routed,
        )
        self._routed.clear()
        self._spared -= turn.spared
        self.state.applied = self.state.applied or not failures
        return {**set_failures, **failures, **leftovers, **turn.failures}

    def _parts(self) -> Parts:
        """Tables, sets and what they should hold: there once `_prepare` ran."""
        assert self.tables is not None
        assert self._sets is not None
        assert self._desire is not None
        return Parts(self.tables, self._sets, self._desire)

    async def _render(self, desire: Desire, due: frozenset[str]) -> Turn:
        """Take the changes, and bring the desired rules and sets up to them."""
        cluster = self.calc.cluster_version
        self._held = self.calc.pass_time(asyncio.get_running_loop().time())
        if self.calc.cluster_version != cluster:
            # What a Node had lost is gone now: tunnels, routes and rules of other nodes follow.
            self.touched.mark_everything()
        before, floating = self.renders, desire.floating
        with gc_control.resting(lambda: self.renders - before >= MUCH):
            # What touches very much comes in slices: others work between.
            await in_slices(self.calc.policy.settle())
            self._switch_forwarding_on(due)
            active, shadowed = self.calc.endpoints.active(self.config.interface_prefix)
            self.touched.mark(self.calc.endpoints.take_moved())
            about = self.touched.take()
            spared = frozenset(self._spared)
            self._flusher.left(self.state.active, active, about, spared)
            self.state.active, self.state.shadowed = active, shadowed
            desire.tell = self._telling
            parameters, hosts = self._mode.parameters(self.config), self.view.host_interfaces()
            asked = self._guarded
            if about is None:
                used = self.encapsulation()
                asked = self.tunnels.doors(self.view, self.config, self.calc, used)
            rendered = desire.update(parameters, self.calc, active, hosts, asked, about)
            await in_slices(rendered)
            if about is not None:
                moved = desire.floating is not floating
                about = None if moved else about | desire.looked_at
        return Turn(active, about, asked, spared)

    def _tell_ruled(self, desire: Desire, turn: Turn) -> None:
        """Say of which endpoints the rules stand, before their links and routes do."""
        if turn.about is not None and desire.book is not None:
            judged, networks = desire.book.endpoints, desire.floating.networks
            self.on_ruled(
                self._settled.settle_new(turn.active, judged, self._families, networks, turn.about)
            )

    async def _apply_beside_rules(
        self, host: KernelReader, parts: Parts, turn: Turn, *, sweep: bool
    ) -> dict[str, str]:
        """Write the rules in their threads, and links and routes beside them; what failed of rules.

        Rules come first where a pod would be open without them, where a tunnel's packets would be
        taken unasked, and in the first commit, before which no pod has a route.
        """
        exposed = parts.desire.exposed() if self.state.applied else frozenset()
        rules = start(parts.tables.commit(sweep=sweep), "rules")
        try:
            if exposed or not self.state.applied or not turn.asked <= self._guarded:
                await asyncio.wait([rules])
                if rules.result():
                    open_ones = exposed if self.state.applied else turn.active
                    self._unsafe = addresses(turn.active, open_ones)
                else:
                    self._guarded = turn.asked
            else:
                # The writes are handed to their threads; what follows runs beside them. And
                # what the kernel has told is heard: of a new pod's link, as a rule.
                for _ in range(TURNS_FOR_WRITES):
                    await asyncio.sleep(0)
            self._heard.clear()
            await self._apply_paths(host, turn)
            last = False
            while not last and await happens_before(self._heard, rules):
                # Such as the link of the pod whose rules are being written, or just were.
                last = rules.done()
                self._heard.clear()
                await host.refresh(everything=False, all_routes=False)
                turn.about = self.touched.take_more(turn.about)
                if self.touched.everything:
                    self._wake.set()
                await self._apply_paths(host, turn)
        finally:
            failures = await rules
        return failures

    def _after_rules(self, parts: Parts, turn: Turn, failures: dict[str, str]) -> dict[str, str]:
        """Close what the kernel refuses, or take away what the rules no longer ask; what stays."""
        tables, sets, desire = parts
        leftovers: dict[str, str] = {}
        if failures and desire.refuse():
            # Now that what the kernel refuses is closed, the rest need not wait.
            self.kick()
        if not failures:
            self._guarded = turn.asked
            came = desire.written()
            # A set that another program's rule uses is a nuisance, not a want of enforcement.
            served = came and not self._wake.is_set()
            leftovers = self._sweeping.sets(tables, sets, served=served)
            self._cleaner.clean(tables.name, self.config.iptables_lock_timeout)
        if tables.take_lost():
            sets.forget()
            if not self.state.failures:
                # At once, the first time: after that it is tried again like any other failure.
                self.kick()
        return leftovers

    def _sweep_now(self, host: KernelReader) -> bool:
        """Whether what nobody wants is to be taken away in this turn."""
        if not self.state.applied or self._sweeping.due:
            return True
        desire = self._desire
        return desire is not None and desire.open_ways(lambda name: is_there(host.sock, name))

    async def _read_back(self, tables: backend.Tables, desire: Desire) -> None:
        try:
            if await tables.read_back() or await desire.reconsider():
                self.kick()
        except KernelError:
            # What could be read may differ; the rest is read again (`Background`).
            self.kick()
            raise
        finally:
            if tables.take_lost() and self._sets is not None:
                self._sets.forget()

    def _switch_forwarding_on(self, due: frozenset[str]) -> None:
        """Where it is off: at the start, when it may have changed, and when links are read."""
        asked = self.view.global_settings or "links" in due
        if self.config.ip_forwarding != "Enabled" or not asked:
            return
        self.view.global_settings = False
        self.interfaces.switch_forwarding_on(self._families)

    async def _apply_paths(self, host: KernelReader, turn: Turn) -> None:
        """Links, and the routes to and by them."""
        turn.link_failures = self._apply_links(host, turn.active, turn.about)
        turn.route_failures = await self._apply_routes(host, turn.active, turn.about)

    def _apply_links(
        self, host: KernelReader, active: dict[str, Endpoint], about: frozenset[str] | None
    ) -> dict[str, str]:
        self.interfaces.spoofing = self.config.workload_source_spoofing == "Any"
        names = active if about is None else [name for name in about if name in active]
        some = [active[name] for name in names]
        touched = self.interfaces.commit(host.sock, self.view, some, self._families)
        if about is None:
            view, config, used = self.view, self.config, self.encapsulation()
            touched |= self.tunnels.commit(host.sock, view, config, self.calc, used, self._guarded)
            touched |= self.mtu.commit(host.sock, view, config, used)
            self.offload.commit(view, config, self.tunnels.ready, self.state.route_writes)
        host.touch(touched)
        return dict(self.interfaces.failures)

    async def _apply_routes(
        self, host: KernelReader, active: dict[str, Endpoint], about: frozenset[str] | None
    ) -> dict[str, str]:
        """Routes; very many in slices, until something else is to be done."""
        until = asyncio.get_running_loop().time() + ROUTES_AT_ONCE
        floating = self._desire.floating.networks if self._desire is not None else {}
        families = self._families
        blackholes = self.calc.blackholes if about is None else frozenset()
        self.routes.want_local(active, blackholes, self.view, families, floating, about)
        if about is None:
            await self._want_off_node(until)
        host.verify(active)
        held = self._flusher.held | self._unsafe
        outcome, news = Outcome(), self.calc.endpoints.awaits
        for _ in self.routes.commit(host, self.view, held=held, awaits=news, outcome=outcome):
            await asyncio.sleep(0)
            if self._hurry or asyncio.get_running_loop().time() > until:
                self._go_on()
                break
        if self.view.outdated:
            self._go_on()
        self.state.route_writes += outcome.written + outcome.deleted
        self._routed |= outcome.pods
        if outcome.departed:
            gone = outcome.departed - addresses(active, active) - self._spared
            self._flusher.flush(gone)
        return {f"route {network}": reason for network, reason in outcome.failures.items()}

    async def _want_off_node(self, until: float) -> None:
        """What leads to other nodes, and beyond."""
        clock = asyncio.get_running_loop().time
        means = self.tunnels.means(self.encapsulation(), self.config)
        ends, mtus = self.tunnels.ends_v6, self.mtu.of_tunnels(self.view)
        await self.off_node.want(
            means, ends, mtus, self._families, lambda: self._hurry or clock() > until
        )
        self.off_node.settle(speaker=self.tunnels.told)
        if self.off_node.unfinished:
            self._go_on()
