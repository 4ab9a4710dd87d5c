"""A fold that begins with a record's own value and changes its aggregate in place: no one else sees it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from airflow_kstreams.streams import (
    HoppingWindow,
    KGroupedStream,
    KStreamBuilder,
    KTable,
    Serde,
    SlidingWindow,
    StoreSpec,
    Topology,
    serdes,
)
from airflow_kstreams.testing import TopologyTestDriver

#: (grouped stream, store) -> table
Fold = Callable[[KGroupedStream, str], KTable]


def _reduced(total: dict[str, int], new: dict[str, int]) -> dict[str, int]:
    total["n"] += new["n"]
    return total


def _aggregated(key: str, new: dict[str, int], total: dict[str, int] | None) -> dict[str, int]:
    return new if total is None else _reduced(total, new)


def _nothing() -> Any:
    return None


def _named(store: str, key: str, value: object) -> str:
    return store


FOLDS: dict[str, Fold] = {
    "reduce": lambda group, store: group.reduce(_reduced, store=store),
    "aggregate": lambda group, store: group.aggregate(_nothing, _aggregated, store=store),
    "cogroup": lambda group, store: group.cogroup(_aggregated).aggregate(_nothing, store=store),
}
WINDOWED: dict[str, Fold] = {
    "reduce": lambda group, store: group.windowed_by(HoppingWindow(size_ms=10, advance_ms=5)).reduce(
        _reduced, store=store
    ),
    "aggregate": lambda group, store: group.windowed_by(HoppingWindow(size_ms=10, advance_ms=5)).aggregate(
        _nothing, _aggregated, store=store
    ),
    "cogroup": lambda group, store: (
        group.cogroup(_aggregated)
        .windowed_by(HoppingWindow(size_ms=10, advance_ms=5))
        .aggregate(_nothing, store=store)
    ),
    "sliding": lambda group, store: group.windowed_by(SlidingWindow(size_ms=5, grace_ms=0)).reduce(
        _reduced, store=store
    ),
}


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def _run(topology: Topology, *, alone: bool) -> dict[Any, Any]:
    """Return the last value of each key of the output, of three records in one run or in a run each."""
    with TopologyTestDriver(topology, application_id="app") as driver:
        records = [("a", {"n": 1}, 12), ("a", {"n": 2}, 13), ("a", {"n": 4}, 17)]
        for run in [[record] for record in records] if alone else [records]:
            driver.pipe_records("in", run)
        return {record.key: record.value for record in driver.read_output("out")}


@pytest.mark.parametrize("name", WINDOWED)
def test_windows_that_begin_with_one_value_go_on_alone(name: str) -> None:
    builder = _builder()
    table = WINDOWED[name](builder.stream("in").group_by_key(), "w")
    table.to_stream().map(lambda key, value: (f"{key.start_ms}", value)).send_to("out")
    found = _run(builder.build(), alone=False)
    if name == "sliding":
        assert found == {"7": {"n": 1}, "8": {"n": 3}, "12": {"n": 7}, "13": {"n": 6}, "14": {"n": 4}}
    else:
        assert found == {"5": {"n": 3}, "10": {"n": 7}, "15": {"n": 4}}


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("name", FOLDS)
def test_two_folds_of_one_stream_and_a_table_of_it_do_not_see_each_other(name: str, alone: bool) -> None:
    builder = _builder()
    stream = builder.stream("in")
    for store in ("x", "y"):
        table = FOLDS[name](stream.group_by_key(), store)
        table.to_stream().select_key(partial(_named, store)).send_to("out")
    newest = stream.filter(lambda key, value: value["n"] == 1).to_table(store="first")
    newest.join(FOLDS[name](stream.group_by_key(), "z"), lambda one, total: [one, total]).to_stream().send_to(
        "out"
    )
    found = _run(builder.build(), alone=alone)
    assert found == {"x": {"n": 7}, "y": {"n": 7}, "a": [{"n": 1}, {"n": 7}]}


class _Sealed(dict[str, int]):
    """A value that cannot be copied."""

    def __deepcopy__(self, memo: object) -> _Sealed:
        raise TypeError("it stays here")


def test_value_that_cannot_be_copied_stands_for_itself() -> None:
    plain = serdes.json()
    sealed = Serde(
        id="sealed", serialize=plain.serialize, deserialize=lambda data: _Sealed(plain.deserialize(data))
    )
    builder = _builder()
    grouped = builder.stream("in", value_serde=sealed).group_by_key()
    spec = StoreSpec(name="s", key_serde=serdes.string(), value_serde=sealed, cached=False)
    sums = grouped.reduce(lambda total, new: _Sealed(n=total["n"] + new["n"]), store=spec)
    sums.to_stream().send_to("out")
    assert _run(builder.build(), alone=False) == {"a": {"n": 7}}
