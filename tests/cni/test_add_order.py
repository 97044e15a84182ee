"""The order of an ADD, step by step, and what its undo leaves: CNI-30 to CNI-32, CNI-100."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from cni.node import daemon_context
from cni.pods.endpoint import EndpointWriter
from cni.pods.pod_source import PodFacts
from cni.request.attachment import Attachment, attachment_of
from cni.request.errors import CNIError, Code
from cni.request.result import Result
from cni.socket.trace import Trace
from cni.verbs import add, address_source, datastore_release, delete, network_profile, pod_veth
from cni.verbs.pod_veth import PodVeth
from cni.veth import extra_routes, pod_end, wiring
from ipam.allocator.requests import Granted
from ipam.records.blocks import IPAddress, parse_address
from libcalico.datastore.interface import Entry
from libcalico.model.keys import Key
from tests.cni.test_attachment import request

PLANNED, GIVEN = parse_address("10.65.0.1"), parse_address("10.65.0.2")
ENDS = wiring.VethPair(1, 2, "ee:00:00:00:00:01", 1450)


class Agreeing:
    """Whatever is to be awaited of it comes at once."""

    def __getattr__(self, _: str) -> Callable[..., Any]:
        async def at_once(*_: object) -> None:
            return None

        return at_once


class Story:
    """One ADD whose neighbours only note what they are asked for.

    `given`: what the datastore gives in the end; `taken`: addresses that living pods have;
    `link`: whether the host has a link of the name, `own` whether it is this attachment's.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        given: IPAddress = PLANNED,
        taken: Iterable[IPAddress] = (),
        link: bool = False,
        own: bool = False,
        journal: bool = False,
        wait: int = 1,
        refusal: object = "",
    ) -> None:
        self.told: list[str] = []
        self.given, self.taken, self.own, self.refusal = given, set(taken), own, refusal
        self.request = request({"policy_setup_timeout_seconds": wait})
        self.attachment = attachment_of(self.request, "node1")
        put = monkeypatch.setattr
        put(add, "check_node_name", lambda *_: None)
        put(daemon_context, "check_node_known", lambda *_: None)
        put(network_profile, "is_wanted", lambda *_: False)
        put(pod_veth, "_node_mtu", lambda *_: 1450)
        put(address_source, "choose", lambda *words: self._source(words[-1]))
        put(PodVeth, "_make", self._noting("cable", ENDS))
        put(pod_end, "configure", lambda *words: self.note(f"configure {words[4][0]}"))
        put(add, "remember_attachment", lambda *words: self.note(f"remember {words[-1][0]}"))
        put(extra_routes, "install", lambda *_: None)
        put(pod_end, "require_netns", lambda _: None)
        put(wiring, "is_taken", lambda *_: link)
        put(pod_end, "open_pod", lambda _: nullcontext(object()))
        put(wiring, "existing", lambda *_: ENDS if own else None)
        put(wiring, "add_host_routes", lambda *_: self.note("lead"))
        put(wiring, "remove", lambda *_: self.note("unwire"))
        put(datastore_release, "release", self._noting("release", []))
        put(delete, "remember_undo", self._noting("undone", None))
        put(EndpointWriter, "stored_bytes", lambda _: b"{}")
        self.context: Any = SimpleNamespace(
            node="node1", host=None, keep=asyncio.ensure_future, check_store=lambda _: None,
            settings=SimpleNamespace(datastore_seconds=600.0),
            cluster=Agreeing(),
            journal=SimpleNamespace(
                holds=lambda _: journal, drop=lambda _: self.note("journal")
            ),
            pod_source=SimpleNamespace(facts=self._noting("", PodFacts())),
            felix=SimpleNamespace(
                offer=lambda *_, **__: self.note("offer"),
                expect=lambda _: self.note("expect"),
                stored=lambda _, revision: self.note(f"stored {revision}"),
                retract=lambda _: self.note("retract"),
                in_force=self._in_force, routes=lambda _: (), connected=True,
            ),
            records=SimpleNamespace(refuse_taken=self._refuse_taken),
            allocator=SimpleNamespace(prompt=True), in_thread=self._in_thread,
            del_cache=SimpleNamespace(keep=lambda *_: None),
            released=SimpleNamespace(forget=lambda _: None),
        )  # fmt: skip

    def note(self, what: str) -> None:
        if what:
            self.told.append(what)

    def _noting(self, what: str, answer: object) -> Callable[..., Any]:
        async def noting(*_: object) -> object:
            self.note(what)
            return answer

        return noting

    async def _in_thread(self, work: Callable[..., object], *words: object) -> object:
        return work(*words)

    async def _in_force(self, *_: object) -> object:
        self.note("in force")
        if isinstance(self.refusal, BaseException):
            raise self.refusal
        return self.refusal

    def _refuse_taken(self, addresses: Iterable[IPAddress], attachment: Attachment) -> None:
        assert attachment == self.attachment
        for address in addresses:
            self.note(f"look {address}")
            if address in self.taken:
                raise CNIError(Code.TRY_AGAIN_LATER, f"{address} is in use")

    def _source(self, early: Callable[[], None] | None) -> Any:
        entries: dict[Key, Entry | None] = {}
        entries[self.attachment.endpoint_key] = Entry(self.attachment.endpoint_key, None, 7, b"")

        async def planned() -> tuple[IPAddress, ...]:
            self.note("planned")
            if early is not None:
                early()
            return (PLANNED,)

        async def settled() -> Granted:
            self.note("settled")
            return Granted((self.given,), fresh=not self.own, entries=entries)

        async def undo() -> bool:
            self.note("give back")
            return not self.own

        return SimpleNamespace(planned=planned, settled=settled, undo=undo, extra=Result())

    def tell(self) -> list[str]:
        """Serve the ADD; its steps, the last of which is its error, if it ends in one."""
        line: Any = None

        async def serve() -> None:
            try:
                result = await add.add(self.context, self.request, 0, Trace("ADD"), 600.0, line)
            except CNIError as error:
                self.note(f"error {int(error.code)}")
            else:
                assert [each.address.ip for each in result.ips] == [self.given]

        asyncio.run(serve())
        return self.told


BEGIN = ["planned", "offer", "look 10.65.0.1", "cable", "configure 10.65.0.1", "settled"]
END = ["in force", "lead", "stored 7", "journal"]
UNDO = ["unwire", "give back", "retract", "undone", "error 11"]


def test_an_answer_comes_after_the_datastore_and_felix(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Story(monkeypatch).tell() == [*BEGIN, *END, "remember 10.65.0.1"]


def test_who_does_not_wait_for_felix_waits_for_the_datastore(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Story(monkeypatch, wait=0).tell()
    assert told == [*BEGIN, "stored 7", "journal", "remember 10.65.0.1"]


def test_an_address_that_another_node_was_faster_for_is_replaced_everywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    again = ["look 10.65.0.2", "offer", "configure 10.65.0.2"]
    assert Story(monkeypatch, given=GIVEN).tell() == [*BEGIN, *again, *END, "remember 10.65.0.2"]


def test_what_a_living_pod_has_is_refused_before_anything_is_wired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Story(monkeypatch, taken=[PLANNED]).tell()
    assert told == ["planned", "offer", "look 10.65.0.1", "give back", "retract", "undone",
                    "error 11"]  # fmt: skip


def test_what_a_living_pod_has_is_refused_after_a_lost_race_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Story(monkeypatch, given=GIVEN, taken=[GIVEN]).tell()
    assert told == [*BEGIN, "look 10.65.0.2", *UNDO]


@pytest.mark.parametrize("refusal", ["no rules", TimeoutError()])
def test_what_felix_does_not_put_in_force_is_undone(
    refusal: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Story(monkeypatch, refusal=refusal).tell() == [*BEGIN, "in force", *UNDO]


def test_a_repeated_add_offers_what_is_stored_on_the_cable_that_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CNI-32."""
    told = Story(monkeypatch, link=True, own=True).tell()
    assert told == ["planned", "settled", "look 10.65.0.1", "offer", "configure 10.65.0.1", *END,
                    "remember 10.65.0.1"]  # fmt: skip


@pytest.mark.parametrize("refusal", ["no rules", TimeoutError()])
def test_a_repeated_add_that_fails_takes_nothing_from_the_pod_that_runs(
    refusal: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ADD-07: its cable stays, and felix is told that what it has is stored, not that it went."""
    told = Story(monkeypatch, link=True, own=True, refusal=refusal).tell()
    assert told[-5:] == ["in force", "give back", "stored 0", "undone", "error 11"]
    assert not {"retract", "unwire", "cable", "release"} & set(told)


def test_an_older_sandboxs_link_goes_before_felix_is_asked_about_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CNI-30."""
    told = Story(monkeypatch, link=True).tell()
    assert told == ["planned", "look 10.65.0.1", "cable", "expect", "offer",
                    "configure 10.65.0.1", "settled", *END, "remember 10.65.0.1"]  # fmt: skip


def test_an_earlier_attempt_that_may_come_to_light_is_taken_back_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Story(monkeypatch, journal=True).tell()[:2] == ["release", "planned"]
