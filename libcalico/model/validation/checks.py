"""Checks of single fields, shared by the validators of all kinds.

A check adds to a list of problems and goes on, so that a user sees all of them at once.
The rules are Calico's (docs/reference/data-model.md#validation).
Tested in tests/libcalico/test_invalid_documents.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Sized
from ipaddress import ip_address, ip_network
from typing import TypeVar

from libcalico import durations, goregex
from libcalico.errors import InvalidValue
from libcalico.host_address import A_HOST, is_host
from libcalico.model.base import numorstring
from libcalico.model.base.meta import Metadata
from libcalico.model.validation.kubernetes_names import (
    MAX_NAME,
    MAX_PORT_NAME,
    is_label_value,
    is_name,
    is_port_name,
    is_qualified_name,
)
from libcalico.model.validation.network_values import MAX_DSCP, is_dscp, is_mac, is_wireguard_key

CONTAINER_ID = re.compile(r"[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?")
INTERFACE = re.compile(r"[a-zA-Z0-9_.-]{1,15}")
INTERFACE_PATTERN = re.compile(r"[a-zA-Z0-9_.*-]{1,15}")
MAX_SELECTOR = 1024
CLUSTER_ROUTES = ("Enabled", "Disabled", "EnabledIPIPOnly", "EnabledNoEncapOnly")
MAX_ANNOTATIONS = 256 * 1024
T = TypeVar("T")


class Problems(list[InvalidValue]):
    """The problems of one resource, and the checks that add to them."""

    def __init__(self, subject: str) -> None:
        super().__init__()
        self.subject = subject

    def add(self, field: str, value: object, rule: str) -> None:
        """Add a problem."""
        self.append(InvalidValue(field, value, rule, self.subject))

    def pattern(self, field: str, value: str, pattern: re.Pattern[str], rule: str) -> None:
        """The whole value matches; empty is allowed."""
        if value and not pattern.fullmatch(value):
            self.add(field, value, rule)

    def name(self, field: str, value: str, empty: str = "") -> None:
        """A DNS subdomain. An empty name is allowed unless `empty` says what is wrong with it."""
        if empty and not value:
            self.add(field, value, empty)
        if value and not is_name(value):
            self.add(
                field,
                value,
                "must be lower-case letters, digits, '-' and '.', each part beginning and "
                f"ending with a letter or digit, at most {MAX_NAME} characters",
            )

    def one_of(
        self, field: str, value: str | None, allowed: Collection[str], empty: bool = True
    ) -> None:
        """One of a few words; None is allowed, and the empty word if `empty`."""
        if value not in allowed and value is not None and (value or not empty):
            self.add(field, value, "must be one of " + ", ".join(allowed))

    def each_once(self, field: str, values: Sequence[str], allowed: Sequence[str]) -> None:
        """A list of a few words, each of them once."""
        listed = " or ".join(allowed) if len(allowed) < 3 else "one of " + ", ".join(allowed)
        for index, value in enumerate(values):
            if value not in allowed:
                self.add(f"{field}[{index}]", value, f"must be {listed}")
            elif value in values[:index]:
                self.add(f"{field}[{index}]", value, "is there already")

    def selector(self, field: str, value: str) -> None:
        """A selector; empty is allowed."""
        if len(value) > MAX_SELECTOR:
            self.add(field, value[:40] + "...", f"must be at most {MAX_SELECTOR} characters")
        elif "global(" in value:
            rule = "global() is allowed only as the whole namespaceSelector of a rule's side"
            self.add(field, value, rule)
        elif value:
            # All that selectors are made of: many resources have none.
            from libcalico.selectors.selectors import parse

            try:
                parse(value)
            except InvalidValue as problem:
                self.add(field, value, f"must be a selector: {problem.rule}")

    def address(self, field: str, value: str, version: int = 0) -> None:
        """A bare IP address (of a family); empty is allowed."""
        if not value:
            return
        try:
            address = ip_address(value)
        except ValueError:
            address = None
        if address is None or "%" in value or (version and address.version != version):
            self.add(field, value, f"must be an IP{f'v{version}' if version else ''} address")

    def host(self, field: str, value: str) -> None:
        """The address of a host, to which packets can be sent; empty is allowed."""
        before = len(self)
        self.address(field, value)
        if value and len(self) == before and not is_host(ip_address(value)):
            self.add(field, value, f"must be {A_HOST}")

    def network(self, field: str, value: str, version: int = 0, host_bits: bool = False) -> None:
        """A CIDR or bare address; without `host_bits` the bits behind the mask must be 0."""
        expected = f"an IPv{version} CIDR" if version else "a CIDR"
        try:
            network = ip_network(value, strict=False)
        except ValueError:
            self.add(field, value, f"must be {expected} such as 10.0.0.0/16 or fd00::/64")
            return
        if "%" in value or ("/" in value and not value.rpartition("/")[2].isdigit()):
            self.add(field, value, "must be a CIDR with a prefix length")
        elif version and network.version != version:
            self.add(field, value, f"must be {expected}")
        elif not host_bits and ip_address(value.partition("/")[0]) != network.network_address:
            self.add(field, value, f"the bits behind the mask must be 0, as in {network}")

    def mac(self, field: str, value: str) -> None:
        """A MAC address; empty is allowed."""
        if value and not is_mac(value):
            self.add(field, value, "must be a MAC address such as 02:00:5e:10:00:01")

    def duration(self, field: str, value: str | None, *, negative: bool = True) -> None:
        """A Go duration; None is allowed."""
        if value is None:
            return
        try:
            seconds = durations.parse(value)
        except ValueError as problem:
            self.add(field, value, str(problem))
            return
        if seconds < 0 and not negative:
            self.add(field, value, "must not be negative")

    def word(self, field: str, value: str | None, allowed: Collection[str]) -> None:
        """One of a few words in any letter case; empty and None are allowed."""
        if value and value.lower() not in {word.lower() for word in allowed}:
            self.add(field, value, "must be one of " + ", ".join(allowed))

    def length(self, field: str, value: str, limit: int) -> None:
        """At most so many characters."""
        if len(value) > limit:
            self.add(field, value[:40] + "...", f"must be at most {limit} characters")

    def entries(self, field: str, values: Sized, limit: int) -> None:
        """At most so many entries."""
        if len(values) > limit:
            self.add(field, f"{len(values)} entries", f"must have at most {limit} entries")

    def port(self, field: str, value: int | str) -> int | str | None:
        """A port, a range or a name of a port. Return its canonical form, None if there is none."""
        try:
            port = numorstring.port(value)
        except ValueError as problem:
            self.add(field, value, str(problem))
            return None
        if port == 0 or (isinstance(port, str) and port.startswith("0:")):
            self.add(field, value, "must not be 0")
        return port

    def port_name(self, field: str, value: str) -> None:
        """A port's name by Kubernetes' rule (RFC 6335); empty is allowed."""
        if value and not is_port_name(value):
            self.add(
                field,
                value,
                f"must be a port's name: at most {MAX_PORT_NAME} lower-case letters, digits and "
                "single inner '-', with at least one letter",
            )

    def expression(self, field: str, value: str) -> None:
        """A regular expression of Go's kind (RE2); empty is allowed."""
        reason = goregex.problem(value)
        if reason:
            self.add(field, value, f"must be a regular expression (RE2): {reason}")

    def dscp(self, field: str, value: int | str | None) -> None:
        """A DSCP; None is allowed."""
        if value is not None and not is_dscp(value):
            self.add(field, value, f"must be 0 to {MAX_DSCP} or a name such as EF, AF41 or CS6")

    def cidrs(self, field: str, values: Sequence[str], version: int = 0) -> None:
        """CIDRs or addresses; bits behind the mask may be set."""
        for where, value in indexed(field, values):
            self.network(where, value, version, host_bits=True)

    def limits(self, field: str, value: int | None, low: int, high: int) -> None:
        """An integer in a range; None is allowed."""
        if value is not None and not low <= value <= high:
            self.add(field, value, f"must be {low} to {high}")

    def wireguard_key(self, field: str, value: str) -> None:
        """A WireGuard key; empty is allowed."""
        if value and not is_wireguard_key(value):
            self.add(field, value, "must be a WireGuard key: 32 bytes in base64")

    def metadata(self, metadata: Metadata, namespaced: bool) -> None:
        """Name, namespace, labels and annotations."""
        self.name("metadata.name", metadata.name, "a name is required")
        missing = "a namespace is required" if namespaced else ""
        self.name("metadata.namespace", metadata.namespace, missing)
        self.labels("metadata.labels", metadata.labels)
        self.annotations("metadata.annotations", metadata.annotations)

    def only_default(self, name: str) -> None:
        """The name of the only object of its kind."""
        if name != "default":
            self.add("metadata.name", name, "the only object of this kind is named default")

    def annotations(self, field: str, annotations: Mapping[str, str]) -> None:
        """Kubernetes' rules for annotations."""
        for key in annotations:
            self.qualified(f"{field}[{key}]", key.lower())
        size = sum(len(k.encode()) + len(v.encode()) for k, v in annotations.items())
        if size > MAX_ANNOTATIONS:
            self.add(field, f"{size} bytes", "must be at most 256 KiB altogether")

    def labels(self, field: str, labels: Mapping[str, str]) -> None:
        """Kubernetes' rules for label names and values."""
        for key, value in labels.items():
            self.qualified(f"{field}[{key}]", key)
            if not is_label_value(value):
                rule = (
                    "must be at most 63 letters, digits, '-', '_' and '.', beginning and "
                    "ending with a letter or digit"
                )
                self.add(f"{field}[{key}]", value, rule)

    def qualified(self, field: str, key: str) -> None:
        """`[dns.prefix/]name`."""
        if not is_qualified_name(key):
            self.add(field, key, "must be a name of at most 63 characters, or dns.prefix/name")


def indexed(field: str, values: Iterable[T]) -> Iterator[tuple[str, T]]:
    """The values of a list, each with its path: `spec.nets[0]`, `spec.nets[1]`."""
    return ((f"{field}[{index}]", value) for index, value in enumerate(values))
