"""IP sets over nfnetlink, in process.

Public: `IPSets`, `SetInfo`, `SetType`, `has_ipsets`.
"""

from linux.ipset.sets import IPSets as IPSets
from linux.ipset.sets import SetInfo as SetInfo
from linux.ipset.sets import SetType as SetType
from linux.ipset.sets import has_ipsets as has_ipsets
