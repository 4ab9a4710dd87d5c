from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_kstreams.streams import (
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    StoreSpec,
    TopologyBuilder,
    TopologyError,
    serdes,
)
from tests.support.topology.bound_topology import BoundTopology, Output

TOTALS = StoreSpec(name="totals", key_serde=serdes.string(), value_serde=serdes.int64())


class Recording(Processor):
    """Does what it is told with each record, and remembers its life."""

    def __init__(self, act: Callable[[ProcessorContext, ProcessorRecord], None] | None = None) -> None:
        self.act = act
        self.life: list[str] = []

    def init(self, context: ProcessorContext) -> None:
        self.life.append("init")
        self.context = context

    def process(self, record: ProcessorRecord) -> None:
        self.life.append("process")
        if self.act is not None:
            self.act(self.context, record)

    def close(self) -> None:
        self.life.append("close")


def _bind(act: Callable[[ProcessorContext, ProcessorRecord], None]) -> BoundTopology:
    builder = TopologyBuilder().add_source("in", "in", key_serde=serdes.string(), value_serde=serdes.int64())
    builder.add_processor("p", lambda: Recording(act), "in").add_state_store(TOTALS, "p")
    for name in ("left", "right"):
        builder.add_sink(name, name, "p", key_serde=serdes.string(), value_serde=serdes.int64())
    return BoundTopology(builder.build())


def test_processor_lives_from_init_to_close_when_a_task_ends_cleanly() -> None:
    made: list[Recording] = []

    def definition() -> Recording:
        made.append(Recording())
        return made[-1]

    builder = TopologyBuilder().add_source("in", "in").add_processor("p", definition, "in")
    topology = builder.add_sink("out", "out", "p").build()
    assert made == []
    bound = BoundTopology(topology)
    bound.pipe("in", b"a", b"1")
    bound.pipe("in", b"a", b"2")
    bound.close()
    BoundTopology(topology)
    assert [processor.life for processor in made] == [["init", "process", "process", "close"], ["init"]]


def test_record_holds_what_was_consumed_when_processed() -> None:
    seen: list[ProcessorRecord] = []
    bound = _bind(lambda context, record: seen.append(record))
    bound.pipe("in", "a", 1, timestamp_ms=7, headers=[("h", b"x"), ("h", None)])
    bound.pipe("in", None, None)
    assert seen == [
        ProcessorRecord(key="a", value=1, timestamp_ms=7, headers=[("h", b"x"), ("h", None)]),
        ProcessorRecord(key=None, value=None, timestamp_ms=0, headers=[]),
    ]


def test_context_tells_where_the_record_comes_from_when_processed() -> None:
    seen: list[tuple[object, ...]] = []
    bound = _bind(
        lambda context, record: seen.append(
            (context.topic, context.partition, context.offset, context.timestamp_ms, context.headers)
        )
    )
    bound.pipe("in", "a", 1, timestamp_ms=5, headers=[("h", b"x")])
    bound.pipe("in", "a", 1, timestamp_ms=6)
    assert seen == [("in", 0, 0, 5, [("h", b"x")]), ("in", 0, 1, 6, [])]


def test_context_has_no_record_when_a_table_emits_at_a_commit_point() -> None:
    seen: list[tuple[object, ...]] = []
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
    counts = builder.stream("in").group_by_key().count(store="counts").to_stream()
    counts.process(
        lambda: Recording(
            lambda context, record: seen.append(
                (context.topic, context.partition, context.offset, record.headers, record.timestamp_ms)
            )
        )
    ).send_to("out")
    bound = BoundTopology(builder.build())
    bound.pipe("in", "a", 1, timestamp_ms=8, headers=[("h", b"x")])
    bound.flush()
    assert seen == [(None, -1, -1, [], 8)]


def test_forward_reaches_every_child_when_none_is_named() -> None:
    bound = _bind(lambda context, record: context.forward(record.key, record.value + 1))
    bound.pipe("in", "a", 1, timestamp_ms=7)
    assert bound.read("left") == [Output("a", 2, 7)]
    assert bound.read("right") == [Output("a", 2, 7)]


def test_forward_reaches_one_child_when_it_is_named() -> None:
    bound = _bind(lambda context, record: context.forward(record.key, record.value, to="right"))
    bound.pipe("in", "a", 1)
    assert bound.read("left") == []
    assert bound.read("right") == [Output("a", 1, 0)]


def test_forward_is_refused_when_the_child_is_unknown() -> None:
    bound = _bind(lambda context, record: context.forward(record.key, record.value, to="up"))
    with pytest.raises(TopologyError, match="no child 'up'") as caught:
        bound.pipe("in", "a", 1)
    assert "left, right" in caught.value.fix


def test_forward_uses_its_timestamp_for_that_result_only_when_given() -> None:
    def act(context: ProcessorContext, record: ProcessorRecord) -> None:
        context.forward("late", 1, timestamp_ms=99)
        context.forward("same", 2)

    bound = _bind(act)
    bound.pipe("in", "a", 1, timestamp_ms=7)
    assert bound.read("left") == [Output("late", 1, 99), Output("same", 2, 7)]


def test_store_keeps_what_was_put_when_connected() -> None:
    def act(context: ProcessorContext, record: ProcessorRecord) -> None:
        store = context.state_store("totals")
        total = (store.get(record.key) or 0) + record.value
        store.put(record.key, total)
        context.forward(record.key, total)

    bound = _bind(act)
    for value in (1, 2, 3):
        bound.pipe("in", "a", value, timestamp_ms=value)
    assert [output.value for output in bound.read("left")] == [1, 3, 6]
    assert list(bound.stores["totals"].drain_changes()) == [(b"a", serdes.int64().serialize(6), 3)]


def test_store_is_refused_when_not_connected() -> None:
    def act(context: ProcessorContext, record: ProcessorRecord) -> None:
        context.state_store("others")

    bound = _bind(act)
    with pytest.raises(TopologyError, match="'p' has no access to the store 'others'") as no:
        bound.pipe("in", "a", 1)
    assert "a global table is no store: join the stream with it ahead of the processor" in no.value.fix


def test_global_table_is_told_to_be_no_store_when_a_processor_names_it() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.global_table("airports")
    builder.stream("in").process(Recording, "airports").send_to("out")
    with pytest.raises(TopologyError, match="uses the store 'airports', which no call added") as no:
        builder.build()
    assert no.value.fix.endswith("join the stream with it ahead of the processor")


def test_commit_is_requested_when_the_processor_asks() -> None:
    bound = _bind(lambda context, record: context.commit())
    bound.pipe("in", "a", 1)
    assert bound.commits_requested == 1


def test_definition_is_refused_when_it_makes_something_else() -> None:
    def definition() -> list[int]:
        return []

    builder = TopologyBuilder().add_source("in", "in")
    builder.add_processor("p", definition, "in")  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="made a list"):
        BoundTopology(builder.add_sink("out", "out", "p").build())


def test_processors_share_a_store_when_both_bring_its_spec() -> None:
    def add(context: ProcessorContext, record: ProcessorRecord) -> None:
        store = context.state_store("totals")
        store.put(record.key, (store.get(record.key) or 0) + record.value)

    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
    for topic in ("one", "two"):
        builder.stream(topic).process(lambda: Recording(add), TOTALS)
    topology = builder.build()
    assert len(topology.subtopologies()) == 1
    bound = BoundTopology(topology)
    bound.pipe("one", "a", 1)
    bound.pipe("two", "a", 2)
    assert bound.stores["totals"].get("a") == 3


def test_store_added_to_the_builder_is_used_when_named() -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
    builder.add_state_store(TOTALS)
    builder.stream("in").process(
        lambda: Recording(lambda c, r: c.state_store("totals").put(r.key, r.value)), "totals"
    )
    bound = BoundTopology(builder.build())
    bound.pipe("in", "a", 5)
    assert bound.stores["totals"].get("a") == 5
