"""`datastore`: move or lock what the datastore holds."""

from __future__ import annotations

from calicoctl.cli import lazy_group

datastore = lazy_group("datastore", "Move or lock the datastore.", {})
