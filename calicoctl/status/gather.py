"""A command's way to a judged cluster: the datastore, nodes that are asked, what is then missing.

Tested in `tests/calicoctl/test_status.py` on a real etcd.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from calicoctl.session import Options, configuration, datastore
from calicoctl.status import asking, facts, live
from calicoctl.status.facts import Answer, Facts, Signs
from libcalico import apiconfig
from libcalico.datastore.interface import Datastore
from libcalico.errors import InvalidValue, MuslinError
from libcalico.model.resources.nodestatus import CalicoNodeStatus


class Wanted:
    """What is asked for. `nodes`: only these, or all; `ask`: seconds for which nodes are asked
    through the datastore, 0: they are not; `routes`: also for their routes."""

    def __init__(
        self, nodes: Sequence[str] = (), ask: float = 0.0, *, routes: bool = False
    ) -> None:
        self.nodes, self.ask = tuple(nodes), ask
        self.classes = ("Agent", "BGP", "Routes") if routes else ("Agent", "BGP")


async def read(options: Options, request: Wanted, aggregator: live.Asks | None = None) -> Facts:
    """The facts about the nodes that are wanted, with their answers.

    An aggregator that does not answer is no hindrance: that is said among what is missing.
    """
    config = configuration(options)
    signs: Mapping[str, Signs] | None = None
    missing: list[str] = []
    if config.datastore_type == apiconfig.KUBERNETES:
        signs, complaint = await _kubelets(config)
        missing += complaint
    async with datastore(options) as store:
        known = await facts.read(store, time.time(), signs)
        known = only(known, request.nodes)
        if request.ask:
            reports, silent = await _asked(store, list(known.names), request)
            known = replace(
                known,
                now=time.time(),
                reports=(*known.reports, *reports),
                answers={
                    name: Answer(error=f"no report within {request.ask:g} s") for name in silent
                },
            )
    if aggregator is not None:
        try:
            answers = await live.answers(aggregator, list(known.names))
        except MuslinError as error:
            missing.append(f"The nodes were not asked: {error}")
        else:
            known = replace(known, answers={**known.answers, **answers})
    return replace(known, missing=(*known.missing, *missing))


async def _kubelets(config: apiconfig.DatastoreConfig) -> tuple[dict[str, Signs], list[str]]:
    from calicoctl.status import kubelets

    try:
        return await kubelets.read(config), []
    except MuslinError as error:
        return {}, [f"What kubelets say of their nodes is not known: {error}"]


async def _asked(
    store: Datastore, names: list[str], request: Wanted
) -> tuple[list[CalicoNodeStatus], list[str]]:
    asking.checked(names)
    questions = asking.Asking(store, request.classes)
    try:
        await questions.ask(names)
        return await questions.reports(request.ask)
    finally:
        await questions.close()


def only(known: Facts, names: Sequence[str]) -> Facts:
    """The facts, asked about these nodes alone; without names about all. Raises InvalidValue."""
    if not names:
        return known
    for name in names:
        if name not in known.nodes:
            names_known = ", ".join(sorted(known.nodes)[:10]) or "none"
            raise InvalidValue("--node", name, f"one of the cluster's nodes: {names_known}")
    return replace(known, only=tuple(dict.fromkeys(names)))
