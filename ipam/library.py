"""The allocator as a library: what Calico's ipam interface offers, call by call.

Each call stands alone: it reads what it needs, and commits under guards. A node's own pods
go through `ipam.service.NodeAllocator`, which keeps its blocks at hand and groups requests.
Calico's library and this one may work on one etcd at the same time.

| call | where |
|---|---|
| `auto_assign`, `assign_ip` | ipam/assign.py |
| `release_ips`, `release_by_handle` | ipam/release.py |
| `claim_affinity`, `release_affinity`, `release_host_affinities`, `release_pool_affinities`, `remove_host` | ipam/hosts.py |
| `ensure_tunnel_address(es)` | ipam/tunnels.py |
| `get_config`, `set_config` | ipam/settings.py |
| `sweep_cooled` | ipam/cooling.py |

Source: data model 4.4 to 4.9. Tested in tests/ipam/test_library.py.
"""  # noqa: E501

from __future__ import annotations

from ipam.assign import AssignRequest, AssignResult, assign_ip, auto_assign
from ipam.cooling import sweep_cooled
from ipam.hosts import (
    claim_affinity,
    release_affinity,
    release_host_affinities,
    release_pool_affinities,
    remove_host,
)
from ipam.release import Release, ReleaseResult, release_by_handle, release_ips
from ipam.settings import get_config, set_config
from ipam.tunnels import ensure_tunnel_address, ensure_tunnel_addresses

__all__ = [
    "AssignRequest", "AssignResult", "Release", "ReleaseResult", "assign_ip", "auto_assign",
    "claim_affinity", "ensure_tunnel_address", "ensure_tunnel_addresses", "get_config",
    "release_affinity", "release_by_handle", "release_host_affinities", "release_ips",
    "release_pool_affinities", "remove_host", "set_config", "sweep_cooled",
]  # fmt: skip
