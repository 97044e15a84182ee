"""TABLE-1, TABLE-2: the delta is the difference of the two maps, whatever was done before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from linux.delta_table import DeltaTable

_KEYS = st.integers(0, 5)
_VALUES = st.integers(0, 2)
_MAPS = st.dictionaries(_KEYS, _VALUES)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("want"), _KEYS, _VALUES),
        st.tuples(st.just("unwant"), _KEYS, st.none()),
        st.tuples(st.just("saw"), _KEYS, _VALUES),
        st.tuples(st.just("lost"), _KEYS, st.none()),
        st.tuples(st.just("desired"), st.none(), _MAPS),
        st.tuples(st.just("actual"), st.none(), _MAPS),
        st.tuples(st.just("commit"), st.none(), st.none()),
    ),
    max_size=40,
)


@given(_STEPS)
def test_the_delta_is_the_difference(steps: list[tuple[str, int, object]]) -> None:
    table: DeltaTable[int, object] = DeltaTable()
    desired: dict[int, object] = {}
    actual: dict[int, object] = {}
    for step, key, value in steps:
        if step == "want":
            table.want(key, value)
            desired[key] = value
        elif step == "unwant":
            table.unwant(key)
            desired.pop(key, None)
        elif step == "saw":
            table.saw(key, value)
            actual[key] = value
        elif step == "lost":
            table.lost(key)
            actual.pop(key, None)
        elif step == "desired":
            assert isinstance(value, dict)
            table.replace_desired(value)
            desired = dict(value)
        elif step == "actual":
            assert isinstance(value, dict)
            table.replace_actual(value)
            actual = dict(value)
        else:
            table.committed(*table.delta())
            actual = dict(desired)
            assert table.in_sync()
            assert not table.delta()
        assert dict(table.desired) == desired
        assert dict(table.actual) == actual
        delta = table.delta()
        assert delta.upserts == {
            k: v for k, v in desired.items() if k not in actual or actual[k] != v
        }
        assert set(delta.deletes) == set(actual) - set(desired)
        assert len(delta.deletes) == len(set(delta.deletes))
        assert table.in_sync() == (not delta)
