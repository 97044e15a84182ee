"""Members of a configuration, read by type: what is wrong is named, its value never repeated.

A configuration holds secrets, so an error says which key and which rule, and nothing else of the
document (CFG-03, CFG-21). Lenient, as DEL and GC need it, gives the default instead (CFG-22).
Pure. Tested in tests/cni/test_config.py.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from cni.request.errors import CNIError, Code

Document = Mapping[str, object]
MAC_RULE = "a MAC address such as 7e:11:22:33:44:55"


def invalid(where: str, rule: str) -> CNIError:
    """The error of a key whose value cannot be honoured."""
    return CNIError(Code.INVALID_CONFIG, f"invalid network configuration: {where} must be {rule}")


def is_address(text: str) -> bool:
    """Whether it is an IP address, with or without a prefix."""
    try:
        ipaddress.ip_interface(text)
    except ValueError:
        return False
    return True


def mac_address(text: str) -> str:
    """The address in lower case with colons; empty if it is none that an interface can have.

    A group address cannot be an interface's own (IEEE 802), and zeros mean none to the kernel.
    """
    parts = text.lower().replace("-", ":").split(":")
    if len(parts) != 6 or not all(_is_octet(part) for part in parts):
        return ""
    if int(parts[0], 16) & 1 or not any(int(part, 16) for part in parts):
        return ""
    return ":".join(parts)


def _is_octet(text: str) -> bool:
    return len(text) == 2 and all(digit in "0123456789abcdef" for digit in text)


class Reader:
    """Reads members by type; a wrong type raises CNIError 7, or gives the default when lenient."""

    def __init__(self, lenient: bool) -> None:
        self._lenient = lenient

    def refuse(self, where: str, rule: str) -> None:
        """Raise, unless lenient."""
        if not self._lenient:
            raise invalid(where, rule)

    def member(
        self, document: Document, key: str, where: str = "", quiet: bool = False
    ) -> Document:
        """An object, empty when absent; `quiet`: also when it is something else."""
        value = document.get(key)
        if isinstance(value, Mapping):
            return value
        if value is not None and not quiet:
            self.refuse(where or key, "an object")
        return {}

    def text(self, document: Document, key: str, where: str = "") -> str:
        """A string, empty when absent."""
        value = document.get(key)
        if isinstance(value, str):
            return value
        if value is not None:
            self.refuse(where or key, "a string")
        return ""

    def texts(self, value: object, where: str) -> tuple[str, ...]:
        """A list of strings."""
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        if value is not None:
            self.refuse(where, "a list of strings")
        return ()

    def addresses(self, value: object, where: str) -> tuple[str, ...]:
        """A list of IP addresses, each with or without a prefix."""
        texts = self.texts(value, where)
        for text in texts:
            if not is_address(text):
                self.refuse(where, f"a list of IP addresses, and {text!r} is none")
        return tuple(text for text in texts if is_address(text))

    def integer(
        self, document: Document, key: str, where: str, low: int, high: int, default: int = 0
    ) -> int:
        """A whole number; runtimes may have made a float of it (CFG-11)."""
        value = document.get(key)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        if value is not None:
            self.refuse(where, f"an integer from {low} to {high}")
        return default

    def boolean(self, document: Document, key: str, where: str, default: bool = False) -> bool:
        """A boolean, also spelt as a string, as Calico's `ipam` keys are."""
        value = document.get(key)
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if value is not None and value != "":
            self.refuse(where, 'true or false, or the strings "true" or "false"')
        return default

    def word(
        self, document: Document, key: str, where: str, allowed: tuple[str, ...], default: str
    ) -> str:
        """One of a few words."""
        value = self.text(document, key, where)
        if not value or value in allowed:
            return value or default
        self.refuse(where, f"one of {', '.join(allowed)}")
        return default

    def mac(self, value: object, where: str) -> str:
        """A MAC address of an interface, empty when absent."""
        if value is None or value == "":
            return ""
        address = mac_address(value) if isinstance(value, str) else ""
        if not address:
            self.refuse(where, MAC_RULE)
        return address
