"""The test driver, when it is used as its errors say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.testing import InMemoryKafka, ManualClock, TopologyTestDriver
from tests.support.remedies import walked
from tests.support.topology.as_told import built


def counting(b: Any) -> None:
    stream = b.stream("in")
    stream.group_by_key().count(store="counts")
    stream.send_to("out")


TOPOLOGY = built(counting)


def topology() -> Any:
    return TOPOLOGY


def driver(made: Any = TOPOLOGY, **options: Any) -> Any:
    return TopologyTestDriver(made, application_id="app", **options)


def piped(d: Any, **more: Any) -> Any:
    d.pipe_input("in", **{"key": "a", "value": 1, "timestamp_ms": 0, **more})
    return [(record.key, record.value) for record in d.read_output("out")]


def failing(d: Any) -> Any:
    """Have a task fail at a record, and return the error."""
    with pytest.raises(KStreamsError) as failed:
        d.pipe_bytes("in", key=b"a", value=b"{", timestamp_ms=0)
    return failed.value


def within(d: Any, act: Callable[[], object]) -> Any:
    """Do something in a block of ``run()``."""
    with d.run():
        return act()


def all_piped(d: Any, records: Any) -> Any:
    d.pipe_records("in", records)
    return [(record.key, record.value) for record in d.read_output("out")]


def both_ways(**options: Any) -> Any:
    """Read a topic that is written as text and as JSON."""
    with driver(built(lambda b: (as_json(b), as_text(b)))) as d:
        d.pipe_input("in", key="a", value=1, timestamp_ms=0)
        return [record.value for record in d.read_output("out", **options)]


def as_json(b: Any) -> Any:
    return b.stream("in").send_to("out")


def as_text(b: Any) -> Any:
    return b.stream("in").map_values(str).send_to("out", value_serde=serdes.string())


ONE = [("a", 1)]
USES = [
    walked(
        "topology_test_driver.TopologyTestDriver.__init__",
        lambda d: driver(partitions=2),
        lambda d: piped(driver(partitions={"in": 2})),
        ONE,
    ),
    walked(
        "topology_test_driver._check_topology: call builder.build()",
        lambda d: driver(builder()),
        lambda d: piped(driver(builder().build())),
        ONE,
    ),
    walked(
        "topology_test_driver._check_topology: call it",
        lambda d: driver(topology),
        lambda d: piped(driver(topology())),
        ONE,
    ),
    walked(
        "topology_test_driver._check_topology: pass what",
        lambda d: driver(7),
        lambda d: piped(driver(TOPOLOGY)),
        ONE,
    ),
    walked(
        "topology_test_driver.TopologyTestDriver.advance_wall_clock",
        lambda d: d.advance_wall_clock(-1),
        lambda d: (d.advance_wall_clock(1), piped(d))[1],
        ONE,
    ),
    walked(
        "topology_test_driver.TopologyTestDriver.read_output",
        lambda d: d.read_output("nowhere"),
        lambda d: piped(d),
        ONE,
    ),
    walked(
        "topology_test_driver.TopologyTestDriver.store: stores of this topology",
        lambda d: d.store("count"),
        lambda d: (piped(d), dict(d.store("counts").all()))[1],
        {"a": 1},
    ),
    walked(
        "topology_test_driver.TopologyTestDriver.store: ask for one of them",
        lambda d: d.store("counts", partition=3),
        lambda d: (piped(d), dict(d.store("counts", partition=0).all()))[1],
        {"a": 1},
    ),
    walked(
        "topology_test_driver.TopologyTestDriver._check_usable: make a new TopologyTestDriver",
        lambda d: (d.close(), piped(d)),
        lambda d: piped(driver()),
        ONE,
    ),
    walked(
        "in_memory_topics.topic_counts: give a whole number",
        lambda d: driver(partitions={"in": 0}),
        lambda d: piped(driver(partitions={"in": 1})),
        ONE,
    ),
    walked(
        "topology_test_driver.TopologyTestDriver._check_usable: make a new TopologyTestDriver; a run",
        lambda d: (failing(d), piped(d)),
        lambda d: (failing(d), piped(driver()))[1],
        ONE,
    ),
    walked(
        "topology_test_driver.TopologyTestDriver._refuse_in_block",
        lambda d: within(d, d.restart),
        lambda d: (within(d, lambda: None), d.restart(), piped(d))[2],
        ONE,
    ),
    walked(
        "topology_test_driver.TopologyTestDriver._refuse_in_block",
        lambda d: within(d, d.restart),
        lambda d: (d.restart(), within(d, lambda: None), piped(d))[2],
        ONE,
    ),
    walked(
        "in_memory_topics.topic_counts: give the number of partitions of the source topics",
        lambda d: driver(partitions={"app-counts-changelog": 2}),
        lambda d: piped(driver(partitions={"in": 2})),
        ONE,
    ),
    walked(
        "input_topics._triples",
        lambda d: d.pipe_records("in", [("a", 1)]),
        lambda d: all_piped(d, [("a", 1, 0)]),
        ONE,
    ),
    walked(
        "input_topics._triples",
        lambda d: d.pipe_records("in", {"a": 1}),
        lambda d: all_piped(d, [("a", 1, 0)]),
        ONE,
    ),
    walked(
        "output_topics.OutputTopics.read",
        lambda d: both_ways(),
        lambda d: both_ways(key_serde=serdes.string(), value_serde=serdes.bytes()),
        [b"1", b"1"],
    ),
    walked(
        "in_memory_topics.topic_counts: name topics",
        lambda d: driver(partitions={"inn": 2}),
        lambda d: piped(driver(partitions={"in": 2})),
        ONE,
    ),
    walked(
        "input_topics.InputTopics._source",
        lambda d: d.pipe_input("inn", key="a", value=1, timestamp_ms=0),
        lambda d: piped(d),
        ONE,
    ),
    walked(
        "input_topics.InputTopics._check_partition",
        lambda d: piped(d, partition=1),
        lambda d: piped(driver(partitions={"in": 2}), partition=1),
        ONE,
    ),
    walked("input_topics._serialized", lambda d: piped(d, key=7), lambda d: piped(d, key="a"), ONE),
    walked(
        "input_topics._check_timestamp",
        lambda d: piped(d, timestamp_ms="now"),
        lambda d: piped(d, timestamp_ms=1_700_000_000_000),
        ONE,
    ),
    walked(
        "input_topics._checked_headers",
        lambda d: piped(d, headers={"name": b"value"}),
        lambda d: piped(d, headers=[("name", b"value")]),
        ONE,
    ),
    walked(
        "output_topics._decoded",
        lambda d: (
            d.pipe_input("in", key="a", value="x", timestamp_ms=0),
            d.read_output("out", value_serde=serdes.int64()),
        ),
        lambda d: piped(d),
        ONE,
    ),
    walked(
        "output_topics.StoreView._read",
        lambda d: d.store("counts").get(7),
        lambda d: (piped(d), d.store("counts").get("a"))[1],
        1,
    ),
]


# == Kafka in memory

IN = TopicPartition("in", 0)
OFFSETS = {IN: CommittedOffset(1, "read")}


def kafka(**configs: str) -> InMemoryKafka:
    made = InMemoryKafka(clock=ManualClock(now_ms=1_000))
    made.create_topic("in")
    made.append("in", b"1", b"a", timestamp_ms=1)
    if configs:
        made.configure_broker(**configs)
    return made


def writing(on: InMemoryKafka, offsets: Any = OFFSETS, **options: Any) -> Any:
    """Return a writer in a transaction with a record and offsets."""
    writer: Any = on.writer(transactional_id="task", **options)
    writer.init_transactions()
    writer.begin()
    writer.produce("in", b"2", b"b", 0, 2)
    writer.send_offsets(offsets, on.reader(group_id="app"))
    return writer


def committed(on: InMemoryKafka, offsets: Any = OFFSETS, **options: Any) -> Any:
    """Return the values of ``in``, and the offset of a group, after a transaction."""
    writing(on, offsets, **options).commit()
    return on.values("in"), on.reader(group_id="app").committed([IN])[IN].offset


def read(on: InMemoryKafka, offset: int, *, closed: bool = False) -> Any:
    reader = on.reader(group_id="app")
    if closed:
        reader.close()
    reader.assign({IN: offset})
    return [each.value() for each in reader.poll(max_records=9, timeout_seconds=0).records.get(IN, ())]


BOTH = [b"1", b"2"], 1
LONG = {IN: CommittedOffset(1, "x" * 5_000)}


def fenced(on: InMemoryKafka) -> Any:
    """Have a newer attempt claim the id of a writer, which goes on."""
    older = writing(on)
    newer = writing(on)
    with pytest.raises(KStreamsError):
        older.commit()
    return newer


def timed_out(on: InMemoryKafka) -> Any:
    older = writing(on)
    on.time_out_transaction("task")
    return older


def closed(transactional_id: str | None) -> Any:
    writer: Any = kafka().writer(transactional_id=transactional_id)
    writer.close()
    writer.flush()


def written(on: InMemoryKafka) -> Any:
    writer: Any = on.writer(transactional_id=None)
    writer.produce("in", b"2", b"b", 0, 2)
    writer.flush()
    return on.values("in")


def suspect(on: InMemoryKafka) -> Any:
    """Have the connections close while a writer has nothing open."""
    writer = writing(on)
    writer.commit()
    on.restart()
    return writer


def committed_outside(offsets: Any) -> Any:
    reader = kafka().reader(group_id="app")
    reader.commit(offsets)
    return reader.committed([IN])[IN].offset


def pending(on: InMemoryKafka) -> Any:
    """Ask for offsets of which an open transaction may commit others."""
    return on.reader(group_id="app").committed([IN])[IN].offset


def left_open() -> tuple[Any, InMemoryKafka]:
    on = kafka()
    return writing(on), on


def expired() -> InMemoryKafka:
    on = kafka()
    on.append("in", b"2", b"b", timestamp_ms=2)
    on.expire({IN: 1})
    return on


def given_partitions(count: int) -> Any:
    on = kafka()
    on.admin().create_partitions("in", 4)
    on.admin().create_partitions("in", count)
    return len(on.partitions("in"))


KAFKA = [
    walked(
        "broker.missing",
        lambda: kafka().admin().start_offsets([TopicPartition("inn", 0)]),
        lambda: kafka().admin().start_offsets([IN])[IN],
        0,
    ),
    walked("broker.Broker.grow", lambda: given_partitions(3), lambda: given_partitions(4), 4),
    walked(
        "broker.Broker.commit_offsets", lambda: committed_outside(LONG), lambda: committed_outside(OFFSETS), 1
    ),
    walked(
        "broker.Broker.until",
        lambda: pending(left_open()[1]),
        lambda: ended(*left_open()),
        1,
    ),
    walked("reader.InMemoryReader._advance", lambda: read(expired(), 0), lambda: read(expired(), 1), [b"2"]),
    walked("reader.InMemoryReader._advance", lambda: read(expired(), 9), lambda: read(expired(), 2), []),
    walked(
        "reader.InMemoryReader._refuse_closed",
        lambda: read(kafka(), 0, closed=True),
        lambda: read(kafka(), 0),
        [b"1"],
    ),
    walked(
        "writer.InMemoryTransactionalWriter._add_offsets",
        lambda: committed(kafka(), LONG),
        lambda: committed(kafka()),
        BOTH,
    ),
    walked(
        "writer.InMemoryTransactionalWriter._fencing",
        lambda: timed_out(kafka()).commit(),
        lambda: after(fenced),
        BOTH,
    ),
    walked(
        "errors.SuspectWriterError.__init__",
        lambda: suspect(kafka()).begin(),
        lambda: committed_by_another(),
        ([b"1", b"2", b"2"], 1),
    ),
    walked(
        "writer.InMemoryTransactionalWriter.init_transactions",
        lambda: committed(kafka(transaction_max_timeout_ms="60000"), transaction_timeout_ms=90_000),
        lambda: committed(kafka(transaction_max_timeout_ms="60000"), transaction_timeout_ms=60_000),
        BOTH,
    ),
    walked(
        "writer.InMemoryIdempotentWriter._refuse_closed",
        lambda: closed(None),
        lambda: written(kafka()),
        BOTH[0],
    ),
]


def ended(writer: Any, on: InMemoryKafka) -> Any:
    assert on.hanging_transactions() == ["task"]
    writer.commit()
    return pending(on)


def after(make: Callable[[InMemoryKafka], Any]) -> Any:
    on = kafka()
    make(on).commit()
    return on.values("in"), pending(on)


def committed_by_another() -> Any:
    on = kafka()
    suspect(on)
    return committed(on)


@pytest.mark.parametrize(("fault", "told", "wanted"), KAFKA)
def test_kafka_in_memory_is_used_as_the_error_says(
    fault: Callable[[], object], told: Callable[[], object], wanted: object
) -> None:
    with pytest.raises(KStreamsError):
        fault()
    assert told() == wanted


def builder() -> Any:
    made: Any = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    counting(made)
    return made


@pytest.mark.parametrize(("fault", "told", "wanted"), USES)
def test_driver_is_used_as_the_error_says(
    fault: Callable[[Any], object], told: Callable[[Any], object], wanted: object
) -> None:
    with driver() as first, pytest.raises(KStreamsError):
        fault(first)
    with driver() as second:
        assert told(second) == wanted
