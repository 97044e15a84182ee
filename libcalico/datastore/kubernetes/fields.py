"""The fields of Kubernetes' own objects that are read, by their numbers in protobuf.

What a mapping reads of an object must be here, or it would be missing where the API speaks
protobuf. Numbers never change. Source:
https://github.com/kubernetes/api/blob/master/core/v1/generated.proto and
https://github.com/kubernetes/apimachinery/blob/master/pkg/apis/meta/v1/generated.proto.
Tested against the API's JSON in tests/apiserver/test_kdd_protobuf.py.
"""

from __future__ import annotations

from libcalico.kubernetes.protobuf import Field, Fields, Kind

_METADATA: Fields = {
    1: Field("name"),
    2: Field("generateName"),
    3: Field("namespace"),
    5: Field("uid"),
    6: Field("resourceVersion"),
    8: Field("creationTimestamp", Kind.TIME),
    9: Field("deletionTimestamp", Kind.TIME),
    11: Field("labels", Kind.PAIRS),
    12: Field("annotations", Kind.PAIRS),
}
_PORT: Fields = {
    1: Field("name"),
    2: Field("hostPort", Kind.NUMBER),
    3: Field("containerPort", Kind.NUMBER),
    4: Field("protocol"),
    5: Field("hostIP"),
}
_CONTAINER: Fields = {6: Field("ports", Kind.MESSAGES, _PORT)}
_POD_SPEC: Fields = {
    2: Field("containers", Kind.MESSAGES, _CONTAINER),
    8: Field("serviceAccountName"),
    10: Field("nodeName"),
    11: Field("hostNetwork", Kind.FLAG),
    20: Field("initContainers", Kind.MESSAGES, _CONTAINER),
}
_POD_STATUS: Fields = {
    1: Field("phase"),
    6: Field("podIP"),
    12: Field("podIPs", Kind.MESSAGES, {1: Field("ip")}),
}
_NODE_STATUS: Fields = {
    5: Field("addresses", Kind.MESSAGES, {1: Field("type"), 2: Field("address")}),
}
POD: Fields = {
    1: Field("metadata", Kind.MESSAGE, _METADATA),
    2: Field("spec", Kind.MESSAGE, _POD_SPEC),
    3: Field("status", Kind.MESSAGE, _POD_STATUS),
}
NODE: Fields = {
    1: Field("metadata", Kind.MESSAGE, _METADATA),
    2: Field("spec", Kind.MESSAGE, {7: Field("podCIDRs", Kind.TEXTS)}),
    3: Field("status", Kind.MESSAGE, _NODE_STATUS),
}
