"""A selector for some endpoints among others: the fewest terms that tell them apart.

Terms are taken greedily: each time the one that excludes most of those left, of equal ones the
one that people know best. What no term excludes is told.

Tested in tests/policy_recommend/test_parts.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from libcalico.policy_selectors import SERVICE_ACCOUNT_LABEL
from libcalico.selectors.selectors import Compare, Has, InSet, Not

KNOWN = ("app.kubernetes.io/name", "app", "k8s-app", "app.kubernetes.io/component", "component",
         "role", "name", "tier", "app.kubernetes.io/instance")  # fmt: skip
"""Labels that people name their work by, the best known first."""
MOST_VALUES = 8
"""Values of one label that a term may list."""
Term = Compare | InSet | Not
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Choice:
    """Terms that all hold; `over`: label sets of others that they match as well."""

    terms: tuple[Term, ...]
    over: tuple[Labels, ...] = ()

    @property
    def selector(self) -> str:
        """As a selector; `all()` without terms."""
        return text_of(self.terms)

    def matches(self, labels: Labels) -> bool:
        """Whether all terms hold."""
        return all(term.matches(labels) for term in self.terms)


def text_of(terms: Sequence[Term]) -> str:
    """Terms as a selector."""
    return " && ".join(term.text for term in terms) or "all()"


def choose(mine: Sequence[Labels], others: Iterable[Labels]) -> Choice:
    """The terms that match all of `mine` and as few of `others` as labels allow."""
    left = list(others)
    candidates = sorted(_candidates(mine, left), key=_rank)
    terms: list[Term] = []
    while left and candidates:
        best = max(candidates, key=lambda term: _excluded(term, left))
        if not _excluded(best, left):
            break
        terms.append(best)
        candidates.remove(best)
        left = [labels for labels in left if best.matches(labels)]
    if not terms:
        # Where nothing has to be told apart: say who is meant, for those that come later.
        terms += [term for term in candidates if isinstance(term, Compare)][:1]
    return Choice(tuple(sorted(terms, key=_rank)), tuple(left))


def _candidates(mine: Sequence[Labels], others: Sequence[Labels]) -> list[Term]:
    terms: list[Term] = []
    everywhere = set(mine[0]).intersection(*mine[1:]) if mine else set()
    for label in everywhere:
        values = {labels[label] for labels in mine}
        if len(values) == 1:
            terms.append(Compare(label, "==", min(values)))
        elif len(values) <= MOST_VALUES:
            terms.append(InSet(label, frozenset(values)))
    here = {label for labels in mine for label in labels}
    absent = {label for labels in others for label in labels} - here
    return [*terms, *(Not(Has(label)) for label in absent)]


def _excluded(term: Term, labels: Iterable[Labels]) -> int:
    return sum(not term.matches(each) for each in labels)


def label_of(term: Term) -> str:
    """The label that a term speaks of."""
    if isinstance(term, Not):
        assert isinstance(term.operand, Has)
        return term.operand.label
    return term.label


def _rank(term: Term) -> tuple[object, ...]:
    label = label_of(term)
    known = KNOWN.index(label) if label in KNOWN else len(KNOWN)
    kind = (Compare, InSet, Not).index(type(term))
    return (kind, label == SERVICE_ACCOUNT_LABEL, known, label, term.text)
