"""A source's loop gives what its nodes' closures give: the same bytes in the same order, the same failure.

The yardstick is the loop that every other task has, over closures alone.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams import (
    HoppingWindow,
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    RecordContext,
    SessionWindow,
    SlidingWindow,
    StoreSpec,
    Topology,
    TumblingWindow,
    serdes,
    timestamps,
)
from airflow_kstreams.streams.codegen import loop_code
from airflow_kstreams.streams.errors import RecordError, StoreSerdeError
from airflow_kstreams.streams.kstream.operators import map_batches
from airflow_kstreams.streams.ports import Record, TimedRecords, TopicPartition
from airflow_kstreams.streams.runtime import processor_topology
from airflow_kstreams.streams.runtime.execution import TaskProgress
from airflow_kstreams.streams.runtime.processor_topology import ProcessorTopology
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId
from airflow_kstreams.streams.serde.base import Serde
from airflow_kstreams.streams.settings import ApplicationSettings
from tests.support.examples import examples
from tests.support.topology.bytes_columns import bytes_columns
from tests.support.topology.record_by_record import record_by_record
from tests.support.topology.records import FakeRecord

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
#: A value at which every function of a user fails.
POISON = 13


def size(value: Any) -> int:
    if value == POISON:
        raise ZeroDivisionError(f"poison {value}")
    return len(str(value))


def add_one(value: Any) -> Any:
    return value if value is None else [value, size(value)]


def noted(key: Any, value: Any) -> None:
    size(value)


STEPS: dict[str, Callable[[Any, int], Any]] = {
    "filter": lambda stream, n: stream.filter(lambda k, v: size(v) % (n + 2) != 0),
    "filter_not": lambda stream, n: stream.filter_not(lambda k, v: size(v) % (n + 2) == 0),
    "peek": lambda stream, n: stream.peek(noted),
    "map": lambda stream, n: stream.map(lambda k, v: (None if n == 2 else str(k), add_one(v))),
    "map_values": lambda stream, n: stream.map_values(add_one),
    "map_to_none": lambda stream, n: stream.map_values(lambda v: None if size(v) == n else v),
    "flat_map": lambda stream, n: stream.flat_map(lambda k, v: [(k, v)] * (size(v) % 3)),
    "flat_map_values": lambda stream, n: stream.flat_map_values(lambda v: [v, [v]][: size(v)]),
    "select_key": lambda stream, n: stream.select_key(lambda k, v: str(v)),
    "wrong_tuple": lambda stream, n: stream.map(lambda k, v: (k, v) if size(v) < 6 else k),
    "branch": lambda stream, n: stream.branch(lambda k, v: size(v) % 2 == 0, lambda k, v: v is not None)[
        n % 2
    ],
    "map_placed": lambda stream, n: stream.map(lambda k, v, context: (k, told(context, v))),
    "filter_placed": lambda stream, n: stream.filter(
        lambda k, v, context: (context.timestamp_ms + context.offset + size(v)) % 3 != n
    ),
    "split_placed": lambda stream, n: [
        *stream.split(
            none=lambda k, v, context: not context.headers,
            odd=lambda k, v, context: context.offset % 2 == 1,
            default="rest",
        ).values()
    ][n],
    "set_headers": lambda stream, n: stream.set_headers(
        lambda k, v, context: [*context.headers, (str(n), str(size(v)).encode())]
    ),
    "set_timestamp": lambda stream, n: stream.set_timestamp(
        lambda k, v, context: context.timestamp_ms + size(v) - n
    ),
    "both_times": lambda stream, n: stream.merge(stream.set_timestamp(lambda k, v: size(v))),
    "merge_with_itself": lambda stream, n: stream.merge(stream.map_values(add_one)),
    "shows": lambda stream, n: shown(stream, n),
    "batched": lambda stream, n: stream.map_values(poisoned_size).map_batches(
        lambda batch: batch.slice(min(n, 1)), batch_size=n + 1
    ),
}


def poisoned_size(value: Any) -> int:
    """Return a number that is poison to functions behind a batch for some values."""
    return size(value) + POISON - 2


def told(context: RecordContext, value: Any) -> Any:
    place = [context.topic, context.partition, context.offset, context.timestamp_ms]
    return [*place, [name for name, _ in context.headers], value, size(value)]


def shown(stream: Any, n: int) -> Any:
    stream.send_to(f"shown{n}", **written())
    return stream


def written() -> dict[str, Any]:
    return {"key_serde": serdes.string(), "value_serde": serdes.json()}


def spec(cached: bool) -> StoreSpec:
    return StoreSpec(name="t", key_serde=serdes.string(), value_serde=serdes.json(), cached=cached)


def cents(value: Any) -> int:
    return size(value)


TABLES: dict[str, Callable[[Any, StoreSpec], Any]] = {
    "count": lambda stream, store: stream.group_by_key().count(store=store),
    "reduce": lambda stream, store: stream.group_by_key().reduce(
        lambda total, v: None if size(total) > 8 else [size(total), v], store=store
    ),
    "aggregate": lambda stream, store: stream.group_by_key().aggregate(
        lambda: 0, lambda k, v, total: None if size(v) == 3 else total + size(v), store=store
    ),
}


def folded(windows: Any, store: StoreSpec, *merger: Any) -> Any:
    return windows.aggregate(
        lambda: 0, lambda k, v, total: None if size(v) == 3 else total + size(v), *merger, store=store
    )


def joined(kind: str) -> Callable[[Any, Any, StoreSpec], Any]:
    def make(left: Any, right: Any, store: StoreSpec) -> Any:
        sides = (
            left.with_window(SlidingWindow(size_ms=3, grace_ms=2)),
            right.with_window(SlidingWindow(size_ms=4)),
        )
        return getattr(sides[0], kind)(sides[1], lambda v, w: [size(v), w], name="j")

    return make


#: What goes by stream time, given two streams and the store of its table.
TIMED: dict[str, Callable[[Any, Any, StoreSpec], Any]] = {
    "tumbling": lambda left, right, store: folded(
        left.merge(right).group_by_key().windowed_by(TumblingWindow(size_ms=5, grace_ms=2)), store
    ).to_stream(),
    "final": lambda left, right, store: (
        folded(
            left.merge(right).group_by_key().windowed_by(HoppingWindow(size_ms=6, advance_ms=2, grace_ms=1)),
            store,
        )
        .suppress()
        .to_stream()
    ),
    "session": lambda left, right, store: folded(
        left.merge(right).group_by_key().windowed_by(SessionWindow(gap_ms=4, grace_ms=1)),
        store,
        lambda k, v, w: v + w,
    ).to_stream(),
    "sliding": lambda left, right, store: folded(
        left.merge(right).group_by_key().windowed_by(SlidingWindow(size_ms=4, grace_ms=3)), store
    ).to_stream(),
    "final_sliding": lambda left, right, store: (
        folded(left.merge(right).group_by_key().windowed_by(SlidingWindow(size_ms=4, grace_ms=1)), store)
        .suppress()
        .to_stream()
    ),
    **{kind: joined(kind) for kind in ("join", "join_prior", "left_join", "outer_join")},
}

keys = st.sampled_from([b"x", b"y", "ä".encode(), b"", None])
values = st.sampled_from([b"1", b" 22 ", b'"text"', b"[1]", b"{}", None])
#: A key that is no text, a value that is no JSON, one that users' functions do not like.
bad = st.sampled_from([(b"\xff", b"1"), (b"x", b"{"), (b"\xff", b"{"), (b"y", str(POISON).encode())])
headers = st.sampled_from([None, [("h", b"1"), ("h", None)]])
records = st.lists(st.tuples(st.tuples(keys, values), st.integers(0, 30), headers), max_size=12)
steps = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 2)), max_size=5)
numbers = st.integers(0, 12)
POLICIES = st.sampled_from(["fail", "skip", "dead-letter"])


def policies(deserialization: str, processing: str) -> dict[str, str]:
    return {
        "deserialization.exception.handler": deserialization,
        "processing.exception.handler": processing,
    }


def topology(
    chain: Sequence[tuple[str, int]], table: str | None, cached: bool, value_serde: Serde
) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    stream = builder.stream("a", value_serde=value_serde)
    stream.send_to("raw", key_serde=serdes.string(), value_serde=value_serde)
    stream = shaped = stream.filter(lambda k, v: True)
    for step, n in chain:
        shaped = STEPS[step](shaped, n)
    shaped.send_to("out", **written())
    if table is not None:
        counted = TABLES[table](stream, spec(cached))
        counted.to_stream().send_to("table", **written())
        counted.to_stream().map_values(add_one).send_to("changes", **written())
    return builder.build()


def topology_of_two(chain: Sequence[tuple[str, int]], table: str, cached: bool) -> Topology:
    """Return what records of two topics go through: alone, merged, and each other's table."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    left, right = builder.stream("a"), builder.stream("b", value_serde=serdes.string())
    shaped = left.filter(lambda k, v: True)
    for step, n in chain:
        shaped = STEPS[step](shaped, n)
    shaped.merge(right.map_values(add_one)).send_to("out", **written())
    counted = TABLES[table](left, spec(cached))
    counted.to_stream().send_to("table", **written())
    right.left_join(counted, lambda v, total: [v, size(total)]).send_to("joined", **written())
    return builder.build()


def timed_topology(chain: Sequence[tuple[str, int]], kind: str, cached: bool) -> Topology:
    """Return what records go through beside something that goes by stream time."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    left, right = builder.stream("a"), builder.stream("b")
    shaped = left.filter(lambda k, v: True)
    for step, n in chain:
        shaped = STEPS[step](shaped, n)
    shaped.send_to("out", **written())
    timed = TIMED[kind](left.filter(lambda k, v: True), right, spec(cached))
    timed.map(lambda k, v: (str(k), add_one(v))).send_to("timed", **written())
    return builder.build()


@contextmanager
def closures_alone() -> Iterator[None]:
    """Have tasks run the yardstick."""
    with (
        patch.object(ProcessorTopology, "_looks_at_each_record", True),
        patch.object(processor_topology, "source_loop", record_by_record),
        patch.object(loop_code, "_MOST_NODES", 0),
    ):
        yield


def outcome(
    built: Topology,
    logs: Mapping[TopicPartition, Sequence[Record]],
    chunk: int,
    handlers: Mapping[str, str],
    steps: Sequence[str],
) -> list[Any]:
    """Run a task, and return everything that it did.

    :param steps: what of a commit follows each chunk.
    """
    done: list[Any] = []

    def produce(*written: Any) -> None:
        *record, found = written
        # A dead letter tells the calls that led to its error.
        done.append((*record, [h for h in found or [] if h[0] != "__streams.errors.stacktrace"]))

    task = StreamTask(
        built,
        task_id=TaskId(subtopology=0, group=0),
        bounds={partition: (0, len(log)) for partition, log in logs.items()},
        produce=produce,
        settings=ApplicationSettings.parse("app", dict(handlers)),
        progress=TaskProgress(),
    )
    try:
        task.restored()
        task.open()
        for partition, log in logs.items():
            task.add(partition, log)
        for step in itertools.cycle(steps):
            if not task.process(chunk):
                break
            done.append(task.progress)
            if "flush" in step:
                task.flush()
            if "drain" in step:
                done.extend((changelog, list(changes)) for changelog, _, _, changes in task.changes())
        task.stop()
        task.close_processors()
        done.extend((changelog, list(changes)) for changelog, _, _, changes in task.changes())
    except RecordError as error:
        done.append((error.cause, error.topic, error.partition, error.offset, error.node))
    except StoreSerdeError as error:  # bytes in a store of JSON
        done.append(str(error))
    done.append([list(store.all()) for store in task.stores.values()])
    return done


@settings(max_examples=examples(300), deadline=None)
@given(
    chain=steps,
    table=st.sampled_from([None, *TABLES]),
    cached=st.booleans(),
    value_serde=st.sampled_from([serdes.json(), serdes.bytes(), serdes.string(), serdes.json(int)]),
    good=records,
    worse=st.one_of(st.none(), st.tuples(bad, numbers)),
    chunk=st.integers(1, 6),
    handlers=st.builds(policies, POLICIES, POLICIES),
    commits=st.lists(st.sampled_from(["flush, drain", "flush", "drain", ""]), min_size=1, max_size=4),
)
@example(
    chain=[("merge_with_itself", 0)] * 12,  # more ways than a loop holds nodes
    table=None,
    cached=True,
    value_serde=serdes.json(),
    good=[((b"x", b"1"), 1, None)],
    worse=((b"y", b"13"), 1),
    chunk=2,
    handlers={},
    commits=["flush, drain"],
)
@example(
    chain=[("flat_map_values", 0)] * 14,  # deeper than a loop goes
    table="reduce",
    cached=True,
    value_serde=serdes.json(),
    good=[((b"x", b"1"), 1, None)],
    worse=None,
    chunk=2,
    handlers=policies("dead-letter", "skip"),
    commits=["flush, drain"],
)
def test_outcome_is_the_same_when_nodes_are_lines_of_a_loop(
    chain: Any,
    table: str | None,
    cached: bool,
    value_serde: Serde,
    good: Any,
    worse: Any,
    chunk: int,
    handlers: Mapping[str, str],
    commits: Sequence[str],
) -> None:
    logs = {A: log_of("a", good, worse)}
    fused = outcome(topology(chain, table, cached, value_serde), logs, chunk, handlers, commits)
    with closures_alone():
        called = outcome(topology(chain, table, cached, value_serde), logs, chunk, handlers, commits)
    assert fused == called


@settings(max_examples=examples(300), deadline=None)
@given(
    chain=steps,
    table=st.sampled_from(sorted(TABLES)),
    cached=st.booleans(),
    left=records,
    right=records,
    worse=st.one_of(st.none(), st.tuples(bad, numbers)),
    chunk=st.integers(1, 12),
    handlers=st.builds(policies, POLICIES, POLICIES),
)
def test_outcome_is_the_same_when_records_of_two_topics_are_run_together(
    chain: Any,
    table: str,
    cached: bool,
    left: Any,
    right: Any,
    worse: Any,
    chunk: int,
    handlers: Mapping[str, str],
) -> None:
    logs = {A: log_of("a", left, worse), B: log_of("b", right, None)}
    mixed = outcome(topology_of_two(chain, table, cached), logs, chunk, handlers, ["flush, drain"])
    with patch.object(ProcessorTopology, "_looks_at_each_record", True):
        called = outcome(topology_of_two(chain, table, cached), logs, chunk, handlers, ["flush, drain"])
    assert mixed == called


@settings(max_examples=examples(300), deadline=None)
@given(
    chain=steps,
    kind=st.sampled_from(sorted(TIMED)),
    cached=st.booleans(),
    left=records,
    right=records,
    worse=st.one_of(st.none(), st.tuples(bad, numbers)),
    chunk=st.integers(1, 12),
    handlers=st.builds(policies, POLICIES, POLICIES),
)
@example(
    chain=[],
    kind="left_join",
    cached=False,
    left=[((b"x", b"13"), 1, None), ((b"y", b"1"), 30, None)],  # the joiner fails as time passes
    right=[],
    worse=None,
    chunk=2,
    handlers={},
)
def test_outcome_is_the_same_when_what_goes_by_stream_time_is_in_a_loop(
    chain: Any,
    kind: str,
    cached: bool,
    left: Any,
    right: Any,
    worse: Any,
    chunk: int,
    handlers: Mapping[str, str],
) -> None:
    logs = {A: log_of("a", left, worse), B: log_of("b", right, None)}
    fused = outcome(timed_topology(chain, kind, cached), logs, chunk, handlers, ["flush, drain"])
    with closures_alone():
        called = outcome(timed_topology(chain, kind, cached), logs, chunk, handlers, ["flush, drain"])
    assert fused == called


def only_fakes(records: Sequence[Record]) -> Any:
    """Make columns as the library does, which knows no record of another class."""
    if {*map(type, records)} != {FakeRecord}:
        raise TypeError("a record of another class")
    return bytes_columns(records)


@settings(max_examples=examples(400), deadline=None)
@given(
    chain=steps,
    serdes_=st.tuples(*[st.sampled_from([serdes.bytes(), serdes.string()])] * 2),
    batch_size=st.integers(1, 9),
    returns=st.sampled_from([["value"], ["key", "value"], ["value", "timestamp_ms"], []]),
    typed=st.booleans(),
    good=records,
    worse=st.one_of(st.none(), st.tuples(bad, numbers)),
    undated=st.booleans(),
    few=st.integers(1, 4),
    chunk=st.integers(1, 8),
    handlers=st.builds(policies, POLICIES, POLICIES),
    commits=st.lists(st.sampled_from(["flush, drain", ""]), min_size=1, max_size=4),
)
@example(
    chain=[],
    serdes_=(serdes.string(), serdes.bytes()),
    batch_size=5,
    returns=["value"],
    typed=False,
    good=[((b"x", b"%d" % n), n, None) for n in range(11)],
    worse=((b"\xff", b"1"), 3),  # records come one by one within a batch, and at once again
    undated=False,
    few=2,
    chunk=2,
    handlers=policies("skip", "fail"),
    commits=[""],
)
def test_outcome_is_the_same_when_batches_are_columns_of_fetches(
    chain: Any,
    serdes_: tuple[Serde, Serde],
    batch_size: int,
    returns: list[str],
    typed: bool,
    good: Any,
    worse: Any,
    undated: bool,
    few: int,
    chunk: int,
    handlers: Mapping[str, str],
    commits: Sequence[str],
) -> None:
    seen: list[list[Any]] = [[], []]

    def built(which: int) -> Topology:
        def look(batch: pa.RecordBatch) -> pa.RecordBatch:
            batch.validate(full=True)
            seen[which].append((batch.schema, batch.to_pylist()))
            return batch.select(returns) if returns else batch.slice(1)

        kinds = [pa.string() if serde == serdes.string() else pa.binary() for serde in serdes_]
        schema = pa.schema([*zip(("key", "value"), kinds, strict=True), ("timestamp_ms", pa.int64())])
        builder = KStreamBuilder()
        stream = builder.stream("a", key_serde=serdes_[0], value_serde=serdes_[1])
        shaped = stream.map_batches(look, batch_size=batch_size, schema=schema if typed else None)
        shaped.send_to("raw", key_serde=serdes_[0], value_serde=serdes_[1])
        shaped = shaped.map(lambda k, v: (str(k), str(v)))
        for step, n in chain:
            shaped = STEPS[step](shaped, n)
        shaped.send_to("out", **written())
        return builder.build()

    log = log_of("a", good, worse)
    if undated and log:
        log[-1] = dataclasses.replace(log[-1], timestamp_ms=-1)
    timed = TimedRecords(log, [record.timestamp_ms for record in log], only_fakes)
    with patch.object(map_batches, "_FEW", few):
        in_columns = outcome(built(0), {A: timed}, chunk, handlers, commits)
    with closures_alone():
        called = outcome(built(1), {A: log}, chunk, handlers, commits)
    assert in_columns == called
    assert seen[0] == seen[1]


class Asking(Processor):
    """Asks for a commit behind some records."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: ProcessorRecord) -> None:
        self.context.forward(record.key, record.value)
        if size(record.value) % 2:
            self.context.commit()


@settings(max_examples=examples(200), deadline=None)
@given(
    chain=steps,
    asks=st.booleans(),
    ahead=st.booleans(),
    kind=st.sampled_from([None, *TIMED]),
    left=records,
    right=records,
    worse=st.one_of(st.none(), st.tuples(bad, numbers)),
    chunk=st.integers(1, 12),
    handlers=st.builds(policies, POLICIES, POLICIES),
)
def test_outcome_is_the_same_when_commits_are_asked_for_and_timestamps_lie_in_values(
    chain: Any,
    asks: bool,
    ahead: bool,
    kind: str | None,
    left: Any,
    right: Any,
    worse: Any,
    chunk: int,
    handlers: Mapping[str, str],
) -> None:
    def built() -> Topology:
        builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
        extractor = timestamps.extract(lambda record: 3 * size(record.value) - 3, invalid="skip")
        shaped = source = builder.stream("a", timestamps=extractor if ahead else None)
        other = builder.stream("b")
        for step, n in chain:
            shaped = STEPS[step](shaped, n)
        shaped = shaped.merge(other)
        (shaped.process(Asking) if asks else shaped).send_to("out", **written())
        if kind is not None:
            timed = TIMED[kind](source.filter(lambda k, v: True), other, spec(cached=True))
            timed.map(lambda k, v: (str(k), add_one(v))).send_to("timed", **written())
        return builder.build()

    logs = {A: log_of("a", left, worse), B: log_of("b", right, None)}
    looped = outcome(built(), logs, chunk, handlers, ["flush, drain"])
    with closures_alone():
        called = outcome(built(), logs, chunk, handlers, ["flush, drain"])
    assert looped == called


def log_of(topic: str, good: Any, worse: Any) -> list[FakeRecord]:
    entries = list(good)
    if worse is not None:
        entries.insert(worse[1], (worse[0], 5, [("bad", b"")]))
    return [
        FakeRecord(
            at=at, key_bytes=key, value_bytes=value, timestamp_ms=ms, in_topic=topic, header_list=named
        )
        for at, ((key, value), ms, named) in enumerate(entries)
    ]
