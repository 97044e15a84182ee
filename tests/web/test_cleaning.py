"""No secret passes into what views are made of."""

from __future__ import annotations

from web.cleaning import cleaned, cleaned_document


def test_by_name_by_shape_and_at_any_depth() -> None:
    document = {
        "time": "2026",
        "password": "canary-1",
        "peers": [{"error": "etcd https://user:canary-2@host:2379 failed", "state": "up"}],
        "note": "Authorization: Bearer canary-3.abcdefgh",
        "deep": {"list": ["token=canary-4", {"privateKey": "canary-5"}]},
    }
    text = str(cleaned(document))
    assert "canary" not in text
    assert "'state': 'up'" in text
    assert "host:2379" in text


def test_what_is_no_secret_stays() -> None:
    document = {"seen": "10.0.0.1 port 179 refuses", "count": 3, "ok": True, "none": None}
    assert cleaned(document) == document
    assert cleaned_document(None) is None
