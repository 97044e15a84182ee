"""iptables as tables: dump, plan, one restore per change; foreign rules are never touched.

Public: `detect_backend`, `Table`, `Desired`, `HashScheme`.
"""

from linux.iptables.detect import detect_backend
from linux.iptables.hashes import HashScheme
from linux.iptables.render import Desired
from linux.iptables.table import Table

__all__ = ["Desired", "HashScheme", "Table", "detect_backend"]
