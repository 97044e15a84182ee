"""`calicoctl flows` against an aggregator that runs, with what a node delivered."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from flows.place import Place
from flows.record import Action, End, EndKind, Flow, Hit, Key, PolicyKind, Reporter, Trace
from flows.sending import Sender
from flows.written import read_line
from libcalico.process import tasks
from tests.calicoctl.conftest import Ctl
from tests.flows.test_server_process import page, started
from tests.support.patience import until, wait_for
from tests.support.ports import free_ports

WEB = End(EndKind.WORKLOAD, "web-*", "shop")
DB = End(EndKind.WORKLOAD, "db-*", "data")
OUT = End(EndKind.NETWORK, "pub")
DENY = Hit(PolicyKind.CALICO_NETWORK_POLICY, "default", "data", "db", Action.DENY, 0, 1)
ALLOW = Hit(PolicyKind.PROFILE, "", "", "kns.shop", Action.ALLOW, 0, 0)


def flow(source: End, destination: End, hit: Hit, start: int) -> Flow:
    key = Key(source, destination, 443, "tcp", Reporter.SOURCE, hit.action, trace=Trace((hit,)))
    return Flow(key, start, start + 15)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    port, health = free_ports(2)
    settings = {"PORT": str(port), "HEALTH_PORT": str(health), "GOLDMANE_WITHOUT_TLS": "true"}
    with started(**settings):
        wait_for(lambda: "ready" in page(health, "readiness"), "it is ready")
        address = f"127.0.0.1:{port}"
        start = int(time.time()) // 15 * 15 - 60
        flows = [
            flow(WEB, DB, DENY, start),
            flow(WEB, OUT, ALLOW, start + 15),
            flow(DB, OUT, ALLOW, start),
        ]

        async def deliver() -> None:
            sender = Sender(Place(address), "n1")
            async with tasks.beside(sender.run(), name="sender"):
                sender.offer(flows)
                await until(lambda: sender.counters.received == 3, "every receipt")

        asyncio.run(deliver())
        yield address


@pytest.mark.promise("F-97")
def test_a_list(ctl: Ctl, address: str) -> None:
    done = ctl("flows", "--aggregator", address)
    assert done.code == 0
    lines = done.out.splitlines()
    assert len(lines) == 4
    assert "shop/web-*  public" in lines[1], "the newest is first"
    assert "tier default, CalicoNetworkPolicy data/db, egress[1]" in done.out


@pytest.mark.parametrize(
    ("options", "ends"),
    [
        (["--verdict", "deny"], {("web-*", "db-*")}),
        (["--from", "data/"], {("db-*", "pub")}),
        (["-n", "data"], {("web-*", "db-*"), ("db-*", "pub")}),
        (["--policy", "data/db"], {("web-*", "db-*")}),
        (["--to", "public", "--limit", "1"], {("web-*", "pub")}),
        (["--port", "80"], set()),
    ],
)
def test_options_choose(
    ctl: Ctl, address: str, options: list[str], ends: set[tuple[str, str]]
) -> None:
    done = ctl("flows", "--aggregator", address, "-o", "json", *options)
    assert done.code == 0
    keys = [read_line(line).key for line in done.out.splitlines()]
    assert {(key.source.name, key.destination.name) for key in keys} == ends


def test_what_was_left_out_goes_to_stderr(ctl: Ctl, address: str) -> None:
    done = ctl("flows", "--aggregator", address, "--limit", "1")
    assert "1 of 3 flows are shown" in done.err
    assert len(done.out.splitlines()) == 2


def test_following_goes_on_until_it_is_interrupted(address: str) -> None:
    command = [sys.executable, "-m", "calicoctl.main", "flows", "-f", "--since", "10m"]
    process = subprocess.Popen(
        [*command, "--aggregator", address, "--verdict", "deny"],
        env=os.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        told = process.stdout.readline()
        assert "Deny   tcp  shop/web-* -> data/db-*:443" in told
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    finally:
        process.kill()
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--since", "2h"], "--since"),
        (["--from", "a/b/c"], "--from"),
        (["--aggregator-ca", "/ca.pem"], "certificate"),
    ],
)
def test_what_means_nothing_is_one_line(
    ctl: Ctl, address: str, options: list[str], said: str
) -> None:
    done = ctl("flows", "--aggregator", address, *options)
    assert done.code == 1
    assert said in done.err
    assert len(done.err.splitlines()) == 1


def test_the_configuration_of_felix_names_the_aggregator(
    ctl: Ctl, address: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    missing = ctl("flows")
    assert missing.code == 1
    assert "--aggregator HOST:PORT" in missing.err
    file = tmp_path_factory.mktemp("felix") / "felix.yaml"
    file.write_text(
        "apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\nmetadata: {name: default}\n"
        f"spec: {{flowLogsGoldmaneServer: '{address}'}}\n"
    )
    applied = ctl("apply", "-f", str(file), "--accept-unenforced")
    assert applied.code == 0, applied.err
    assert len(ctl("flows").out.splitlines()) == 4
