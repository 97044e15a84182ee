"""What goes wrong between felix, its proxies and etcd, by name or drawn by chance.

`story.py FOLDER NAME...` runs these faults one after another, `story.py FOLDER SEED STEPS` so many
drawn ones, in the network namespace of the process. After each felix must believe what a felix
believes that starts now; where it is cut off it must say so. What is seconds in a cluster until a
proxy is looked at is shorter here; the connections' own limits are those of every node.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from libcalico.datastore.etcd.proxy import proxies
from libcalico.datastore.etcd.proxy import way as ways
from tests.fanout import changes
from tests.fanout.believed import Felix, differences, running
from tests.fanout.site import Site
from tests.support.etcd_proxy import GrpcProxy
from tests.support.patience import until

FEW = 6
"""Transactions of a moment."""


class Story:
    """A site and the felix that follows it."""

    def __init__(self, site: Site, felix: Felix) -> None:
        self.site, self.felix = site, felix
        self.log: list[str] = []
        self._fresh = 0

    async def converged(self) -> None:
        """Wait until felix believes what one believes that starts now, at etcd itself."""
        self._fresh += 1
        async with running(self.site.etcd.config(), self.site.folder / f"f{self._fresh}") as fresh:
            wanted = fresh.believed()
        try:
            await until(lambda: self.felix.believed() == wanted, "the same")
        except AssertionError:
            raise AssertionError(differences(self.felix.believed(), wanted)) from None

    async def follows(self) -> None:
        """Write some, and see that felix comes to it."""
        await self.site.write(FEW)
        await self.converged()

    async def returned(self) -> None:
        """Wait until felix reads through the proxy that it prefers, and its status is clean."""
        best = self.site.proxies[0].endpoint
        await until(lambda: self.felix.way.proxy == best, "a return to the proxy")
        await until(lambda: self.felix.metrics == (1, 0), "connected, by the proxy")
        assert self.felix.conditions == []

    async def left(self) -> None:
        """Wait until felix reads through the other proxy; the log says so, and no condition."""
        other = self.site.proxies[1].endpoint
        # A busy machine may find the other one too slow for a moment, and return to it.
        await until(
            lambda: self.felix.way.proxy == other and not self.felix.conditions,
            "the other proxy, and no condition",
        )
        assert self.said(f"{self.site.proxies[0].endpoint} fails")

    async def bypassed(self) -> None:
        """Wait until etcd itself is read; the status, the metric and the log say so."""
        await until(lambda: self.felix.conditions, "a condition")
        assert "etcd itself is read: no etcd proxy answers" in self.felix.conditions[0][1]
        assert self.felix.metrics[1] == 1
        assert self.said("reads go on with etcd itself")
        await self.follows()

    async def away(self) -> None:
        """Wait until the status says that the datastore is away."""
        await until(lambda: self.felix.metrics[0] == 0, "the datastore is away")
        assert self.felix.syncer.error
        assert self.said("the datastore is away")

    def said(self, text: str) -> bool:
        """Whether felix logged it since the last fault began."""
        return any(text in line for line in self.log)


# -- one proxy ------------------------------------------------------------------------------------


async def killed(story: Story) -> None:
    story.site.proxies[0].kill()
    await story.follows()
    await story.left()


async def paused(story: Story) -> None:
    story.site.proxies[0].pause()
    await story.follows()
    await story.left()


async def cut_from_etcd(story: Story) -> None:
    """Its clients reach it, and it reaches nothing: it goes on answering, with silence."""
    story.site.cut_from_etcd(story.site.proxies[0])
    await story.follows()
    await story.left()


async def cut_from_clients(story: Story) -> None:
    """It reaches etcd, and its clients do not reach it."""
    story.site.cut_from_clients(story.site.proxies[0])
    await story.follows()
    await story.left()


# -- all of them ----------------------------------------------------------------------------------


async def all_cut_from_etcd(story: Story) -> None:
    for one in story.site.proxies:
        story.site.cut_from_etcd(one)
    await story.bypassed()


async def all_cut_from_clients(story: Story) -> None:
    for one in story.site.proxies:
        story.site.cut_from_clients(one)
    await story.bypassed()


async def felix_cut_off(story: Story) -> None:
    """From etcd and all proxies."""
    story.site.cut_clients_from_etcd()
    for one in story.site.proxies:
        story.site.cut_from_clients(one)
    await story.site.write(FEW)
    await story.away()


async def etcd_cut_off(story: Story) -> None:
    """From felix and all proxies, which felix still reaches."""
    story.site.cut_clients_from_etcd()
    for one in story.site.proxies:
        story.site.cut_from_etcd(one)
    await story.site.write(FEW)
    await story.away()


# -- the store is put back ------------------------------------------------------------------------


async def put_back(story: Story) -> None:
    """Behind running proxies, which are silent about it."""
    story.site.back_up()
    await story.follows()
    story.site.put_back()
    await story.converged()
    assert story.said("put back to an earlier state")
    await story.follows()


async def put_back_and_gone_on(story: Story) -> None:
    """At once past all that felix had seen: no revision is behind."""
    story.site.back_up()
    await story.follows()
    before = story.site.etcd.revision()
    story.site.put_back()
    await story.site.write_past(before)
    await story.converged()
    assert story.said("put back to an earlier state")


async def put_back_between_two_looks(story: Story) -> None:
    """The proxy is not asked meanwhile: the events of one family tell, and all others are quiet."""
    story.site.back_up()
    await story.site.write(3 * FEW)
    await story.converged()
    before = story.site.etcd.revision()
    story.felix.way._work.stop()
    story.site.put_back()
    await story.site.write_past(before, changes.drawn_node)
    await story.converged()


async def put_back_by_the_old_token(story: Story) -> None:
    """The elections alone tell."""
    story.site.etcd.restart()
    await story.follows()
    story.site.back_up()
    story.site.etcd.restart()
    await story.follows()
    before = story.site.etcd.revision()
    story.site.put_back(story.site.token)
    await story.site.write_past(before)
    await story.converged()


async def put_back_out_of_sight(story: Story) -> None:
    """While felix and the proxies are cut off, and gone on."""
    story.site.back_up()
    await story.follows()
    before = story.site.etcd.revision()
    await etcd_cut_off(story)
    story.site.put_back()
    await story.site.write_past(before)


async def put_back_behind_one_proxy(story: Story) -> None:
    """Felix's own proxy is cut off from etcd meanwhile, and waits there for what was."""
    story.site.back_up()
    await story.follows()
    story.site.cut_from_etcd(story.site.proxies[0])
    story.site.put_back()
    await story.converged()


Fault = Callable[[Story], Awaitable[None]]
NAMED: dict[str, Fault] = {
    one.__name__: one
    for one in (
        *(killed, paused, cut_from_etcd, cut_from_clients),
        *(all_cut_from_etcd, all_cut_from_clients, felix_cut_off, etcd_cut_off),
        *(put_back, put_back_and_gone_on, put_back_between_two_looks),
        *(put_back_by_the_old_token, put_back_out_of_sight, put_back_behind_one_proxy),
    )
}


async def by_name(story: Story, names: list[str]) -> None:
    """Each, healed again: felix returns to its proxy, and follows."""
    for name in names:
        story.log.clear()
        await NAMED[name](story)
        story.site.heal()
        await story.follows()
        await story.returned()
        await story.follows()
        print(name, flush=True)


def drawn_faults(site: Site, proxy: GrpcProxy) -> dict[str, Callable[[], object]]:
    """What chance chooses from."""
    return {
        "kill": proxy.kill,
        "pause": lambda: proxy.pause() if proxy.running else None,
        "cut proxy from etcd": lambda: site.cut_from_etcd(proxy),
        "cut proxy from clients": lambda: site.cut_from_clients(proxy),
        "cut clients from etcd": site.cut_clients_from_etcd,
        "restart etcd": site.etcd.restart,
        "compact": site.compact,
        "back up": site.back_up,
        "put back": site.put_back,
        "nothing": lambda: None,
        "heal": site.heal,
    }


async def by_chance(story: Story, seed: int, steps: int) -> None:
    """Faults upon faults; each time that all is healed felix must follow."""
    chance, site = random.Random(seed), story.site
    site.back_up()
    for step in range(steps):
        one = chance.choice(site.proxies)
        acts = drawn_faults(site, one)
        name = chance.choice(list(acts))
        print(step, name, site.proxies.index(one), flush=True)
        acts[name]()
        await site.write(chance.randrange(FEW))
        with contextlib.suppress(TimeoutError):
            # What felix notices by itself meanwhile is as chance has it.
            async with asyncio.timeout(chance.choice((0.0, 0.2, 1.5))):
                await asyncio.Event().wait()
        if name == "heal":
            await story.converged()
    site.heal()
    await story.follows()
    await story.returned()


class Kept(logging.Handler):
    """The lines that were logged."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())


async def told(folder: Path, words: list[str]) -> None:
    """The whole of it."""
    proxies.AWAY, proxies.SPREAD = (0.1, 0.3), 0.05
    ways.LOOK, ways.ANSWER = (0.3, 0.6), 3.0
    numbers = [int(word) for word in words if word.isdigit()]
    site = Site(folder, random.Random(numbers[0] if numbers else 0))
    try:
        site.start()
        await site.begin()
        async with AsyncExitStack() as stack:
            felix = await stack.enter_async_context(running(site.config, folder / "felix"))
            story = Story(site, felix)
            logging.getLogger().addHandler(Kept(story.log))
            await story.converged()
            # What fails is to be the proxy that felix reads through.
            await story.returned()
            if numbers:
                await by_chance(story, *numbers)
            else:
                await by_name(story, words)
    finally:
        site.stop()


def main() -> None:
    """What a test runs inside."""
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(message)s")
    asyncio.run(told(Path(sys.argv[1]), sys.argv[2:]))


if __name__ == "__main__":
    main()
