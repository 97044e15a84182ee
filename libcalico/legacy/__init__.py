"""First-generation documents (apiVersion v1) become v3 documents, or are refused by name.

The public face: `is_legacy` tells a v1 document, `convert_document` turns its tree into v3
trees, `onto_stored` finds the stored pool that a v1 pool means. The client's configuration
is in libcalico/legacy/apiconfig.py. Tested in tests/libcalico/test_legacy.py.
"""

from libcalico.legacy.convert import convert_document, is_legacy, legacy_problems
from libcalico.legacy.pools import onto_stored

__all__ = ["convert_document", "is_legacy", "legacy_problems", "onto_stored"]
