"""The few messages of CRI v1 that starting and stopping a sandbox needs, as a table.

A field that is not in the table is skipped when it is read, as protobuf prescribes, so the table
need not be whole. Numbers and types: `runtime.v1` of the container runtime interface.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import Message

PACKAGE = "runtime.v1"
MAP = "map"
# Each message: its fields as (number, type), a type in brackets is repeated. `map` is string to
# string. Enumerations travel as numbers.
TABLE: dict[str, dict[str, tuple[int, str]]] = {
    "PodSandboxMetadata": {
        "name": (1, "string"),
        "uid": (2, "string"),
        "namespace": (3, "string"),
        "attempt": (4, "uint32"),
    },
    "PortMapping": {
        "protocol": (1, "int32"),
        "container_port": (2, "int32"),
        "host_port": (3, "int32"),
        "host_ip": (4, "string"),
    },
    "LinuxPodSandboxConfig": {"cgroup_parent": (1, "string")},
    "PodSandboxConfig": {
        "metadata": (1, "PodSandboxMetadata"),
        "hostname": (2, "string"),
        "log_directory": (3, "string"),
        "port_mappings": (5, "[PortMapping]"),
        "labels": (6, MAP),
        "annotations": (7, MAP),
        "linux": (8, "LinuxPodSandboxConfig"),
    },
    "RunPodSandboxRequest": {"config": (1, "PodSandboxConfig")},
    "RunPodSandboxResponse": {"pod_sandbox_id": (1, "string")},
    "StopPodSandboxRequest": {"pod_sandbox_id": (1, "string")},
    "StopPodSandboxResponse": {},
    "RemovePodSandboxRequest": {"pod_sandbox_id": (1, "string")},
    "RemovePodSandboxResponse": {},
    "PodIP": {"ip": (1, "string")},
    "PodSandboxNetworkStatus": {"ip": (1, "string"), "additional_ips": (2, "[PodIP]")},
    "PodSandboxStatus": {
        "id": (1, "string"),
        "metadata": (2, "PodSandboxMetadata"),
        "state": (3, "int32"),
        "network": (5, "PodSandboxNetworkStatus"),
    },
    "PodSandboxStatusRequest": {"pod_sandbox_id": (1, "string"), "verbose": (2, "bool")},
    "PodSandboxStatusResponse": {"status": (1, "PodSandboxStatus"), "info": (2, MAP)},
    "PodSandbox": {
        "id": (1, "string"),
        "metadata": (2, "PodSandboxMetadata"),
        "state": (3, "int32"),
    },
    "ListPodSandboxRequest": {},
    "ListPodSandboxResponse": {"items": (1, "[PodSandbox]")},
    "RuntimeCondition": {
        "type": (1, "string"),
        "status": (2, "bool"),
        "reason": (3, "string"),
        "message": (4, "string"),
    },
    "RuntimeStatus": {"conditions": (1, "[RuntimeCondition]")},
    "StatusRequest": {"verbose": (1, "bool")},
    "StatusResponse": {"status": (1, "RuntimeStatus"), "info": (2, MAP)},
}  # fmt: skip
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _Field.TYPE_STRING,
    "bool": _Field.TYPE_BOOL,
    "int32": _Field.TYPE_INT32,
    "uint32": _Field.TYPE_UINT32,
}


def _describe(message: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str) -> None:
    field = message.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
    if kind.startswith("[") or kind == MAP:
        field.label = _Field.LABEL_REPEATED
    kind = kind.strip("[]")
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
        return
    field.type = _Field.TYPE_MESSAGE
    field.type_name = f".{PACKAGE}.{kind}"
    if kind == MAP:
        # A map is a repeated message of key and value (protobuf's language guide).
        entry = message.nested_type.add(name="".join(map(str.title, name.split("_"))) + "Entry")
        entry.options.map_entry = True
        for at, part in enumerate(("key", "value"), 1):
            entry.field.add(
                name=part, number=at, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING
            )
        field.type_name = f".{PACKAGE}.{message.name}.{entry.name}"


def _classes() -> dict[str, type[Message]]:
    file = descriptor_pb2.FileDescriptorProto(
        name="muslin/tests/cri.proto", package=PACKAGE, syntax="proto3"
    )
    for name, fields in TABLE.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            _describe(message, field, number, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in TABLE
    }


_CLASSES = _classes()


def encode(name: str, tree: dict[str, Any]) -> bytes:
    """A message from a tree of its fields. Raises ParseError for a field that is not there."""
    return json_format.ParseDict(tree, _CLASSES[name]()).SerializeToString()


def decode(name: str, data: bytes) -> dict[str, Any]:
    """The tree of a message; fields that are not set have their zero."""
    message = _CLASSES[name].FromString(data)
    tree: dict[str, Any] = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return tree
