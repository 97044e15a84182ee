"""Bytes in, the same bytes out: CODEC-1, CODEC-2, CODEC-3."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcalico.datastore.etcd.keys import key_of_path
from libcalico.errors import InvalidValue, UnsupportedKind
from libcalico.model import (
    Attribute,
    Block,
    BlockKey,
    FelixConfiguration,
    FelixConfigurationSpec,
    Handle,
    HandleKey,
    IPAMConfig,
    IPAMConfigKey,
    IPPool,
    IPPoolSpec,
    Metadata,
    Node,
    NodeBGPSpec,
    NodeSpec,
    ResourceKey,
    WorkloadEndpoint,
    WorkloadEndpointPort,
    WorkloadEndpointSpec,
    codec,
)
from libcalico.model.codec import decode_value, encode_value, resource_from_tree
from tests.libcalico.golden_data import pairs

NODE = ResourceKey("Node", "n")
POOL = ResourceKey("IPPool", "p")


@pytest.mark.parametrize(("path", "raw"), pairs(), ids=lambda part: str(part)[:70])
def test_what_calico_stored_comes_back_byte_for_byte(path: str, raw: bytes) -> None:
    key = key_of_path(path)
    assert key is not None
    value = decode_value(key, raw)
    assert encode_value(key, value) == raw
    assert encode_value(key, value, raw) == raw


def test_gos_escapes_and_key_order_are_kept() -> None:
    node = Node(metadata=Metadata(name="n", labels={"z": "<&>", "a": "é\u2028\u2029"}))
    raw = encode_value(NODE, node)
    assert (
        raw
        == (
            '{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"n","labels":'
            '{"a":"é\\u2028\\u2029","z":"\\u003c\\u0026\\u003e"}},"spec":{},"status":{}}'
        ).encode()
    )
    assert decode_value(NODE, raw) == node


def test_resource_version_and_self_link_are_never_stored() -> None:
    node = Node(metadata=Metadata(name="n", resourceVersion="7", selfLink="/x"))
    assert b"resourceVersion" not in encode_value(NODE, node)
    assert b"selfLink" not in encode_value(NODE, node)


def test_fields_that_go_always_writes_are_written() -> None:
    endpoint = WorkloadEndpoint(
        metadata=Metadata(name="w", namespace="d"),
        spec=WorkloadEndpointSpec(ports=[WorkloadEndpointPort(name="http", port=80)]),
    )
    raw = encode_value(ResourceKey("WorkloadEndpoint", "w", "d"), endpoint)
    assert b'"ports":[{"name":"http","protocol":"TCP","port":80,"hostPort":0,"hostIP":""}]' in raw
    block = Block(cidr="10.0.0.0/26", allocations=[None], attributes=[Attribute(handle_id="h")])
    key = key_of_path("/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-26")
    assert isinstance(key, BlockKey)
    assert encode_value(key, block) == (
        b'{"cidr":"10.0.0.0/26","affinity":null,"allocations":[null],"unallocated":[],'
        b'"attributes":[{"handle_id":"h"}],"sequenceNumber":0,"sequenceNumberForAllocation":{},'
        b'"deleted":false}'
    )
    assert encode_value(IPAMConfigKey(), IPAMConfig(strict_affinity=True)) == (
        b'{"strict_affinity":true}'
    )


def test_older_spellings_are_read() -> None:
    key = ResourceKey("Profile", "p")
    profile = decode_value(
        key,
        b'{"metadata":{"name":"p","creationTimestamp":null,"labels":null},"spec":{"ingress":'
        b'[{"action":"Allow","source":{},"destination":{"ports":["80","1:2","http",53]}}]}}',
    )
    rule = profile.spec.ingress[0]
    assert rule.destination.ports == [80, "1:2", "http", 53]
    assert b'"ingress":[{"action":"Allow","destination":{"ports":[80,"1:2","http",53]}}]' in (
        encode_value(key, profile)
    )
    block_key = key_of_path("/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-26")
    assert block_key is not None
    block = decode_value(
        block_key,
        b'{"cidr":"10.0.0.0/26","hostAffinity":"n1","allocations":[0,null],"unallocated":null,'
        b'"attributes":[{"handle_id":null,"secondary":null}],"sequenceNumber":3}',
    )
    assert block.owner == "host:n1"
    assert block.allocations == [0, None]
    assert block.unallocated == []
    affinity_key = key_of_path("/calico/ipam/v2/host/n1/ipv4/block/10.0.0.0-26")
    assert affinity_key is not None
    assert decode_value(affinity_key, b"").state == ""


def test_as_numbers_may_be_text_or_dotted() -> None:
    for spelled, number in (("65000", 65000), ('"65000"', 65000), ('"1.10"', 65546)):
        raw = f'{{"metadata":{{"name":"n"}},"spec":{{"bgp":{{"asNumber":{spelled}}}}}}}'.encode()
        node = decode_value(NODE, raw)
        assert node.spec.bgp.asNumber == number
        assert f'"asNumber":{number}'.encode() in encode_value(NODE, node)
    with pytest.raises(InvalidValue, match="AS number"):
        decode_value(NODE, b'{"metadata":{"name":"n"},"spec":{"bgp":{"asNumber":"1.x"}}}')


def test_unknown_members_survive_at_every_depth() -> None:
    base = (
        b'{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"n","new":1.50},'
        b'"spec":{"bgp":{"ipv4Address":"1.2.3.4/24","x":{"b":1,"a":2}},'
        b'"addresses":[{"address":"1.1.1.1","y":1},{"address":"2.2.2.2","y":2}]},'
        b'"status":{},"top":[1,2]}'
    )
    node = decode_value(NODE, base)
    changed = msgspec.structs.replace(
        node,
        spec=msgspec.structs.replace(
            node.spec,
            bgp=NodeBGPSpec(ipv4Address="9.9.9.9/24"),
            addresses=node.spec.addresses[1:],
        ),
    )
    assert encode_value(NODE, changed, base) == (
        b'{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"n","new":1.50},'
        b'"spec":{"bgp":{"ipv4Address":"9.9.9.9/24","x":{"b":1,"a":2}},'
        b'"addresses":[{"address":"2.2.2.2","y":2}]},"status":{},"top":[1,2]}'
    )
    without = msgspec.structs.replace(node, spec=NodeSpec())
    assert b"bgp" not in encode_value(NODE, without, base)
    assert encode_value(NODE, node, base) == base


def test_empty_parts_of_rules_stay_as_calico_wrote_them() -> None:
    """Calico up to v3.32 stores them, newer ones leave them out; both come back unchanged."""
    for rule in (
        b'{"action":"Allow","source":{},"destination":{}}',
        b'{"action":"Deny","protocol":"TCP","source":{},"destination":{"ports":[80]}}',
        b'{"action":"Pass","destination":{"nets":["10.0.0.0/8"]}}',
    ):
        raw = (
            b'{"kind":"GlobalNetworkPolicy","apiVersion":"projectcalico.org/v3",'
            b'"metadata":{"name":"p","uid":"u","creationTimestamp":"2026-08-22T10:11:12Z",'
            b'"labels":{"projectcalico.org/tier":"default"},'
            b'"annotations":{"projectcalico.org/metadata":"{\\"name\\":\\"p\\"}"}},'
            b'"spec":{"tier":"default","ingress":[%s],"types":["Ingress"]}}' % rule
        )
        key = ResourceKey("GlobalNetworkPolicy", "p")
        assert encode_value(key, decode_value(key, raw), raw) == raw


def test_a_felix_configuration_is_written_in_calicos_order() -> None:
    key = ResourceKey("FelixConfiguration", "default")
    felix = FelixConfiguration(
        metadata=Metadata(name="default", annotations={"b": "1", "a": "2"}),
        spec=FelixConfigurationSpec(
            floatingIPs="Disabled", bpfEnabled=False, failsafeInboundHostPorts=[]
        ),
    )
    raw = encode_value(key, felix)
    assert raw.endswith(
        b'"annotations":{"a":"2","b":"1"}},"spec":{"failsafeInboundHostPorts":[],'
        b'"bpfEnabled":false,"bpfLogLevel":"","floatingIPs":"Disabled"}}'
    )
    assert encode_value(key, decode_value(key, raw)) == raw


@pytest.mark.parametrize(
    ("raw", "field", "value"),
    [
        (b'{"metadata":{"name":"p"},"spec":{"cidr":7}}', "spec.cidr", 7),
        (b'{"metadata":{"name":"p"},"spec":{}}', "spec", "..."),
        (b'{"metadata":{"name":"p"},"spec":{"cidr":"x","allowedUses":["a",1]}}', None, 1),
        (b'{"metadata":{"name":"p"}}', "$", "..."),
        (b"[]", "$", "..."),
        (b"{", "$", "{"),
        (b"", "$", ""),
        (b"\xff", "$", "\ufffd"),
    ],
)
def test_a_wrong_value_is_named_by_its_path(raw: bytes, field: str | None, value: Any) -> None:
    with pytest.raises(InvalidValue) as problem:
        decode_value(POOL, raw)
    assert problem.value.field == (field or "spec.allowedUses[1]")
    assert problem.value.value == value
    assert "IPPool(p)" in str(problem.value)


def test_a_tree_with_a_misspelled_field_is_refused_strictly() -> None:
    tree = {
        "kind": "ippool",
        "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "p", "creationTimestamp": None},
        "spec": {"cidr": "10.0.0.0/8", "natOutging": True},
    }
    assert resource_from_tree(tree).kind == "IPPool"
    with pytest.raises(InvalidValue) as problem:
        resource_from_tree(tree, strict=True)
    assert problem.value.field == "spec.natOutging"
    with pytest.raises(UnsupportedKind, match="Bogus"):
        resource_from_tree({"kind": "Bogus"})
    with pytest.raises(InvalidValue, match="kind"):
        resource_from_tree({})
    felix = {"kind": "FelixConfiguration", "metadata": {"name": "default"}, "spec": {"any": 1}}
    with pytest.raises(InvalidValue, match=r"spec\.any"):
        resource_from_tree(felix, strict=True)


text = st.text(max_size=8)
labels = st.dictionaries(text, text, max_size=3)


@given(
    st.builds(
        IPPool,
        metadata=st.builds(Metadata, name=text, labels=labels, annotations=labels),
        spec=st.builds(
            IPPoolSpec,
            cidr=text,
            natOutgoing=st.booleans(),
            blockSize=st.integers(0, 128),
            allowedUses=st.lists(text, max_size=3),
            assignmentMode=st.none() | text,
        ),
    )
)
def test_any_pool_survives(pool: IPPool) -> None:
    raw = encode_value(POOL, pool)
    assert decode_value(POOL, raw) == pool
    assert encode_value(POOL, pool, raw) == raw
    assert not set(raw) & set(b"<>&")


@given(st.dictionaries(text, st.integers(0, 64), max_size=4), st.binary(max_size=20))
def test_a_base_of_any_bytes_does_no_harm(block: dict[str, int], base: bytes) -> None:
    key = HandleKey("h")
    raw = encode_value(key, Handle(block), base)
    assert decode_value(key, raw) == Handle(block)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=2),
    max_leaves=6,
)


@given(st.dictionaries(text, json_values, max_size=4))
def test_any_json_decodes_or_is_refused_clearly(tree: dict[str, Any]) -> None:
    raw = msgspec.json.encode({"metadata": {"name": "n"}, **tree})
    try:
        node = decode_value(NODE, raw)
    except InvalidValue:
        return
    kept = msgspec.json.decode(encode_value(NODE, node, raw))
    known = {"kind", "apiVersion", "metadata", "spec", "status"}
    assert {k: v for k, v in kept.items() if k not in known} == {
        k: v for k, v in tree.items() if k not in known
    }


@pytest.mark.parametrize(
    "raw",
    [b'{"spec":7', b'{"spec":' + b"[" * 100_000, b'{"metadata":5,"spec":' + b"[" * 100_000],
    ids=["wrong type, then torn", "deep", "wrong type, then deep"],
)
def test_a_torn_value_is_refused_and_never_a_crash(raw: bytes) -> None:
    with pytest.raises(InvalidValue, match="must be JSON"):
        codec.decode_value(ResourceKey("IPPool", "torn"), raw)
