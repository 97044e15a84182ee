"""A pasted policy as a plan."""

from __future__ import annotations

import yaml

from tests.support.explain_world import DB, shop
from web.views.plan import LONGEST, plan_view


def test_what_would_be_denied_and_by_which_rule() -> None:
    shown = plan_view(shop(), yaml.safe_dump(DB))
    assert shown.error == ""
    denied = [one for one in shown.changes if one.becomes == "DENIED"]
    assert denied
    assert any("end of tier default" in one.after for one in denied)
    assert "endpoints in" in shown.summary


def test_nothing_changes() -> None:
    shown = plan_view(shop(DB), yaml.safe_dump(DB))
    assert shown.changes == ()
    assert shown.summary.startswith("No flow")


def test_as_if_it_were_deleted() -> None:
    shown = plan_view(shop(DB), yaml.safe_dump(DB), delete=True)
    assert {one.becomes for one in shown.changes} == {"allowed"}


def test_what_cannot_be_read_is_named() -> None:
    assert "Paste" in plan_view(shop(), " ").error
    assert "not valid YAML" in plan_view(shop(), "kind: [").error
    wrong = yaml.safe_dump({**DB, "spec": {**DB["spec"], "selector": "role =="}})
    assert "selector" in plan_view(shop(), wrong).error
    assert "characters" in plan_view(shop(), "#" * (LONGEST + 1)).error
    assert "Nope" in plan_view(shop(), "kind: Nope\napiVersion: projectcalico.org/v3\n").error
