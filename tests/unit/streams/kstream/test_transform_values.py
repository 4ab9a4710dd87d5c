from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStreamBuilder,
    ProcessorContext,
    StoreSpec,
    TopologyError,
    ValueTransformer,
    WindowStoreSpec,
    serdes,
)
from airflow_kstreams.testing import TopologyTestDriver


def _builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def _spec(name: str) -> StoreSpec:
    return StoreSpec(name=name, key_serde=serdes.string(), value_serde=serdes.json(), cached=False)


def _spec_of_counts() -> StoreSpec:
    return StoreSpec(name="c", key_serde=serdes.string(), value_serde=serdes.int64(), cached=False)


class Sees(ValueTransformer):
    """Returns what it sees."""

    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def transform(self, key: Any, value: Any) -> Any:
        return [key, value, self._context.timestamp_ms]


class Counts(ValueTransformer):
    """Counts the changes of each key; deletes a key at its third change."""

    def __init__(self, store: str = "seen") -> None:
        self._store = store

    def init(self, context: ProcessorContext) -> None:
        self._seen = context.state_store(self._store)

    def transform(self, key: Any, value: Any) -> Any:
        seen = (self._seen.get(key) or 0) + 1
        self._seen.put(key, seen)
        return None if seen == 3 else seen


class Refuses(ValueTransformer):
    """Returns every value but one."""

    def transform(self, key: Any, value: Any) -> Any:
        if value == "bad":
            raise ValueError
        return value


class Names(ValueTransformer):
    """Gives a value to keys that have none."""

    def transform(self, key: Any, value: Any) -> Any:
        return value or "none"


class Forwards(ValueTransformer):
    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def transform(self, key: Any, value: Any) -> Any:
        self._context.forward(key, value)


def _values(builder: KStreamBuilder, *values: Any) -> list[Any]:
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for number, value in enumerate(values):
            with driver.run():
                driver.pipe_input("in", key="a", value=value, timestamp_ms=number)
        return [record.value for record in driver.read_output("out")]


def test_transformer_sees_key_value_time_and_deletions() -> None:
    builder = _builder()
    builder.table("in", store=_spec("t")).transform_values(Sees).to_stream().send_to("out")
    assert _values(builder, 1, None) == [["a", 1, 0], ["a", None, 1]]


@pytest.mark.parametrize("kept", [False, True])
def test_transformers_store_goes_on_from_run_to_run(kept: bool) -> None:
    builder = _builder()
    table = builder.table("in", store=_spec("t"))
    counted = table.transform_values(Counts, _spec("seen"), store=_spec("kept") if kept else None)
    counted.to_stream().send_to("out")
    assert _values(builder, 1, 2, 3, 4) == [1, 2, None, 4]


def test_tables_below_are_right_when_the_result_is_kept() -> None:
    builder = _builder()
    table = builder.table("in", store=_spec("t"))
    counted = table.transform_values(Counts, _spec("seen"), store=_spec("kept"))
    grouped = counted.group_by(lambda key, count: ("all", count))
    grouped.reduce(lambda total, count: total + count, lambda total, count: total - count)
    counted.filter(lambda key, count: count == 2).to_stream().send_to("out")
    assert _values(builder, 1, 2, 3, 4) == [2, None]


def test_tables_below_get_old_values_when_the_transformer_has_no_stores() -> None:
    builder = _builder()
    seen = builder.table("in", store=_spec("t")).transform_values(Sees)
    seen.filter(lambda key, found: found[1] == 2).to_stream().send_to("out")
    assert _values(builder, 1, 2, 3, 4) == [["a", 2, 1], None]


def test_tables_below_are_refused_when_the_transformer_has_stores() -> None:
    builder = _builder()
    counted = builder.table("in").transform_values(Counts, _spec("seen"))
    with pytest.raises(TopologyError, match="would make another one") as caught:
        counted.filter(lambda key, count: True)
    assert f"filter at {__file__}:" in caught.value.cause
    with pytest.raises(TopologyError, match="would make another one"):
        builder.stream("orders").join(counted, lambda order, count: count)


def test_transformers_own_store_cannot_follow_its_keys() -> None:
    builder = _builder()
    builder.table("in", store="t").transform_values(Counts, _spec("seen"), store="kept")
    (sub,) = builder.build().plan("app").subtopologies
    unfit = {changelog: bool(keys.unfit) for changelog, keys in sub.entry_keys.items()}
    assert unfit == {"app-t-changelog": False, "app-seen-changelog": True, "app-kept-changelog": False}


def test_transformer_is_refused_when_it_forwards() -> None:
    builder = _builder()
    builder.table("in").transform_values(Forwards).to_stream().send_to("out")
    with pytest.raises(Exception, match="it makes the values of a table"):
        _values(builder, 1)


class Waits(ValueTransformer):
    async def transform(self, key: Any, value: Any) -> Any:
        return value


def test_transformer_is_refused_in_its_task_when_it_waits() -> None:
    builder = _builder()
    builder.table("in").transform_values(lambda: Waits()).to_stream().send_to("out")
    with pytest.raises(TopologyError, match=r"transformer '.*': Waits\.transform is async"):
        TopologyTestDriver(builder.build(), application_id="app")


def test_definition_is_refused_when_it_makes_no_transformer() -> None:
    table = _builder().table("in")
    for wrong, text in (
        (Sees(), "an instance of Sees"),
        (3, "cannot be called"),
        (lambda value: value, r"<lambda> that takes arguments, .*\n.*values goes to map_values"),
        (dict, "which is no ValueTransformer"),
        (Waits, "Waits.transform is async"),
    ):
        with pytest.raises(TopologyError, match=text):
            table.transform_values(wrong)  # type: ignore[arg-type]
    table.transform_values(partial(Counts, "seen"), _spec("seen"))
    window = WindowStoreSpec(name="w", key_serde=serdes.string(), value_serde=serdes.json(), retention_ms=10)
    with pytest.raises(TopologyError, match="as a WindowStoreSpec"):
        table.transform_values(Counts, window)


def test_record_keeps_its_time_when_a_transformer_fails_on_an_earlier_value() -> None:
    builder = _builder()
    table, stream = builder.table("in", store=_spec("t")), builder.stream("q")
    stream.join(table.transform_values(Refuses), lambda left, right: right).send_to("joined")
    stream.send_to("out")
    settings = {"processing.exception.handler": "skip"}
    with TopologyTestDriver(builder.build(), application_id="app", settings=settings) as driver:
        driver.pipe_input("in", key="a", value="bad", timestamp_ms=100)
        driver.pipe_input("q", key="a", value="q", timestamp_ms=300)
        assert [record.timestamp_ms for record in driver.read_output("out")] == [300]
        assert driver.read_output("joined") == []


def test_table_below_counts_right_when_values_of_absent_keys_are_kept() -> None:
    builder = _builder()
    named = builder.table("in", store=_spec("t")).transform_values(Names, store=_spec("named"))
    named.group_by(lambda key, value: (value, 1)).count(store=_spec_of_counts()).to_stream().send_to(
        "out", value_serde=serdes.int64()
    )
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for key, value in (("a", "x"), ("a", None), ("b", "x")):
            driver.pipe_input("in", key=key, value=value, timestamp_ms=0)
        found = [
            (record.key, record.value) for record in driver.read_output("out", value_serde=serdes.int64())
        ]
    assert found == [("x", 1), ("x", 0), ("none", 1), ("x", 1)]
