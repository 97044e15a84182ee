"""From desired and actual to the lines of one iptables-restore: a pure function.

Problem: rewriting a table costs time and counters, and a rule that names a chain must never be
there without it. The plan holds the changed chains only, in this order: declare (which creates,
or empties what is rewritten or removed), rules, edits of kernel chains, removals. One restore is
one transaction, so packets see either the old table or the new one.

IPT-2: the plan names no chain and no rule that is not ours.
IPT-3: a chain whose hashes are as desired does not appear in the plan.
IPT-4: after the plan, `inserts` stand first and `appends` last in their kernel chains.
IPT-8: a plan without sweep takes no rule away unless a desired chain must be rewritten.
Tested in tests/linux/test_iptables_plan.py and, with the kernel, test_iptables.py.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from linux.iptables.detect import Backend
from linux.iptables.render import Addition, Filling, Removal, Rendered, RenderedChain, Step
from linux.iptables.save import FOREIGN, Actual, KernelRule

_EMPTY = RenderedChain((), ())


@dataclass(frozen=True, slots=True)
class Plan:
    """What one restore does: its steps, and what they leave.

    `chains` and `kernel` hold what differs afterwards (None: the chain is gone); `garbage` names
    chains that are undesired or hold undesired rules; `frees` says that rules are taken away.
    `size`: how many lines the steps are.
    """

    steps: tuple[Step, ...]
    size: int
    written: tuple[str, ...]
    deleted: tuple[str, ...]
    edited: tuple[str, ...]
    chains: dict[str, tuple[str, ...] | None]
    kernel: dict[str, tuple[KernelRule, ...]]
    garbage: frozenset[str]
    frees: bool
    before: Actual

    @property
    def lines(self) -> tuple[str, ...]:
        """The steps as text."""
        texts: list[str] = []
        for step in self.steps:
            texts += map(str, step.additions) if isinstance(step, Filling) else (str(step),)
        return tuple(texts)

    @property
    def adds(self) -> bool:
        """Whether it adds rules."""
        return any(isinstance(step, Addition | Filling) for step in self.steps)

    @property
    def removes(self) -> bool:
        """Whether it takes single rules away."""
        return any(isinstance(step, Removal) for step in self.steps)

    @property
    def after(self) -> Actual:
        """The whole actual state once the restore succeeded."""
        chains = {**self.before.chains, **self.chains}
        return Actual(
            {name: hashes for name, hashes in chains.items() if hashes is not None},
            {**self.before.kernel, **self.kernel},
        )


def make_plan(
    actual: Actual,
    desired: Rendered,
    backend: Backend,
    keep: Collection[str] = (),
    *,
    only: Collection[str] | None = None,
    sweep: bool = True,
) -> Plan:
    """The lines that turn `actual` into `desired` (IPT-2, IPT-3, IPT-4).

    Chains of `keep` are emptied but not removed: a rule of another program still names them.
    `only`: look at these chains alone, the others are known to be right. Without `sweep` undesired
    objects stay where they do no harm: chains, and rules of unordered chains (IPT-8).
    """
    draft = _Draft(actual, desired, backend, sweep)
    for name in desired.chains if only is None else [n for n in only if n in desired.chains]:
        draft.change(name)
    candidates = actual.chains if only is None else [n for n in only if n in actual.chains]
    draft.remove([name for name in candidates if name not in desired.chains], keep)
    if only is None or not (desired.kernel.keys() | actual.kernel.keys()).isdisjoint(only):
        draft.edit_kernel()
    return draft.finished()


class _Draft:
    """A plan while it grows: each kind of step apart, since their order is the plan's."""

    def __init__(self, actual: Actual, desired: Rendered, backend: Backend, sweep: bool) -> None:
        self._actual, self._desired = actual, desired
        self._backend, self._sweep = backend, sweep
        self._declared: list[Step] = []
        self._rules: list[Step] = []
        self._edits: list[Step] = []
        self._written: list[str] = []
        self._deleted: list[str] = []
        self._changed: dict[str, tuple[str, ...] | None] = {}
        self._kernel: dict[str, tuple[KernelRule, ...]] = {}
        self._garbage: set[str] = set()
        self._filled = 0
        self._frees = False

    def change(self, name: str) -> None:
        """Make a chain as desired."""
        chain, have = self._desired.chains[name], self._actual.chains.get(name)
        if have == chain.hashes:
            return
        if have is not None and chain.editable(have):
            self._edit(name, have, chain)
        else:
            self._rewrite(name, have, chain)

    def _edit(self, name: str, have: tuple[str, ...], chain: RenderedChain) -> None:
        """Rules come and go one by one."""
        lines, left, surplus = _edit_unordered(name, have, chain, self._sweep)
        self._frees = self._frees or (surplus and self._sweep)
        if surplus and not self._sweep:
            self._garbage.add(name)
        if lines:
            self._written.append(name)
            self._changed[name] = left
            self._rules += lines

    def _rewrite(self, name: str, have: tuple[str, ...] | None, chain: RenderedChain) -> None:
        """The chain as a whole, or the end of it that differs."""
        self._written.append(name)
        self._changed[name] = chain.hashes
        if have is not None and have == chain.hashes[: len(have)]:
            # Only longer: nothing is deleted, so nft need not wait for readers of the old rules.
            self._rules += chain.additions(name, len(have))
        elif have is None or self._backend == "nft":
            self._frees = self._frees or bool(have)
            self._declared.append(f":{name} - [0:0]")
            self._rules.append(Filling(name, chain))
            self._filled += len(chain.hashes) - 1
        else:
            self._frees = True
            self._rules += _edit_in_place(name, have, chain)

    def remove(self, unwanted: Sequence[str], keep: Collection[str]) -> None:
        """Remove undesired chains; those of `keep` are only emptied."""
        if not self._sweep:
            self._garbage.update(unwanted)
            return
        self._deleted = [name for name in unwanted if name not in keep]
        kept = [name for name in unwanted if name in keep and self._actual.chains[name]]
        self._declared += [f":{name} - [0:0]" for name in (*self._deleted, *kept)]
        self._changed.update(dict.fromkeys(self._deleted, None))
        self._changed.update(dict.fromkeys(kept, ()))
        self._frees = self._frees or bool(unwanted)

    def edit_kernel(self) -> None:
        """Our rules in the kernel's chains."""
        desired, actual = self._desired.kernel, self._actual.kernel
        for name in [*desired, *(n for n in actual if n not in desired)]:
            edit, after = _edit_kernel_chain(
                name, actual.get(name, ()), *desired.get(name, (_EMPTY, _EMPTY))
            )
            if edit:
                self._edits += edit
                self._kernel[name] = after

    def finished(self) -> Plan:
        """The plan, with its steps in their order."""
        removals = [f"-X {name}" for name in self._deleted]
        steps = (*self._declared, *self._rules, *self._edits, *removals)
        return Plan(
            steps,
            len(steps) + self._filled,
            tuple(self._written),
            tuple(self._deleted),
            tuple(self._kernel),
            self._changed,
            self._kernel,
            frozenset(self._garbage),
            self._frees or bool(self._edits),
            self._actual,
        )


def _edit_unordered(
    name: str, have: tuple[str, ...], chain: RenderedChain, sweep: bool
) -> tuple[list[Step], tuple[str, ...], bool]:
    """Steps, the hashes they leave, and whether there are undesired rules."""
    missing = dict(zip(chain.hashes, chain.plain_rules, strict=True))
    surplus: list[Removal] = []
    stay: list[str] = []
    for number, each in enumerate(have, 1):
        if missing.pop(each, None) is None:
            surplus.append(Removal(name, number, each))
            if sweep:
                continue
        stay.append(each)
    # From the end, so that numbers keep their meaning.
    steps: list[Step] = []
    if sweep:
        steps += reversed(surplus)
    # The new ones come first; the last one, which takes what the others leave, stays last.
    first, comment = chain.closed, chain.comment
    steps += [Addition(name, rule, each, comment, first) for each, rule in missing.items()]
    there = (*reversed(missing), *stay) if first else (*stay, *missing)
    return steps, there, bool(surplus)


def _edit_in_place(name: str, have: tuple[str, ...], chain: RenderedChain) -> list[str]:
    # Legacy tables keep the counters of rules that are not named, so only the tail is touched.
    lines = []
    for number, (each, rule) in enumerate(zip(chain.hashes, chain.rules, strict=True), 1):
        if number > len(have):
            lines.append(f"-A {name} {rule}")
        elif have[number - 1] != each:
            lines.append(f"-R {name} {number} {rule}")
    surplus = range(len(have), len(chain.hashes), -1)
    return lines + [f"-D {name} {number}" for number in surplus]


def _edit_kernel_chain(
    name: str, have: tuple[KernelRule, ...], first: RenderedChain, last: RenderedChain
) -> tuple[list[str], tuple[KernelRule, ...]]:
    foreign = tuple(FOREIGN for rule in have if not rule.ours)
    expected = (*first.hashes, *("" for _ in foreign), *last.hashes)
    if tuple(rule.hash for rule in have) == expected:
        return [], have
    lines = [f"-D {name} {rule.text}" for rule in have if rule.ours]
    lines += [f"-I {name} 1 {rule}" for rule in reversed(first.rules)]
    lines += [f"-A {name} {rule}" for rule in last.rules]
    after = (
        *map(KernelRule, first.hashes, first.rules),
        *foreign,
        *map(KernelRule, last.hashes, last.rules),
    )
    return lines, after
