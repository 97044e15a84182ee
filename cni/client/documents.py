"""What a plugin of a list gets on stdin, and its result as the next one gets it. Pure.

Tested in tests/cni_conformance/test_runtimes.py and tests/cni_conformance/test_chains.py.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cni.client.networks import Network
from cni.request.errors import CNIError, Code
from cni.request.result import DNS, FLAT
from cni.request.result_decoding import decode
from cni.request.result_encoding import ResultDocument, as_document
from libcalico.errors import NO_DOCUMENT


def configured(
    network: Network,
    plugin: Mapping[str, object],
    result: ResultDocument | None = None,
    capabilities: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """What one plugin of the list gets on stdin (CLI-1). Pure."""
    config = {**plugin, "name": network.name, "cniVersion": network.version}
    if result is not None:
        config["prevResult"] = result
    declared = plugin.get("capabilities")
    if not isinstance(declared, Mapping):
        return config
    given = capabilities or {}
    if supplied := {name: given[name] for name in given if declared.get(name) is True}:
        config["runtimeConfig"] = supplied
    return config


def typed(answer: bytes, version: str) -> ResultDocument:
    """A plugin's result as the next one gets it: keys that the version does not know are gone.

    Raises CNIError 6. Pure.
    """
    try:
        document = msgspec.json.decode(answer)
    except NO_DOCUMENT as problem:
        raise CNIError(Code.DECODING_FAILURE, f"could not parse a CNI result: {problem}") from None
    own = document.get("cniVersion") if isinstance(document, dict) else ""
    label = own or version or "0.1.0"
    result = decode(document, label)
    if label in FLAT and not result.ips:
        # `loopback` of old has nothing to say, and the flat shape allows that.
        return {"cniVersion": label, "dns": {}}
    shaped = as_document(result, label)
    if result.dns == DNS():
        shaped["dns"] = {}
    return shaped
