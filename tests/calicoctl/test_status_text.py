"""The text and the object of a cluster's status: worst first, counted, and what is missing."""

from __future__ import annotations

import json
from ipaddress import ip_network

from calicoctl.status import text, tree
from calicoctl.status.facts import Answer
from calicoctl.status.judge import judged
from tests.calicoctl.status_world import alive, block, documents, facts, node, pool, report


def test_the_text_begins_with_the_worst() -> None:
    found = facts(
        version="v3.32.1",
        answers={
            "n1": Answer(documents()),
            "n2": Answer(documents(peers=[{"address": "10.0.0.1", "state": "start"}])),
            "n3": Answer(error="not attending"),
        },
        pools=(pool("small", ip_network("10.2.0.0/26")),),
        blocks=(block("10.2.0.0/26", 64),),
    )
    lines = text.of_status(judged(found)).splitlines()
    assert lines[0] == (
        "Cluster v3.32.1 is bad. Nodes: 3 (1 bad, 1 warning, 0 unknown, 1 fine)."
        " Sessions, each end counted: 1 up, 1 down. Pools: 1."
    )
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in lines if "| n" in line]
    assert rows == [["n2", "bad"], ["n3", "warning"], ["n1", "fine"]]
    assert "n2: session with n1 is down: no reason is known" in lines
    assert "small: no address is free" in lines
    assert "Did not answer: n3" in lines


def test_many_fine_nodes_are_counted_and_shown_wide() -> None:
    nodes = {f"m{number:03}": node(f"m{number:03}", f"10.0.1.{number}") for number in range(100)}
    found = facts(
        nodes=nodes,
        signs=dict.fromkeys(nodes, alive()),
        reports=tuple(report(name, {"10.0.1.1": "Established"}) for name in nodes),
    )
    short = text.of_status(judged(found))
    assert "80 more nodes are fine (-o wide shows them)." in short
    assert short.count("| fine") == 20
    assert text.of_status(judged(found), wide=True).count("| fine") == 100


def test_the_object_has_the_same_and_is_json() -> None:
    found = facts(answers={"n1": Answer(documents())})
    told = json.loads(json.dumps(tree.of_status(judged(found))))
    assert told["grade"] == "unknown"
    assert [one["name"] for one in told["nodes"]] == ["n2", "n3", "n1"]
    (session,) = told["nodes"][2]["sessions"]
    assert (session["peer"], session["state"], session["received"]) == ("n2", "up", None)
    assert told["sessions"] == {"up": 1}
    assert told["missing"][0].startswith("The sessions of n2, n3 are not known")
