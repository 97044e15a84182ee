"""The ways to a node's program, and a program that ends early or says what is no trace."""

from __future__ import annotations

import asyncio
import sys

import pytest

from calicoctl.tracing import nodes
from calicoctl.tracing.nodes import Bounds
from libcalico.errors import InvalidValue, MuslinError
from libcalico.local.packet_trace import Question, Ready, encode
from libcalico.process import tasks

ASKED = Question("10.0.0.1", "10.0.0.2", 6, 80)


def test_a_way_is_read_as_a_shell_does() -> None:
    found = nodes.ways(["node2=ssh -p '22' root@node2", "node3=kubectl exec x --"])
    assert found == {
        "node2": ["ssh", "-p", "22", "root@node2"],
        "node3": ["kubectl", "exec", "x", "--"],
    }
    for bad in ("node2", "=ssh x", "node2=", "node2='ssh"):
        with pytest.raises(InvalidValue, match="--via"):
            nodes.ways([bad])


def test_a_node_without_a_way_is_not_asked() -> None:
    assert nodes.command_for("node2", {}, "node1") is None
    assert nodes.command_for("node2", {"node2": ["ssh", "x"]}, "node1") == [
        "ssh",
        "x",
        "calico-node",
    ]
    here = nodes.command_for("node1", {}, "node1")
    assert here is not None
    assert here[0].endswith("calico-node")


def watched(code: str) -> nodes.NodeWatch:
    """A watch of a program of the test, read to its end."""

    async def run() -> nodes.NodeWatch:
        command = [sys.executable, "-c", code]
        watch = await nodes.start("node2", command, asyncio.Event(), tasks.start)
        assert watch.reading is not None
        await watch.reading
        return watch

    return asyncio.run(run())


def test_a_program_that_fails_says_why() -> None:
    watch = watched("import sys; sys.exit('calico-node: no rights')")
    assert watch.failure == "node node2: calico-node: no rights"
    assert watch.ended


def test_a_program_that_ends_early_keeps_what_it_told() -> None:
    line = encode(Ready("node2", "b", ASKED))
    watch = watched(f"import sys; sys.stdout.buffer.write({line!r}); sys.exit(3)")
    assert watch.has(Ready)
    assert watch.failure == "node node2: status 3"


def test_a_program_that_tells_something_else_is_named() -> None:
    watch = watched("print('Last login: today')")
    assert watch.failure.startswith("node node2: no line of a node's trace")


def test_a_program_that_is_not_there() -> None:
    async def run() -> None:
        await nodes.start("node2", ["/no/such/ssh"], asyncio.Event(), tasks.start)

    with pytest.raises(MuslinError, match="node node2: /no/such/ssh cannot be run"):
        asyncio.run(run())


def test_the_words_are_those_that_the_nodes_program_takes() -> None:
    import argparse

    from node.trace.command import add_arguments, question_of

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    words = nodes.arguments(ASKED, Bounds(7, 8.5, 9, 1.5))
    chosen = parser.parse_args(words[1:])
    assert question_of(chosen) == ASKED
    assert (chosen.count, chosen.seconds, chosen.size, chosen.timeout) == (7, 8.5, 9, 1.5)
    assert chosen.attended
