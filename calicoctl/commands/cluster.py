"""`cluster`: facts about the whole cluster."""

from __future__ import annotations

from calicoctl.cli import lazy_group

cluster = lazy_group("cluster", "Gather facts about the whole cluster.", {})
