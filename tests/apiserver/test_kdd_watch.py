"""`calicoctl get --watch` and completion on the Kubernetes datastore, through 410 and a restart."""

from __future__ import annotations

import signal

import pytest

from calicoctl import completing
from libcalico.process import paths
from tests.apiserver import kdd
from tests.apiserver.test_kdd_calicoctl import ctl
from tests.calicoctl.conftest import Ctl
from tests.calicoctl.test_get_options import pool
from tests.calicoctl.test_watch import Watching, applied, watching
from tests.support.apiserver import ApiServer
from tests.support.patience import wait_for

__all__ = ["ctl"]


def events(seen: Watching) -> list[list[str]]:
    return sorted(line.split()[:2] for line in seen.out)


def words(kind: str) -> tuple[str, ...]:
    shape = ("-o", "custom-columns=NAME", "--output-watch-events", "--no-headers")
    return (kind, "-w", "-c", str(paths.CALICOCTL_CONFIG), *shape)


def test_rows_of_kubernetes_own_objects_and_of_calicos(api: ApiServer, ctl: Ctl) -> None:
    kdd.node(api, "n1", "10.0.0.1")
    applied(ctl, pool("p1", "10.1.0.0/16"))
    with watching({}, *words("nodes")) as nodes, watching({}, *words("pools")) as pools:
        wait_for(lambda: nodes.out and pools.out, lambda: (nodes.err, pools.err))
        kdd.node(api, "n2", "10.0.0.2")
        applied(ctl, pool("p2", "10.2.0.0/16"))
        wait_for(lambda: ["ADDED", "n2"] in events(nodes), lambda: (nodes.out, nodes.err))
        wait_for(lambda: ["ADDED", "p2"] in events(pools), lambda: (pools.out, pools.err))
        assert ctl("delete", "pool", "p1").code == 0
        wait_for(lambda: ["DELETED", "p1"] in events(pools), lambda: (pools.out, pools.err))
        assert (nodes.interrupted(), pools.interrupted()) == (130, 130)
        assert (nodes.err, pools.err) == ([], [])


def test_through_410_only_what_differs_is_shown(api: ApiServer, ctl: Ctl) -> None:
    applied(ctl, pool("same", "10.1.0.0/16"), pool("gone", "10.2.0.0/16"))
    with watching({}, *words("pools")) as seen:
        wait_for(lambda: len(seen.out) == 2, lambda: seen.err)
        seen.process.send_signal(signal.SIGSTOP)
        assert ctl("delete", "pool", "gone").code == 0
        applied(ctl, pool("new", "10.3.0.0/16"))
        api.forget_history()
        api.restart()
        seen.process.send_signal(signal.SIGCONT)
        wait_for(
            lambda: (
                sorted(line.split()[:2] for line in seen.out[2:] if "MODIFIED" not in line)
                == [["ADDED", "new"], ["DELETED", "gone"]]
            ),
            lambda: (seen.out, seen.err),
        )
        assert ["MODIFIED", "same"] not in events(seen)


def test_names_are_completed(api: ApiServer, ctl: Ctl) -> None:
    applied(ctl, pool("green", "10.1.0.0/16"))
    found = completing.words(["get", "pools"], "gr")
    assert [item.value for item in found] == ["green"]


pytestmark = pytest.mark.apiserver
