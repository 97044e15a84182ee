"""`get --watch` as a process, on a real etcd: rows, outages, compactions, the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from calicoctl.listing.changes import DELETED, Seen
from calicoctl.listing.result import Request, Result
from libcalico.datastore.interface import Entry
from libcalico.errors import NotFound
from libcalico.model import IPPool, ResourceKey
from libcalico.model.base.meta import Metadata
from libcalico.model.resources.pool import IPPoolSpec
from tests.calicoctl.conftest import Ctl, in_this_process
from tests.calicoctl.test_get_options import pool
from tests.support.etcd import Etcd
from tests.support.patience import HANG, wait_for


class Watching:
    """A process that watches, and what it has said so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.out: list[str] = []
        self.err: list[str] = []
        self._threads = [
            threading.Thread(target=self._read, args=(stream, lines), daemon=True)
            for stream, lines in ((process.stdout, self.out), (process.stderr, self.err))
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _read(stream: Iterator[str], lines: list[str]) -> None:
        lines.extend(iter(stream.readline, ""))  # type: ignore[attr-defined]

    def says(self, *lines: str) -> None:
        """Wait until standard output is exactly this, blanks at the ends of lines left out."""
        wait_for(
            lambda: [line.rstrip() for line in self.out] == list(lines),
            lambda: (lines, self.out, self.err),
        )

    def interrupted(self) -> int:
        """Ctrl-C; the exit code."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(HANG)
        for thread in self._threads:
            thread.join(HANG)
        return code


@contextmanager
def watching(environ: dict[str, str], *words: str) -> Iterator[Watching]:
    """`calicoctl get ... -w`."""
    with subprocess.Popen(
        [sys.executable, "-m", "calicoctl.main", "get", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},
    ) as process:
        try:
            yield Watching(process)
        finally:
            process.kill()


@pytest.fixture
def own(
    private_etcd: Etcd, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Ctl:
    """Commands on an etcd that may be stopped."""
    for name, value in private_etcd.environment().items():
        monkeypatch.setenv(name, value)
    return in_this_process(monkeypatch, capfd)


def applied(ctl: Ctl, *documents: str) -> None:
    done = ctl("apply", "-f", "-", stdin="---\n".join(documents))
    assert done.code == 0, done.err


def test_rows_as_they_change_and_a_quiet_end(ctl: Ctl, etcd: Etcd) -> None:
    applied(ctl, pool("p1", "10.1.0.0/16"))
    with watching(etcd.environment(), "pools", "-w") as seen:
        seen.says("NAME   CIDR          SELECTOR", "p1     10.1.0.0/16   all()")
        applied(ctl, pool("a-longer-name", "10.2.0.0/16"))
        head = ("NAME   CIDR          SELECTOR", "p1     10.1.0.0/16   all()")
        second = "a-longer-name   10.2.0.0/16   all()"
        seen.says(*head, second)
        ctl("label", "pool", "p1", "a=b")
        # A column that has grown stays so wide.
        third = "p1              10.1.0.0/16   all()"
        seen.says(*head, second, third)
        assert ctl("delete", "pool", "p1").code == 0
        wait_for(lambda: len(seen.out) > 4, lambda: seen.out)
        assert seen.interrupted() == 130
        assert {line.rstrip() for line in seen.out[4:]} == {third}
        assert seen.err == []


def test_events_and_ages_are_columns(ctl: Ctl, etcd: Etcd) -> None:
    applied(ctl, pool("p1", "10.1.0.0/16"))
    words = ("pools", "p1", "-w", "--output-watch-events", "--age")
    with watching(etcd.environment(), *words) as seen:
        wait_for(lambda: len(seen.out) == 2, lambda: (seen.out, seen.err))
        applied(ctl, pool("p2", "10.2.0.0/16"))
        assert ctl("delete", "pool", "p1").code == 0
        wait_for(lambda: any(line.startswith("DELETED") for line in seen.out), lambda: seen.out)
        assert seen.out[0].split() == ["EVENT", "NAME", "CIDR", "SELECTOR", "AGE"]
        # A pool is disabled before it goes.
        assert [line.split()[:2] for line in seen.out[1:]] == [
            ["ADDED", "p1"],
            *[["MODIFIED", "p1"]] * (len(seen.out) - 3),
            ["DELETED", "p1"],
        ]


def test_objects_one_a_line_and_documents(ctl: Ctl, etcd: Etcd) -> None:
    applied(ctl, pool("p1", "10.1.0.0/16"), pool("p2", "10.2.0.0/16"))
    with (
        watching(etcd.environment(), "pools", "-w", "-o", "json") as objects,
        watching(etcd.environment(), "pools", "-w", "-o", "yaml") as documents,
        watching(etcd.environment(), "pools", "-w", "-o", "name") as names,
        watching(etcd.environment(), "pools", "-w", "-o", 'jsonpath={.spec.cidr}{"\\n"}') as paths,
    ):
        wait_for(lambda: len(objects.out) == 2 and len(names.out) == 2, lambda: objects.err)
        wait_for(lambda: documents.out.count("---\n") == 2 and len(paths.out) == 2)
        applied(ctl, pool("p3", "10.3.0.0/16"))
        wait_for(lambda: len(objects.out) == 3 and len(names.out) == 3)
        shown = [json.loads(line) for line in objects.out]
        assert [one["metadata"]["name"] for one in shown] == ["p1", "p2", "p3"]
        assert {one["kind"] for one in shown} == {"IPPool"}
        paths.says("10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16")
        names.says(*(f"ippool.projectcalico.org/p{number}" for number in (1, 2, 3)))
        wait_for(lambda: documents.out.count("---\n") == 3)


def test_a_selector_lets_go_what_it_does_not_select_any_more(ctl: Ctl, etcd: Etcd) -> None:
    applied(ctl, pool("p1", "10.1.0.0/16", "{app: web}"), pool("p2", "10.2.0.0/16"))
    words = ("pools", "-w", "--selector", "app=web", "--output-watch-events", "--no-headers")
    with watching(etcd.environment(), *words) as seen:
        seen.says("ADDED   p1     10.1.0.0/16   all()")
        applied(ctl, pool("p2", "10.2.0.0/16", "{app: web}"), pool("p1", "10.1.0.0/16"))
        wait_for(lambda: len(seen.out) == 3, lambda: seen.out)
        assert [line.split()[:2] for line in seen.out[1:]] == [["ADDED", "p2"], ["DELETED", "p1"]]


def test_through_an_outage_and_a_compaction(own: Ctl, private_etcd: Etcd) -> None:
    applied(own, pool("same", "10.1.0.0/16"), pool("gone", "10.2.0.0/16"))
    words = ("pools", "-w", "-o", "custom-columns=NAME", "--output-watch-events", "--no-headers")
    with watching(private_etcd.environment(), *words) as seen:
        wait_for(lambda: len(seen.out) == 2, lambda: seen.err)
        seen.process.send_signal(signal.SIGSTOP)
        assert own("delete", "pool", "gone").code == 0
        applied(own, pool("new", "10.3.0.0/16"))
        private_etcd.compact()
        private_etcd.restart()
        seen.process.send_signal(signal.SIGCONT)

        def rows() -> list[list[str]]:
            # A pool is disabled before it is deleted, which the watch may have been sent in time.
            return [words for line in seen.out[2:] if (words := line.split())[0] != "MODIFIED"]

        wait_for(lambda: len(rows()) >= 2, lambda: (seen.out, seen.err))
        # Only what differs, and what stayed the same not again.
        assert sorted(rows()) == [["ADDED", "new"], ["DELETED", "gone"]]
        applied(own, pool("last", "10.4.0.0/16"))
        wait_for(lambda: rows()[-1] == ["ADDED", "last"], lambda: (seen.out, seen.err))
        assert len(rows()) == 3
        assert all("Traceback" not in line for line in seen.err)


def test_an_outage_is_told_once_and_its_end_too(own: Ctl, private_etcd: Etcd) -> None:
    applied(own, pool("p1", "10.1.0.0/16"))
    with watching(private_etcd.environment(), "pools", "-w", "--no-headers") as seen:
        wait_for(lambda: len(seen.out) == 1, lambda: seen.err)
        private_etcd.stop()
        wait_for(lambda: seen.err, "the outage")
        assert seen.err[0].endswith("; waiting for it, Ctrl-C ends\n")
        private_etcd.start()
        wait_for(lambda: "the datastore is back\n" in seen.err, lambda: seen.err)
        applied(own, pool("p2", "10.2.0.0/16"))
        wait_for(lambda: len(seen.out) == 2, lambda: seen.out)
        assert seen.interrupted() == 130
        # In turns, however often a busy machine made it seem to go.
        told = [line == "the datastore is back\n" for line in seen.err]
        assert told == [False, True] * (len(told) // 2)


def test_what_cannot_begin_ends_at_once(ctl: Ctl, etcd: Etcd) -> None:
    done = ctl("get", "pool", "nothere", "-w")
    assert (done.code, done.out) == (1, "")
    assert done.err == "resource does not exist: IPPool(nothere)\n"
    done = ctl("get", "ippool/a", "node/b", "-w")
    assert "--watch follows one kind, not 2: IPPool, Node" in done.err


def test_a_reader_that_leaves_ends_it(ctl: Ctl, etcd: Etcd) -> None:
    applied(ctl, pool("p1", "10.1.0.0/16"))
    read, write = os.pipe()
    os.close(read)
    leaving = subprocess.Popen(
        [sys.executable, "-m", "calicoctl.main", "get", "pools", "-w"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **etcd.environment()},
    )
    os.close(write)
    told = leaving.communicate(timeout=HANG)[1]
    assert (leaving.returncode, told) == (1, "")


def entry(name: str, revision: int, **labels: str) -> Entry:
    value = IPPool(metadata=Metadata(name=name, labels=labels), spec=IPPoolSpec(cidr="10.0.0.0/8"))
    return Entry(ResourceKey("IPPool", name), value, revision, b"%d" % revision)


def rows(found: Sequence[object]) -> list[tuple[str, str]]:
    return [(row.event, row.entry.value.metadata.name) for row in found]  # type: ignore[attr-defined]


def test_what_was_seen_decides_what_is_said() -> None:
    seen = Seen(Request("IPPool", ""))
    first = Result("IPPool", [entry("a", 1), entry("b", 2)], listing=True)
    assert rows(seen.listed(first)) == [("ADDED", "a"), ("ADDED", "b")]
    assert rows(seen.listed(first)) == []
    again = Result("IPPool", [entry("b", 3), entry("c", 4)], listing=True)
    assert rows(seen.listed(again)) == [("DELETED", "a"), ("MODIFIED", "b"), ("ADDED", "c")]
    assert rows(seen.changed(ResourceKey("IPPool", "nothere"), None)) == []
    gone = seen.changed(ResourceKey("IPPool", "b"), None)
    assert (gone[0].event, gone[0].entry.revision) == (DELETED, 3)


def test_names_that_are_missing_are_named() -> None:
    seen = Seen(Request("IPPool", "", [ResourceKey("IPPool", "a"), ResourceKey("IPPool", "b")]))
    assert rows(seen.listed(Result("IPPool", [entry("a", 1), entry("c", 1)]))) == [("ADDED", "a")]
    with pytest.raises(NotFound, match=r"IPPool\(b\)"):
        seen.require_names()
