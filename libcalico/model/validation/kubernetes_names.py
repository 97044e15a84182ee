"""Names, labels and ports as Kubernetes spells them.

Tested in tests/libcalico/test_invalid_documents.py and tests/libcalico/test_conversion.py.
"""

from __future__ import annotations

import re

LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
NAME = re.compile(rf"{LABEL}(\.{LABEL})*")
SINGLE_LABEL = re.compile(LABEL)
SERVICE_PORT_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
MAX_NAME = 253
MAX_LABEL = 63
MAX_PORT_NAME = 15


def is_name(text: str) -> bool:
    """Whether a text is a DNS subdomain: labels with dots between them."""
    return len(text) <= MAX_NAME and NAME.fullmatch(text) is not None


def is_qualified_name(text: str) -> bool:
    """Whether a text is the name of a label or an annotation: `[dns.prefix/]name`."""
    prefix, slash, name = text.rpartition("/")
    return (
        len(name) <= MAX_LABEL
        and _QUALIFIED.fullmatch(name) is not None
        and (not slash or is_name(prefix))
    )


def is_label_value(text: str) -> bool:
    """Whether a text is the value of a label; it may be empty, and holds no quote."""
    return not text or (len(text) <= MAX_LABEL and _QUALIFIED.fullmatch(text) is not None)


def is_port_name(text: str) -> bool:
    """Whether a text is the name of a port (RFC 6335)."""
    good = SERVICE_PORT_NAME.fullmatch(text) and len(text) <= MAX_PORT_NAME
    return bool(good) and "--" not in text and re.search("[a-z]", text) is not None
