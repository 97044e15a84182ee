"""IP sets over nfnetlink, in process.

Public: `IPSets`, `SetInfo`, `SetType`, `has_ipsets`.
"""

from linux.ipset.sets import IPSets, SetInfo, SetType, has_ipsets

__all__ = ["IPSets", "SetInfo", "SetType", "has_ipsets"]
