"""The allocator's settings: what is stored under `/calico/ipam/v2/config`, and its rules.

The v3 resource IPAMConfiguration is another object that the allocator does not read where the
datastore is etcd; so it is with Calico. Source: docs/reference/data-model.md#ipam-keys,
#ipam-configuration.
Tested in tests/ipam/test_library.py.
"""

from __future__ import annotations

from collections.abc import Callable

from ipam.records.errors import BadSettings
from libcalico.datastore.interface import ABSENT, CommitConflict, Datastore, Put
from libcalico.model import IPAMConfig
from libcalico.model.keys import IPAMConfigKey
from libcalico.model.resources.ipam import DEFAULT_IPAM_CONFIG

MAX_COOLDOWN_SECONDS = 1200
MAX_BLOCKS_PER_HOST = 1_000_000


async def get_config(store: Datastore) -> IPAMConfig:
    """The settings; absent means borrowing allowed and blocks claimed freely."""
    entry = await store.get(IPAMConfigKey())
    return entry.value if entry else DEFAULT_IPAM_CONFIG


def problem(config: IPAMConfig) -> str:
    """Why these settings cannot be stored, or an empty text."""
    if not config.strict_affinity and not config.auto_allocate_blocks:
        return "Cannot disable 'StrictAffinity' and 'AutoAllocateBlocks' at the same time"
    if config.maxBlocksPerHost > 0 and not config.strict_affinity:
        return "MaxBlocksPerHost requires StrictAffinity to be enabled"
    if not 0 <= config.maxBlocksPerHost <= MAX_BLOCKS_PER_HOST:
        return f"maxBlocksPerHost {config.maxBlocksPerHost} must be 0 to {MAX_BLOCKS_PER_HOST}"
    if not 0 <= config.ipCooldownSeconds <= MAX_COOLDOWN_SECONDS:
        return f"ipCooldownSeconds {config.ipCooldownSeconds} must be 0 to {MAX_COOLDOWN_SECONDS}"
    return ""


async def set_config(store: Datastore, config: IPAMConfig) -> bool:
    """Store the settings over those of any writer; False if they were so already.

    Raises `BadSettings` for a combination that Calico refuses.
    """
    return await change_config(store, lambda _: config)


async def change_config(store: Datastore, change: Callable[[IPAMConfig], IPAMConfig]) -> bool:
    """Store what `change` makes of the settings as they are; False if they were so already.

    It is asked again where another writer changed them meanwhile: what it leaves as it was keeps
    the other's value. Raises `BadSettings` as `set_config`.
    """
    key = IPAMConfigKey()
    while True:
        entry = await store.get(key)
        stored = entry.value if entry else DEFAULT_IPAM_CONFIG
        config = change(stored)
        if reason := problem(config):
            raise BadSettings(reason)
        if stored == config:
            return False
        try:
            await store.commit([Put(key, config, entry.revision if entry else ABSENT, entry)])
        except CommitConflict:
            continue
        return True
