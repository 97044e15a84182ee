"""The allocator as a library: what Calico's ipam interface offers, call by call.

Each call stands alone: it reads what it needs, and commits under guards. A node's own pods
go through `ipam.allocator.service.NodeAllocator`, which keeps its blocks at hand and groups requests.
Calico's library and this one may work on one etcd at the same time.

| call | where |
|---|---|
| `auto_assign`, `assign_ip` | ipam/allocator/library_assign.py |
| `release_ips`, `release_by_handle` | ipam/allocator/release.py |
| `claim_affinity`, `release_affinity`, `release_host_affinities`, `release_pool_affinities`, `remove_host` | ipam/allocator/hosts.py |
| `ensure_tunnel_address(es)` | ipam/admin/tunnels.py |
| `get_config`, `set_config`, `change_config` | ipam/allocator/settings.py |
| `sweep_cooled` | ipam/allocator/cooling.py |

Source: docs/reference/data-model.md. Tested in tests/ipam/test_library.py.
"""  # noqa: E501

from __future__ import annotations

from ipam.admin.tunnels import ensure_tunnel_address, ensure_tunnel_addresses
from ipam.allocator.cooling import sweep_cooled
from ipam.allocator.hosts import (
    claim_affinity,
    release_affinity,
    release_host_affinities,
    release_pool_affinities,
    remove_host,
)
from ipam.allocator.library_assign import AssignRequest, AssignResult, assign_ip, auto_assign
from ipam.allocator.release import Release, ReleaseResult, release_by_handle, release_ips
from ipam.allocator.settings import change_config, get_config, set_config

__all__ = [
    "AssignRequest", "AssignResult", "Release", "ReleaseResult", "assign_ip", "auto_assign",
    "change_config", "claim_affinity", "ensure_tunnel_address", "ensure_tunnel_addresses",
    "get_config", "release_affinity", "release_by_handle", "release_host_affinities", "release_ips",
    "release_pool_affinities", "remove_host", "set_config", "sweep_cooled",
]  # fmt: skip
