"""Nothing that is a secret leaves for a browser: texts of others are cleaned as they come in.

Views are made of chosen fields, none of which holds a secret by its meaning. Free text may all the
same: a condition repeats an endpoint's URL with a login, an annotation of a rule holds anything.

Invariants:
  WEB-2  Every text that a node, a rule or an error brings is cleaned before a view can hold it.
Tested in tests/web/test_cleaning.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from calicoctl.diags.secret_text import HIDDEN, is_secret_name, without_secrets


def cleaned(value: object) -> object:
    """A document without what is a secret by its field's name or by its shape."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, Mapping):
        return {
            without_secrets(str(name)): (
                HIDDEN
                if isinstance(each, str) and each and is_secret_name(str(name))
                else cleaned(each)
            )
            for name, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [cleaned(each) for each in value]
    return value


def cleaned_document(document: Mapping[str, object] | None) -> Mapping[str, object] | None:
    """The same of a status document; None stays None."""
    if document is None:
        return None
    result = cleaned(document)
    assert isinstance(result, dict)
    return result
