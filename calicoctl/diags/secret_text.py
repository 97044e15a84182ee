"""Secrets in free text: by the name beside them, or by their shape. Pure.

Tested in `tests/calicoctl/test_redact.py`.
"""

from __future__ import annotations

import re

HIDDEN = "REDACTED"
_WORDS = (
    "password|passwd|passphrase|_pwd|secret|token|private[-_. ]?key|api[-_. ]?key|access[-_. ]?key"
    "|client[-_. ]?key|key[-_. ]?data|preshared[-_. ]?key|psk|credential|authorization"
)
_SECRET_NAME = re.compile(_WORDS, re.IGNORECASE)
_EXACT = frozenset({"etcdkey", "key", "auth", "pass", "kubeconfiginline", "k8skey"})
"""Names that hold a key only as a whole word; `key` only where its value is one (PEM)."""
_HARMLESS = re.compile(
    r"(file|path|dir|ref|name|names|ttl|enabled|seconds|expiration|audiences?|type|id|mode"
    r"|automount\w*|project\w*mount)$",
    re.IGNORECASE,
)
_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
_PEM_END = re.compile(
    r"(?<![A-Za-z0-9+/=])(?:[A-Za-z0-9+/=]{16,}\s*\n\s*)+-----END [A-Z0-9 ]*PRIVATE KEY-----"
)
_JWT = re.compile(r"\beyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)?")
_URL = re.compile(
    r"(?P<head>(?<![a-z0-9+.-])[a-z][a-z0-9+.-]*://[^\s/:@\"']*:)[^\s/@\"']+(?=@)", re.IGNORECASE
)
_SCHEME = re.compile(r"(?P<head>\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}", re.IGNORECASE)
_QUOTED = r"\\?\"(?:[^\"\\]|\\[^\"])*\\?\"|'[^'\n]*'"
# Tried at the start of a word only: else a long word costs the square of its length.
_NAME = rf"(?<![\w.\-])[\w.\-]*(?:{_WORDS})[\w.\-]*"
_BLOCK = re.compile(
    rf"^(?P<indent>[ \t]*)(?P<name>[\"']?(?:- )?{_NAME}[\"']?):[ \t]*[|>][-+0-9]*[ \t]*\n"
    r"(?:(?P=indent)[ \t]+[^\n]*\n?|[ \t]*\n)+",
    re.IGNORECASE | re.MULTILINE,
)
_PAIR = re.compile(rf"(?P<name>{_NAME})(?P<mark>\\?[\"']?\s*(?:=>|:=|=|:)[ \t]*)", re.IGNORECASE)
_VALUE = re.compile(_QUOTED)
_WORD_VALUE = re.compile(r"[^\s,;&]+")
_FLAG = re.compile(
    rf"(?P<head>(?:^|[\s\[\"'])--?[\w.\-]*(?:{_WORDS})[\w.\-]*[\"']?[\s,]+)(?P<value>{_QUOTED}|[^\s-][^\s]*)",
    re.IGNORECASE,
)
_WORD = re.compile(rf"(?P<head>\b{_NAME}\s+)(?P<value>{_QUOTED})", re.IGNORECASE)
_USER = re.compile(r"(?P<head>(?:^|\s)(?:--user|-u)[\s=]+[^\s:]+:)[^\s]+")


def is_secret_name(name: str) -> bool:
    """Whether a field or variable of this name holds a secret itself (not a path or reference)."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    if plain in _EXACT - {"key"}:
        return True
    return bool(_SECRET_NAME.search(name)) and not _HARMLESS.search(name)


def without_secrets(text: str) -> str:
    """Free text without secrets that a name beside them or their shape gives away."""
    text = _PEM.sub(HIDDEN, text)
    if "PRIVATE KEY-----" in text:
        text = _PEM_END.sub(HIDDEN, text)
    text = _BLOCK.sub(lambda m: f"{m['indent']}{m['name']}: {HIDDEN}\n", text)
    text = _JWT.sub(HIDDEN, text)
    text = _URL.sub(rf"\g<head>{HIDDEN}", text)
    text = _SCHEME.sub(rf"\g<head>{HIDDEN}", text)
    text = _USER.sub(rf"\g<head>{HIDDEN}", text)
    lines = text.splitlines(keepends=True)
    return "".join(_line(one) if _SECRET_NAME.search(one) else one for one in lines)


def _line(text: str) -> str:
    text = _FLAG.sub(_named, _pairs(text))
    return _WORD.sub(_named, text)


def _pairs(line: str) -> str:
    """A line with the values behind secret names hidden. Goes along the line once."""
    parts, done = [], 0
    while (match := _PAIR.search(line, done)) is not None:
        parts.append(line[done : match.end()])
        done = match.end()
        if not is_secret_name(match["name"]):
            continue
        quoted = _VALUE.match(line, done)
        if quoted is not None:
            mark = '\\"' if line.startswith('\\"', done) else line[done]
            parts.append(f"{mark}{HIDDEN}{mark}")
            done = quoted.end()
        elif ":" in match["mark"]:
            # Behind a colon a value may have blanks: the rest of the line goes.
            end = len(line.rstrip("\r\n"))
            parts.append(HIDDEN if line[done:end].strip() else "")
            done = end
        elif (word := _WORD_VALUE.match(line, done)) is not None:
            parts.append(HIDDEN)
            done = word.end()
    return "".join(parts) + line[done:]


def _named(match: re.Match[str]) -> str:
    name = match["head"].strip(" \t\n\"'[,-")
    if not is_secret_name(name):
        return match[0]
    value = match["value"]
    mark = value[0] if value[0] in "\"'" else ""
    return f"{match['head']}{mark}{HIDDEN}{mark}"
