"""Answers of `explain` as text.

One block for the packets that fare alike: who decides at each station, the rule as the operator
wrote it, where it stands in the kernel of which node. Tested in `tests/calicoctl/test_explain.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from calicoctl import yamltext
from felix.explain.chain_meaning import Meaning
from felix.explain.ends import What
from felix.explain.path import Questions
from felix.explain.report import Answer, Judgement, decided_by, named
from felix.explain.stations import HOST, NORMAL
from felix.explain.walk import By, Step

MOST_MISSES = 5
"""Near misses that an answer tells as text."""
_STAGES = {
    "untracked": " before connections are tracked (doNotTrack)",
    "preDNAT": " before addresses are translated (preDNAT)",
    "forward": " of what passes through (applyOnForward)",
}


def answers_text(questions: Questions, answers: Iterable[Answer], live: Iterable[str] = ()) -> str:
    """All answers; `live`: what the node itself says, behind them."""
    blocks = ["\n".join(_answer(questions, each)) for each in answers]
    live_text = "\n".join(live)
    return "\n\n".join([*blocks, *([live_text] if live_text else [])]) + "\n"


def _answer(questions: Questions, answer: Answer) -> Iterator[str]:
    packet = answer.explanation.packet
    source, destination = questions.source, questions.destination
    ends = f"{_end(source.title, packet.source)} -> {_end(destination.title, packet.destination)}"
    verdict = "ALLOWED" if answer.explanation.allowed else "DENIED"
    sure = "" if answer.explanation.certain else ", as far as the datastore tells"
    yield f"{ends}, {answer.packets}: {verdict}{sure}"
    for each in answer.judgements:
        yield from judgement_lines(each)
    if answer.would is not None:
        yield from _would(answer)
    yield from _near(answer)
    for note in answer.explanation.notes:
        yield f"  note: {note}"


def _end(title: str, address: object) -> str:
    text = str(address)
    return title if title == text else f"{title} ({text})"


def judgement_lines(item: Judgement) -> Iterator[str]:
    """What one station says."""
    station = item.station
    ruling = station.ruling
    word = {True: "allowed", False: "denied", None: "not decided here"}[ruling.allowed]
    if not station.sure:
        word += f", if the packet takes {station.interface or 'its interface'}"
    title = station.end.title
    if station.end.what is What.POD:
        title = f"pod {title}"
    stage = "" if station.stage in (NORMAL, HOST) else _STAGES[station.stage]
    where = f" on {station.end.node}" if station.end.node else ""
    yield f"  {station.direction} of {title}{where}{stage}: {word}"
    if ruling.allowed is not None and ruling.by is not By.NOTHING:
        yield f"    by {decided_by(item)}"
    if item.rule:
        for line in yamltext.dump(json.loads(item.rule)).splitlines():
            yield f"       {line}"
    if item.place is not None:
        yield f"    in {item.place}"
    for step in _earlier_steps(ruling.steps):
        yield f"    after {step}"


def _earlier_steps(steps: tuple[Step, ...]) -> Iterator[str]:
    """What came before, shortly: passes one by one, the rest together."""
    silent = [step for step in steps if step.did != "pass"]
    for step in steps:
        if step.did == "pass":
            yield f"{_step(step)} passed it on"
    if len(silent) > 4:
        yield f"{len(silent)} policies and profiles that do not match"
    else:
        yield from (f"{_step(step)}: no match" for step in silent)


def _step(step: Step) -> str:
    return f"tier {step.tier}, {named(step.policy)}" if step.tier else named(step.policy)


def _near(answer: Answer) -> Iterator[str]:
    """What nearly decided otherwise, with the clause that did not match."""
    misses, allowed = answer.near.misses, answer.explanation.allowed
    if misses:
        yield f"  nearly {'denied' if allowed else 'allowed'}:"
    for miss in misses[:MOST_MISSES]:
        tier = f"tier {miss.tier}, " if miss.tier else ""
        yield f"    {tier}{named(miss.policy)}, {miss.rule} ({miss.direction} of {miss.of})"
        for fault in miss.faults:
            yield f"      but for {fault.field}: {fault.clause}"
            yield f"        {fault.actual}"
            if fault.hint:
                yield f"        hint: {fault.hint}"
    more = answer.near.more + max(0, len(misses) - MOST_MISSES)
    if more:
        yield f"    and {more} more; -o json names {len(misses)} of them"


def _would(answer: Answer) -> Iterator[str]:
    would = answer.would
    assert would is not None
    verdict = "allowed" if would.allowed else "denied"
    yield f"  would be {verdict} if the staged policies were in force:"
    for item in answer.would_judgements:
        word = {True: "allowed", False: "denied", None: "not decided"}[item.station.ruling.allowed]
        yield f"    {item.station.direction} of {item.station.end.title}: {word}"
        yield f"      by {decided_by(item)}"


def meaning_text(meanings: Iterable[Meaning]) -> str:
    """What chains and rules stand for."""
    return "\n".join("\n".join(_meaning(each)) for each in meanings) + "\n"


def _meaning(meaning: Meaning) -> Iterator[str]:
    place = f"{meaning.table} {meaning.chain}" if meaning.table else meaning.chain
    words = [meaning.title]
    if meaning.tier:
        words.append(f"tier {meaning.tier}")
    if meaning.direction:
        words.append(meaning.direction)
    if meaning.node:
        words.append(f"on node {meaning.node}")
    yield f"{place}: {', '.join(words)}"
    shown = ""
    for rule in meaning.rules:
        behind = f"  [{rule.field}]" if rule.field else ""
        yield f"  {rule.number:>3}{behind}  {rule.text or 'counts and goes on'}"
        if rule.written and rule.field != shown:
            shown = rule.field
            for line in yamltext.dump(json.loads(rule.written)).splitlines():
                yield f"         {line}"
