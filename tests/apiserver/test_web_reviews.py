"""Who may look at the page: a real API server reviews tokens, and asks its roles."""

from __future__ import annotations

import asyncio

import pytest
import yaml

from libcalico.errors import MuslinError
from manifests import chart
from tests.support.apiserver import ApiServer
from web.guard.reviews import RIGHT, Reviews, Verdict


def roles() -> dict[str, list[dict[str, object]]]:
    """The rules of the chart's ClusterRoles, with the page switched on."""
    rendered = chart.render({"web": {"enabled": True}})
    return {
        one["metadata"]["name"]: one["rules"]
        for one in yaml.safe_load_all(rendered)
        if one["kind"] == "ClusterRole"
    }


def verdict(api: ApiServer, token: str, reviewer: str) -> Verdict:
    """What the page learns of a token with the rights of its own account."""

    async def ask() -> Verdict:
        client = api.client(reviewer)
        try:
            return await Reviews(client).verdict(token)
        finally:
            await client.close()

    return asyncio.run(ask())


def test_who_may_look_is_what_the_api_server_says(api: ApiServer) -> None:
    api.namespace("looking")
    known = roles()
    page = api.account("page", known["calico-web-review"], "looking")
    viewer = api.account("viewer", known["calico-web-viewer"], "looking")
    other = api.account("other", [], "looking")
    good = verdict(api, viewer, page)
    assert (good.user, good.refusal) == ("system:serviceaccount:looking:viewer", "")
    refused = verdict(api, other, page)
    assert refused.user == "system:serviceaccount:looking:other"
    assert RIGHT in refused.refusal
    assert "calico-web-viewer" in refused.refusal
    for nonsense in ("", "x.y.z", "a\nb", "t" * 20_000, viewer[:-5]):
        assert verdict(api, nonsense, page).refusal


def test_without_the_right_to_ask_no_user_gets_in(api: ApiServer) -> None:
    api.namespace("looking")
    other = api.account("other", [], "looking")
    with pytest.raises(MuslinError, match="was not asked who this is"):
        verdict(api, other, other)
