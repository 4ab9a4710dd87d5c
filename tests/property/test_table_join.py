from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from airflow_kstreams.streams import KStreamBuilder, StoreSpec, serdes
from tests.support.topology.bound_topology import BoundTopology

KEYS = st.sampled_from(["a", "b", None])
VALUES = st.none() | st.integers(0, 9)
#: (topic, key, value) of a record, or a commit point.
STEPS = st.lists(st.tuples(st.sampled_from(["s", "t"]), KEYS, VALUES) | st.just("flush"), max_size=40)


def _expected(steps: list[Any], *, left: bool) -> list[tuple[Any, ...]]:
    """Look for the table's value of each stream record among all table records before it."""
    results: list[tuple[Any, ...]] = []
    for at, step in enumerate(steps):
        if step == "flush" or step[0] == "t" or step[2] is None:
            continue
        _, key, value = step
        before = [s[2] for s in steps[:at] if s != "flush" and s[:2] == ("t", key)]
        found = before[-1] if before and key is not None else None
        if found is not None or left:
            results.append((key, [value, found], at))
    return results


@given(STEPS, st.booleans(), st.booleans())
def test_join_equals_a_search_of_the_log_when_records_mix_anyhow(
    steps: list[Any], cached: bool, rekeyed: bool
) -> None:
    spec = StoreSpec(name="t", key_serde=serdes.string(), value_serde=serdes.json(), cached=cached)
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    table = builder.table("t", store=spec)
    stream = builder.stream("s")
    if rekeyed:
        stream = stream.select_key(lambda key, value: key)
    stream.join(table, lambda left, right: [left, right]).send_to("inner")
    stream.left_join(table, lambda left, right: [left, right]).send_to("left")
    table.to_stream().send_to("changes")
    bound = BoundTopology(builder.build())
    for at, step in enumerate(steps):
        if step == "flush":
            bound.flush()
        else:
            bound.pipe(step[0], step[1], step[2], timestamp_ms=at)
    assert bound.read("inner") == _expected(steps, left=False)
    assert bound.read("left") == _expected(steps, left=True)


@given(STEPS, st.booleans())
def test_table_equals_the_fold_of_its_changes_when_a_commit_point_has_passed(
    steps: list[Any], cached: bool
) -> None:
    spec = StoreSpec(name="t", key_serde=serdes.string(), value_serde=serdes.json(), cached=cached)
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    builder.table("t", store=spec).to_stream().send_to("changes")
    bound = BoundTopology(builder.build())
    model: dict[str, int] = {}
    seen: dict[str, int] = {}
    for step in [*steps, "flush"]:
        if step != "flush" and step[0] == "t":
            _, key, value = step
            bound.pipe("t", key, value)
            if value is not None and key is not None:
                model[key] = value
            else:
                model.pop(key, None)
        elif step == "flush":
            bound.flush()
            for change in bound.read("changes"):
                assert change.value is not None or change.key in seen
                seen.pop(change.key, None)
                if change.value is not None:
                    seen[change.key] = change.value
            assert seen == model == dict(bound.stores["t"].all())
