"""From stored rules to resolved ones: values and the identities of sets."""

from __future__ import annotations

import base64
import hashlib

import pytest

from felix.calc.policy.rules import resolve
from felix.calc.policy_model import EntityMatch, Verb
from libcalico.errors import InvalidValue
from libcalico.model import Rule
from libcalico.model.resources.rules import ICMPFields, RuleMetadata
from tests.felix.policy_objects import allow, rule


def uid(prefix: str, text: str) -> str:
    """The identity as the reference (docs/reference/dataplane.md#identity-of-sets) defines it."""
    digest = hashlib.sha224(f"{prefix}:{text}".encode()).digest()
    return f"{prefix}:" + base64.urlsafe_b64encode(digest).decode().rstrip("=")


def source(given: Rule, namespace: str = "") -> EntityMatch:
    return resolve([given], "spec.ingress", namespace).rules[0].source


def test_identities_of_selector_sets_are_calicos() -> None:
    one = source(allow(source={"selector": "app=='x'"}), "ns")
    text = '(projectcalico.org/namespace == "ns" && app == "x")'
    assert one.sets == (uid("s", text),)
    assert len(one.sets[0]) == 40


def test_a_negative_selector_joins_a_positive_one_and_stands_alone_without() -> None:
    both = source(allow(source={"selector": "a == '1'", "notSelector": "b == '2'"}))
    assert both.sets == (uid("s", '(a == "1" && !b == "2")'),)
    assert both.not_sets == ()
    alone = source(allow(source={"notSelector": "b == '2'"}))
    assert alone.sets == ()
    assert alone.not_sets == (uid("s", 'b == "2"'),)


def test_identities_of_named_ports_hold_selector_protocol_and_name() -> None:
    given = allow(protocol="UDP", source={"ports": ["dns", 53], "selector": "a == '1'"})
    found = source(given)
    chosen = uid("s", 'a == "1"')
    assert found.named_ports == (uid("n", f"{chosen},udp,dns"),)
    assert found.ports == ((53, 53),)
    assert found.sets == (chosen,)


def test_only_named_ports_make_the_selector_set_needless() -> None:
    found = source(allow(protocol="TCP", source={"ports": ["http"], "selector": "a == '1'"}))
    assert found.sets == ()
    everybody = source(allow(source={"ports": ["http"]}))
    assert everybody.named_ports == (uid("n", f"{uid('s', 'all()')},tcp,http"),)


def test_needs_are_named_once() -> None:
    twice = allow(source={"selector": "a == '1'"}, destination={"selector": "a=='1'"})
    assert len(resolve([twice, twice], "spec.ingress").needs) == 1


def test_values_become_values() -> None:
    metadata = RuleMetadata(annotations={"b": "2", "a": "1"})
    given = rule("deny", protocol="tcp", source={"ports": ["80:90", "0:5", "7:7"]}, ipVersion=4,
                 metadata=metadata)  # fmt: skip
    (found,) = resolve([given], "spec.ingress").rules
    assert found.verb is Verb.DENY
    assert (found.version, found.protocol) == (4, 6)
    assert found.source.ports == ((80, 90), (0, 5), (7, 7))
    assert found.annotations == (("a", "1"), ("b", "2"))


def test_an_icmp_type_decides_the_family() -> None:
    given = rule("Allow", protocol="ICMPv6", icmp=ICMPFields(type=128))
    (found,) = resolve([given], "spec.ingress").rules
    assert found.version == 6
    assert found.icmp == (128, None)


def test_a_joined_selector_cannot_leave_its_parentheses() -> None:
    escape = allow(source={"selector": "a == '1') || (has(b)"})
    with pytest.raises(InvalidValue, match=r"spec\.ingress\[0\]\.source\.selector"):
        resolve([escape], "spec.ingress", "ns")
