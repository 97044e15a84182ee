"""What a browser may do with the page: headers of every answer, and a fresh nonce for its scripts.

NiceGUI writes inline scripts into its page, and Vue compiles templates, so `unsafe-eval` is needed;
`unsafe-inline` is not: each script of the page carries the nonce of its answer, and a script that
anything else brought in has none. Nothing is loaded from, sent to or framed by another host.
Tested in tests/web/test_headers.py, and with a real browser in tests/web/test_browser.py.
"""

from __future__ import annotations

import re

SCRIPT = re.compile(rb"<script(?=[\s>])", re.IGNORECASE)


def policy(nonce: str) -> str:
    """The Content-Security-Policy of an answer."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' 'nonce-{nonce}' 'unsafe-eval'",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data:",
            "font-src 'self'",
            "connect-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        )
    )


def headers(nonce: str) -> list[tuple[bytes, bytes]]:
    """The headers of every answer."""
    return [
        (b"content-security-policy", policy(nonce).encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), usb=()"),
    ]


def with_nonce(page: bytes, nonce: str) -> bytes:
    """The page with the nonce on each of its own scripts.

    Only what stands before `<div id="app"` or outside of text that the views bring is the page's:
    views escape `<`, so that no script can come in by them.
    """
    return SCRIPT.sub(b'<script nonce="%s"' % nonce.encode(), page)
