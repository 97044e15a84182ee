"""The sentences that scripts read."""

from __future__ import annotations

import pytest

from calicoctl.outcome import Outcome


@pytest.mark.parametrize(
    ("outcome", "said", "error"),
    [
        (
            Outcome("create", ["IPPool"], 1, []),
            "Successfully created 1 'IPPool' resource(s)",
            "",
        ),
        (
            Outcome("apply", ["IPPool", "BGPPeer"], 2, []),
            "Successfully applied 2 resource(s)",
            "",
        ),
        (Outcome("apply", [], 0, []), "No resources specified", ""),
        (Outcome("create", ["Node"], 0, ["a"]), "", "failed to create 'Node' resource: [a]"),
        (
            Outcome("delete", ["Node", "Node"], 0, ["a", "b"]),
            "",
            "failed to delete any 'Node' resources: [a; b]",
        ),
        (
            Outcome("apply", ["Node", "IPPool"], 0, ["a", "b"]),
            "",
            "failed to apply any resources: [a; b]",
        ),
        (Outcome("replace", ["Node"], 0, ["gone"]), "", "gone"),
        (
            Outcome("create", ["Node"] * 3, 2, ["a"]),
            "Partial success: created the first 2 out of 3 'Node' resources:",
            "hit error: [a]",
        ),
        (
            Outcome("replace", ["Node", "IPPool"], 1, ["a"]),
            "Partial success: replaced the first 1 out of 2 resources:",
            "hit error: [a]",
        ),
    ],
)
def test_sentences(outcome: Outcome, said: str, error: str) -> None:
    assert outcome.sentences() == (said, error)
