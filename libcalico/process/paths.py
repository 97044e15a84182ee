"""Where things lie on a node: one table, read by every process, test and manual page.

Tested in tests/lab/test_machine.py.
"""

from __future__ import annotations

from pathlib import Path

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

RUN = Path("/var/run/calico")
PRIVATE = RUN / "private"
NODE_SOCKET = PRIVATE / "node.sock"
CNI_SOCKET = PRIVATE / "cni.sock"
STATUS = RUN / "status"
ENDPOINT_STATUS = RUN / "endpoint-status"

LIB = Path("/var/lib/calico")
NODENAME = LIB / "nodename"
MTU = LIB / "mtu"
CNI_PENDING = LIB / "cni" / "pending"
LAST_READABLE = LIB / "felix" / "last-readable"
CNI_ATTACHMENTS = LIB / "cni" / "attachments"

CONFIG = Path("/etc/calico")
CALICOCTL_CONFIG = CONFIG / "calicoctl.cfg"
FELIX_CONFIG = CONFIG / "felix.cfg"

CNI_BIN = Path("/opt/cni/bin")
CNI_NET = Path("/etc/cni/net.d")
LOG = Path("/var/log/calico")

FELIX_HEALTH_PORT = 9099
FELIX_METRICS_PORT = 9091
BGP_PORT = 9097
CNI_PORT = 9096
