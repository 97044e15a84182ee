"""What a browser may do with an answer."""

from __future__ import annotations

from web.guard.headers import headers, policy, with_nonce


def test_scripts_need_the_nonce_of_their_answer() -> None:
    rules = dict(part.split(" ", 1) for part in policy("N").split("; "))
    assert rules["script-src"] == "'self' 'nonce-N' 'unsafe-eval'"
    assert rules["default-src"] == rules["frame-ancestors"] == rules["base-uri"] == "'none'"
    assert "http" not in policy("N")
    assert "unsafe-inline" not in rules["script-src"]


def test_each_script_of_a_page_gets_it() -> None:
    page = b'<script>a</script><SCRIPT type="module">b</SCRIPT><scripted>&lt;script&gt;'
    made = with_nonce(page, "N")
    assert made.count(b'nonce="N"') == 2
    assert made.endswith(b"<scripted>&lt;script&gt;")


def test_the_others() -> None:
    names = dict(headers("N"))
    assert names[b"x-content-type-options"] == b"nosniff"
    assert names[b"x-frame-options"] == b"DENY"
    assert names[b"referrer-policy"] == b"no-referrer"
