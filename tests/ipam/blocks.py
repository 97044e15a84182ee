"""Blocks as tests want them."""

from __future__ import annotations

from collections.abc import Mapping

from ipam.records import blocks
from ipam.records.block_editor import BlockEditor
from ipam.records.blocks import IPAddress
from libcalico.model import Block


def assign_address(
    block: Block, address: IPAddress, handle_id: str | None, attributes: Mapping[str, str]
) -> Block:
    """Take one named address, wherever in the queue it stands; raises `AddressInUse`."""
    ordinal = blocks.ordinal_of(block, address)
    edit = BlockEditor(block)
    blocks.require_free(edit, ordinal, address)
    edit.give([ordinal], handle_id, attributes)
    return edit.result()
