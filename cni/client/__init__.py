"""The other side of CNI: what a container runtime does with a network and its plugins.

Runtimes share one library for this, and plugins are written against its habits: which keys it
injects, what it caches, in which order it calls. `cnitool` is this client on the command line,
the installer asks plugins for their versions through it, and the tests drive chains with it.

client = Client(path=["/opt/cni/bin"], cache=Path("/var/lib/cni"))
network = load(Path("/etc/cni/net.d"), "k8s-pod-network")
result = client.add(network, Attachment("c0ffee", "/var/run/netns/x", "eth0"))

Source: CNI specification 1.1.0 sections 3 and 4, docs/reference/cni.md#prevresult,
#libcni-and-cnitool (LIB-*).
Tested in `tests/cni_conformance/test_library.py`.
"""

from __future__ import annotations

from cni.client.calls import Attachment, Client, PluginFailed
from cni.client.networks import Network, NetworkError, load, parse, parse_single

__all__ = [
    "Attachment",
    "Client",
    "Network",
    "NetworkError",
    "PluginFailed",
    "load",
    "parse",
    "parse_single",
]
