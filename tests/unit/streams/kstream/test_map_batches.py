from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from airflow_kstreams.streams import KStreamBuilder, StoreSpec, Topology, TopologyError, serdes
from airflow_kstreams.streams.errors import ConfigError, RecordError
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.runtime.execution import TaskProgress
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.topology.bound_topology import BoundTopology, Output
from tests.support.topology.records import FakeRecord

IN = TopicPartition("in", 0)


SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64()), ("timestamp_ms", pa.int64())])


def builder_of_json() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def batches(function: Callable[[pa.RecordBatch], Any], **options: Any) -> BoundTopology:
    builder = builder_of_json()
    builder.stream("in").map_batches(function, **options).send_to("out")
    return BoundTopology(builder.build())


def values_only(batch: pa.RecordBatch, values: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([values], names=["value"])


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return values_only(batch, pc.multiply(batch.column("value"), 2))


def test_rows_keep_key_and_timestamp_when_only_values_are_returned() -> None:
    bound = batches(doubled)
    bound.pipe("in", "a", 1, timestamp_ms=5)
    bound.pipe("in", None, 2, timestamp_ms=4)
    assert bound.read("out") == []
    bound.flush()
    assert bound.read("out") == [Output("a", 2, 5), Output(None, 4, 4)]
    bound.flush()
    assert bound.read("out") == []


def test_batch_holds_key_value_and_timestamp_when_the_function_is_called() -> None:
    seen: list[pa.RecordBatch] = []

    def look(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch)
        return batch

    bound = batches(look)
    bound.pipe("in", "a", {"n": 1, "words": ["x"]}, timestamp_ms=5)
    bound.pipe("in", "b", None, timestamp_ms=6)
    bound.flush()
    (batch,) = seen
    assert batch.schema == pa.schema(
        [
            ("key", pa.string()),
            ("value", pa.struct([("n", pa.int64()), ("words", pa.list_(pa.string()))])),
            ("timestamp_ms", pa.int64()),
        ]
    )
    assert batch.to_pylist() == [
        {"key": "a", "value": {"n": 1, "words": ["x"]}, "timestamp_ms": 5},
        {"key": "b", "value": None, "timestamp_ms": 6},
    ]
    assert bound.read("out") == [Output("a", {"n": 1, "words": ["x"]}, 5), Output("b", None, 6)]


def test_types_are_those_of_the_schema_when_it_is_given() -> None:
    seen: list[pa.Schema] = []
    schema = pa.schema([("timestamp_ms", pa.int64()), ("key", pa.large_string()), ("value", pa.float32())])

    def look(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch.schema)
        return batch

    bound = batches(look, schema=schema)
    bound.pipe("in", "a", None, timestamp_ms=5)
    bound.flush()
    assert seen == [schema]


PLACES = [("topic", pa.string()), ("partition", pa.int64()), ("offset", pa.int64())]


@pytest.mark.parametrize("schema", [None, pa.schema([PLACES[2], *SCHEMA, *PLACES[:2]])])
def test_batch_says_where_records_were_read_when_offsets_are_asked_for(schema: pa.Schema | None) -> None:
    seen: list[pa.RecordBatch] = []

    def odd(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch)
        return batch.filter(pc.equal(pc.bit_wise_and(batch.column("offset"), 1), 1))

    builder = builder_of_json()
    stream = builder.stream("in").filter(lambda key, value: value != 4)
    stream.map_batches(odd, schema=schema, batch_size=4, with_offsets=True).send_to("out")
    task, sent = task_of(builder.build(), stop=9)
    run(task, number_records(2, 9), limit=100)

    assert [batch.column("offset").to_pylist() for batch in seen] == [[2, 3, 5, 6], [7, 8]]
    assert [{*batch.column("topic").to_pylist()} for batch in seen] == [{"in"}, {"in"}]
    assert [{*batch.column("partition").to_pylist()} for batch in seen] == [{0}, {0}]
    if schema is None:
        assert seen[0].schema.names[3:] == [name for name, _ in PLACES]
    assert {(name, seen[0].schema.field(name).type) for name, _ in PLACES} == {*PLACES}
    assert sent == [(b"k", b"%d" % number, number) for number in (3, 5, 7)]


def test_places_are_null_when_rows_belong_to_no_record() -> None:
    seen: list[pa.RecordBatch] = []

    def look(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch)
        return batch.select(["value"])

    builder = builder_of_json()
    first = builder.stream("in").map_batches(lambda batch: batch, batch_size=2)
    first.map_batches(look, with_offsets=True).send_to("out")
    bound = BoundTopology(builder.build())
    for number in range(3):
        bound.pipe("in", "a", number, timestamp_ms=number)
    bound.flush()
    (batch,) = seen
    assert batch.select([name for name, _ in PLACES]).schema == pa.schema(PLACES)
    assert all(batch.column(name).null_count == 3 for name, _ in PLACES)
    assert [row.value for row in bound.read("out")] == [0, 1, 2]


def test_batch_is_cut_when_it_is_full() -> None:
    sizes: list[int] = []

    def measure(batch: pa.RecordBatch) -> pa.RecordBatch:
        sizes.append(batch.num_rows)
        return batch

    bound = batches(measure, batch_size=3)
    for number in range(7):
        bound.pipe("in", "a", number)
    assert (sizes, len(bound.read("out"))) == ([3, 3], 6)
    bound.flush()
    assert (sizes, len(bound.read("out"))) == ([3, 3, 1], 1)


def test_rows_may_vanish_when_all_columns_are_returned() -> None:
    bound = batches(lambda batch: batch.filter(pc.greater(batch.column("value"), 1)))
    for number in range(4):
        bound.pipe("in", str(number), number, timestamp_ms=number)
    bound.flush()
    assert bound.read("out") == [Output("2", 2, 2), Output("3", 3, 3)]


def test_keys_and_timestamps_are_replaced_when_they_are_returned() -> None:
    def later(batch: pa.RecordBatch) -> pa.RecordBatch:
        times = pc.add(batch.column("timestamp_ms"), 1_000)
        return pa.RecordBatch.from_arrays(
            [times.cast(pa.int32()), batch.column("key"), batch.column("key")],
            names=["timestamp_ms", "value", "key"],
        )

    bound = batches(later)
    bound.pipe("in", "a", 1, timestamp_ms=5)
    bound.flush()
    assert bound.read("out") == [Output("a", "a", 1_005)]


def test_result_has_no_headers_when_the_batch_is_full_or_a_commit_point_comes() -> None:
    builder = builder_of_json()
    stream = builder.stream("in")
    stream.map_batches(doubled, batch_size=1).send_to("batched")
    stream.send_to("plain")
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        driver.pipe_input("in", key="a", value=1, timestamp_ms=7, headers=[("h", b"1")])
        (plain,), (batched,) = driver.read_output("plain"), driver.read_output("batched")
    # The plain sink comes after the batch was emitted: its record is as it was.
    assert (plain.headers, plain.timestamp_ms) == ([("h", b"1")], 7)
    assert (batched.value, batched.headers) == (2, [])


def test_batches_follow_each_other_when_two_nodes_have_them() -> None:
    builder = builder_of_json()
    first = builder.stream("in").map_batches(doubled, batch_size=2)
    first.map_batches(doubled, batch_size=3).send_to("out")
    bound = BoundTopology(builder.build())
    for number in range(5):
        bound.pipe("in", "a", number, timestamp_ms=number)
    bound.flush()
    assert bound.read("out") == [Output("a", 4 * number, number) for number in range(5)]


def test_table_goes_on_alone_when_its_values_wait_for_a_batch() -> None:
    builder = builder_of_json()

    def add(key: str, value: int, words: list[int]) -> list[int]:
        words.append(value)
        return words

    uncached = StoreSpec(name="lists", key_serde=serdes.string(), value_serde=serdes.json(), cached=False)
    table = builder.stream("in").group_by_key().aggregate(list, add, store=uncached)
    table.to_stream().map_batches(lambda batch: batch).send_to("out")
    bound = BoundTopology(builder.build())
    for number in range(3):
        bound.pipe("in", "a", number, timestamp_ms=number)
    bound.flush()
    assert [row.value for row in bound.read("out")] == [[0], [0, 1], [0, 1, 2]]


def task_of(topology: Topology, *, stop: int, done: int = 0, **settings: str) -> tuple[StreamTask, list[Any]]:
    sent: list[Any] = []
    task = StreamTask(
        topology,
        task_id=TaskId(subtopology=0, group=0),
        bounds={IN: (done, stop)},
        produce=lambda topic, value, key, partition, time_ms, headers: sent.append((key, value, time_ms)),
        settings=ApplicationSettings.parse("app", {k.replace("_", "."): v for k, v in settings.items()}),
        progress=TaskProgress(records_in=done),
    )
    task.restored()
    task.open()
    return task, sent


def number_records(first: int, stop: int) -> list[FakeRecord]:
    return [
        FakeRecord(at=n, key_bytes=b"k", value_bytes=b"%d" % n, timestamp_ms=n) for n in range(first, stop)
    ]


def run(task: StreamTask, fetched: list[FakeRecord], *, limit: int) -> None:
    task.add(IN, fetched)
    while task.process(limit):
        if task.commit_due(interval_elapsed=True):
            task.flush()
    task.flush()


def test_batches_are_the_same_when_a_task_resumes_at_a_commit_point() -> None:
    seen: list[list[int]] = []

    def look(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append(batch.column("value").to_pylist())
        return batch

    builder = builder_of_json()
    builder.stream("in").map_batches(look, batch_size=3).send_to("out")
    topology = builder.build()

    whole, sent = task_of(topology, stop=10, commit_every_records="4")
    run(whole, number_records(0, 10), limit=100)
    assert seen == [[0, 1, 2], [3], [4, 5, 6], [7], [8, 9]]

    seen.clear()
    resumed, again = task_of(topology, stop=10, done=4, commit_every_records="4")
    run(resumed, number_records(4, 10), limit=2)
    assert seen == [[4, 5, 6], [7], [8, 9]]
    assert again == sent[4:]


def failing(batch: pa.RecordBatch) -> pa.RecordBatch:
    raise ZeroDivisionError("by\nzero")


RETURNS: list[tuple[Callable[[pa.RecordBatch], Any], str]] = [
    (failing, "ZeroDivisionError: by zero"),
    (
        lambda batch: batch.to_pylist(),
        "TypeError: the function returned list, expected a pyarrow.RecordBatch",
    ),
    (
        lambda batch: batch.select(["key"]),
        "ValueError: the function returned the columns key; expected value",
    ),
    (
        lambda batch: pa.RecordBatch.from_arrays(
            [batch.column("value"), batch.column("key")], names=["value", "time"]
        ),
        "the function returned the columns value, time; expected value",
    ),
    (
        lambda batch: pa.RecordBatch.from_arrays([batch.column("value")] * 2, names=["value", "value"]),
        "the function returned the columns value, value; expected value",
    ),
    (
        lambda batch: batch.select(["value"]).slice(0, 1),
        "returned 1 row for 2 records without a column key and timestamp_ms",
    ),
    (
        lambda batch: batch.select(["key", "value"]).slice(0, 0),
        "returned 0 rows for 2 records without a column timestamp_ms",
    ),
    (
        lambda batch: pa.RecordBatch.from_arrays(
            [batch.column("value"), pa.array([1.5, 2.5])], names=["value", "timestamp_ms"]
        ),
        "a column timestamp_ms of double with 0 nulls",
    ),
    (
        lambda batch: pa.RecordBatch.from_arrays(
            [batch.column("value"), pa.array([1, None])], names=["value", "timestamp_ms"]
        ),
        "a column timestamp_ms of int64 with 1 nulls",
    ),
]


@pytest.mark.parametrize("batch_size", [2, 10])
@pytest.mark.parametrize("policy", ["fail", "skip", "dead-letter"])
@pytest.mark.parametrize(("function", "reason"), RETURNS)
def test_node_and_first_record_are_named_when_the_function_fails(
    function: Callable[[pa.RecordBatch], Any], reason: str, policy: str, batch_size: int
) -> None:
    builder = builder_of_json()
    builder.stream("in").map_batches(function, batch_size=batch_size).send_to("out")
    task, sent = task_of(builder.build(), stop=9, processing_exception_handler=policy)
    with pytest.raises(RecordError) as caught:
        run(task, number_records(7, 9), limit=100)
    text = caught.value.cause
    assert text.startswith(
        "task 0_0: map_batches failed for a batch of 2 records that began with in-0@7 at node "
        f"'KSTREAM-MAPBATCHES-0000000001' (map batches at {Path(__file__).name}:"
    )
    assert reason in text
    assert "\n" not in text
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("in", 0, 7)
    assert caught.value.node == "KSTREAM-MAPBATCHES-0000000001"
    assert sent == []


def test_result_alone_is_skipped_when_a_node_below_fails_and_the_policy_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    builder = builder_of_json()
    builder.stream("in").map_batches(lambda batch: batch).map_values(lambda n: 1 // n).send_to("out")
    task, sent = task_of(builder.build(), stop=3, processing_exception_handler="skip")
    with caplog.at_level(logging.ERROR):
        run(task, number_records(0, 3), limit=100)
    assert [(value, time_ms) for _, value, time_ms in sent] == [(b"1", 1), (b"0", 2)]
    assert task.progress.records_dropped == 1


class Order(msgspec.Struct):
    cents: int


@pytest.mark.parametrize(
    ("values", "options", "reason"),
    [
        ([1, "canary"], {}, "the values, of type int, str, do not fit into one Arrow type (found str: tried"),
        ([Order(1), Order(2)], {}, "the values, of type Order, do not fit into one Arrow type"),
        (
            ["canary", "canary"],
            {
                "schema": pa.schema(
                    [("key", pa.string()), ("value", pa.int64()), ("timestamp_ms", pa.int64())]
                )
            },
            "the values, of type str, do not fit into int64 (found str: tried to convert to int64)",
        ),
        ([2**70, 2**70], {}, "the values, of type int, do not fit into one Arrow type"),
    ],
)
def test_types_are_named_and_values_hidden_when_values_are_no_column(
    values: list[Any], options: Any, reason: str
) -> None:
    given = iter(values)
    builder = builder_of_json()
    stream = builder.stream("in").map_values(lambda _: next(given))
    stream.map_batches(lambda batch: batch, **options).send_to("out")
    task, _ = task_of(builder.build(), stop=2)
    with pytest.raises(RecordError) as caught:
        run(task, number_records(0, 2), limit=100)
    assert reason in caught.value.cause
    assert "canary" not in caught.value.cause
    assert "map_values" in caught.value.cause


def test_values_stay_out_of_errors_and_names_in_when_a_batch_function_fails() -> None:
    known: dict[str, int] = {}

    def looked_up(batch: pa.RecordBatch) -> pa.RecordBatch:
        known[batch.column("value").to_pylist()[0]]
        return batch

    builder = builder_of_json()
    builder.stream("in").map_values(lambda _: "canary").map_batches(looked_up).send_to("out")
    task, _ = task_of(builder.build(), stop=2)
    with pytest.raises(RecordError, match=r"KeyError: '\*\*\*'") as caught:
        run(task, number_records(0, 2), limit=100)
    assert "canary" not in str(caught.value)


def test_key_is_lost_when_it_may_change_and_kept_when_it_may_not() -> None:
    builder = KStreamBuilder()
    stream = builder.stream("in", key_serde=serdes.string(), value_serde=serdes.json())
    with pytest.raises(
        TopologyError, match=r"needs a key serde, and none is known after map_batches at .*:\d+"
    ):
        stream.map_batches(doubled).send_to("out", value_serde=serdes.json())
    kept = stream.map_batches(doubled, changes_key=False)
    kept.send_to("out", value_serde=serdes.json())
    with pytest.raises(TopologyError, match="needs a value serde, and none is known after map_batches"):
        kept.send_to("elsewhere")


def test_group_repartitions_when_the_key_may_change_and_only_then() -> None:
    def counts(*, changes_key: bool) -> Topology:
        builder = builder_of_json()
        stream = builder.stream("in").map_batches(doubled, changes_key=changes_key)
        stream.group_by_key().count(store="counts")
        return builder.build()

    assert [topic.name for topic in counts(changes_key=True).internal_topics] == ["counts-repartition"]
    assert counts(changes_key=False).internal_topics == ()


def test_promise_does_not_undo_an_earlier_change_when_the_key_had_changed_before() -> None:
    builder = builder_of_json()
    stream = builder.stream("in").select_key(lambda key, value: value).map_batches(doubled, changes_key=False)
    stream.group_by_key().count(store="counts")
    assert [topic.name for topic in builder.build().internal_topics] == ["counts-repartition"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": 1.5}, "batch_size=1.5"),
        ({"schema": {"value": "int64"}}, "a schema that is not of the columns key, value, timestamp_ms"),
        ({"schema": pa.schema([("value", pa.int64())])}, "a schema that is not of the columns"),
        (
            {"schema": SCHEMA, "with_offsets": True},
            "of the columns key, value, timestamp_ms, topic, partition, offset, with",
        ),
        (
            {"schema": pa.schema([("key", pa.int8()), ("value", pa.int8()), ("timestamp_ms", pa.int32())])},
            "with timestamp_ms int64",
        ),
    ],
)
def test_argument_is_refused_with_the_users_line_when_it_cannot_be(options: Any, reason: str) -> None:
    with pytest.raises(TopologyError) as caught:
        builder_of_json().stream("in").map_batches(doubled, **options)
    assert caught.value.cause.startswith(f"map_batches at {__file__}:")
    assert reason in caught.value.cause


def test_argument_is_refused_with_the_users_line_when_it_is_no_function() -> None:
    with pytest.raises(TopologyError, match=f"map_batches at {__file__}:\\d+ is given NoneType"):
        builder_of_json().stream("in").map_batches(None)  # type: ignore[arg-type]


def test_extra_is_named_when_pyarrow_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = builder_of_json()
    builder.stream("in").map_batches(doubled).send_to("out")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match="needs pyarrow, which is not installed here") as caught:
        TopologyTestDriver(builder.build(), application_id="app")
    assert "airflow-kstreams[spark]" in caught.value.fix
