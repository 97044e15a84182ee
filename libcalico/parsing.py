"""The one place where settings (environment, configuration files) become addresses and numbers.

Python's own readers raise errors of five types, take what no user means (`int("²")` fails after
`"²".isdigit()` was true, a text of 5,000 digits raises) and leave the name of the setting out.
Functions here raise InvalidValue alone, with field, value and what is allowed, or ValueError alone
where the name is not known yet. Tested in tests/libcalico/test_parsing.py;
tests/e2e/test_nasty_settings.py holds every reader to it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from libcalico import durations
from libcalico.errors import InvalidValue

ETCD_PORT = 2379
TRUE, FALSE = ("true", "yes", "y", "on", "1", "t"), ("false", "no", "n", "off", "0", "f")
_DIGITS = re.compile(r"[0-9]{1,18}")
_NAME = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?"
    r"(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?"
)
_URL_RULE = (
    "http://HOST:PORT or https://HOST:PORT; HOST is a name, an IPv4 address or an IPv6 address"
    " in brackets, PORT 1 to 65535"
)


@dataclass(frozen=True, slots=True)
class Address:
    """A server as an URL names it. `path` is empty or begins with a slash and ends without one."""

    secure: bool
    host: str
    port: int
    path: str = ""


def number(field: str, text: str, low: int, high: int) -> int:
    """A whole number in decimal digits, `low` to `high`. Raises InvalidValue."""
    value = int(text) if _DIGITS.fullmatch(text) else -1
    if not low <= value <= high:
        raise InvalidValue(field, _short(text), f"a whole number, {low} to {high}")
    return value


def port(field: str, text: str) -> int:
    """A TCP or UDP port, 1 to 65535. Raises InvalidValue."""
    try:
        return number(field, text, 1, 65535)
    except InvalidValue:
        raise InvalidValue(field, _short(text), "a port, 1 to 65535") from None


def flag(field: str, text: str) -> bool:
    """True or false in their usual spellings, in any letter case. Raises InvalidValue."""
    word = text.strip().lower()
    if word not in TRUE + FALSE:
        raise InvalidValue(field, _short(text), "true or false")
    return word in TRUE


def seconds(field: str, text: str, least: float = 0.0) -> float:
    """A Go duration (`90s`, `1m30s`) of `least` seconds or more. Raises InvalidValue."""
    try:
        value = durations.parse(text)
    except ValueError as error:
        raise InvalidValue(field, _short(text), str(error)) from None
    if not least <= value < durations.LONGEST:
        raise InvalidValue(field, _short(text), f"a duration of {least:g} seconds or more")
    return value


def url(field: str, text: str, default_port: int = 0, *, path: bool = False) -> Address:
    """A server's URL, http or https. Raises InvalidValue, which hides user and password.

    `default_port` 0 means that of the scheme. `path`: a path is allowed after the address.
    """
    try:
        return address(text, default_port, path=path)
    except ValueError as error:
        why = f": {error}" if str(error) else ""
        raise InvalidValue(field, shown_url(text), f"{_URL_RULE}{why}") from None


def address(text: str, default_port: int = 0, *, path: bool = False) -> Address:
    """The address of a URL that was checked (see `url`). Raises ValueError."""
    if not text.startswith(("http://", "https://")):
        raise ValueError("it begins with neither http:// nor https://")
    if not text.isascii() or any(sign.isspace() or not sign.isprintable() for sign in text):
        raise ValueError("a sign that no address has")
    parts = urlsplit(text)
    if "@" in parts.netloc:
        raise ValueError("user and password have settings of their own")
    host, stated = parts.hostname or "", parts.port
    if stated == 0 or parts.netloc.endswith(":"):
        raise ValueError("no port")
    if parts.netloc.startswith("["):
        _check_ipv6(host)
    elif not _NAME.fullmatch(host):
        raise ValueError("no host")
    if parts.query or parts.fragment or (parts.path.strip("/") and not path):
        raise ValueError("nothing may stand behind the port")
    secure = parts.scheme == "https"
    return Address(
        secure, host, stated or default_port or (443 if secure else 80), parts.path.rstrip("/")
    )


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy. `credentials`: `USER:PASSWORD`, decoded; empty for none."""

    host: str
    port: int
    credentials: str = field(default="", repr=False)


def proxy(text: str) -> Proxy:
    """The proxy of `http://[USER:PASSWORD@]HOST[:PORT]`; the port is 80 by default.

    Raises ValueError.
    """
    scheme, separator, rest = text.partition("://")
    if scheme != "http" or not separator:
        raise ValueError("it does not begin with http://")
    pair, _, at = rest.rpartition("@")
    server = address(f"http://{at}", 80)
    user, _, password = pair.partition(":")
    credentials = f"{unquote(user)}:{unquote(password)}" if pair else ""
    return Proxy(server.host, server.port, credentials)


def _check_ipv6(host: str) -> None:
    from ipaddress import IPv6Address  # half a millisecond of every start

    IPv6Address(host)


def shown_url(text: str) -> str:
    """A URL without user and password, and no longer than a line. Pure."""
    before, separator, rest = text.partition("://")
    if "@" in rest:
        rest = f"...@{rest.rpartition('@')[2]}"
    return _short(f"{before}{separator}{rest}")


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}..."


def check_text(field: str, text: str) -> None:
    """Raise InvalidValue for a variable whose bytes are not UTF-8, or that has a zero byte."""
    if "\0" in text or any("\ud800" <= sign <= "\udfff" for sign in text):
        raise InvalidValue(field, _short(text), "must be text in UTF-8")


def text_of(path: Path) -> str:
    """The text of a file, empty where there is none or it cannot be opened.

    Raises InvalidValue naming the file for bytes that are no text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidValue(str(path), error.object[:40], "must be text in UTF-8") from None
    except (OSError, ValueError):  # ValueError: a path with a zero byte
        return ""


def yaml_tree(raw: bytes | str) -> Any:
    """The plain values of one YAML document, as Kubernetes' files are read.

    Raises ValueError with one line that says what is wrong; no other exception.
    """
    import yaml

    from libcalico.errors import MuslinError
    from libcalico.yamltext import check_bounds

    try:
        check_bounds(raw, "")
        # Its constructors raise what Python does for `!!timestamp x` and 2001-99-99.
        return yaml.safe_load(raw)
    except (yaml.YAMLError, MuslinError, ValueError, OverflowError, AttributeError) as problem:
        raise ValueError(" ".join(str(problem).split())) from None
