"""Partitioners, groups and counts that were refused are given as the error says; keys meet their state."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from airflow_kstreams.streams import KStreamBuilder, LinearHashPartitioner, serdes
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.partitioning import partition_of_key
from airflow_kstreams.streams.partitioning.partition_groups import GroupingRequest, grouped
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.kafka.in_process import Application
from tests.support.remedies import walked

KEYS = [f"key-{n}" for n in range(20)]
NOW_MS = 1_700_000_000_000


def wrong(value: object) -> Any:
    """Return a value of another type than a type checker expects."""
    return value


class Producer:
    """Counts partitions, and has all that it wrote acknowledged."""

    def __init__(self, **counts: int) -> None:
        self.counts = counts

    def list_topics(self, topic: str, timeout: float) -> Any:
        entry = SimpleNamespace(partitions=range(self.counts.get(topic, 0)), error="unknown topic")
        return SimpleNamespace(topics={topic: entry})

    def flush(self, timeout: float) -> int:
        return 0


def placed(partitioner: LinearHashPartitioner, **options: Any) -> list[int]:
    return [partitioner.partition("flights", key.encode(), **options) for key in KEYS]


def created_later() -> list[int]:
    producer = Producer()
    partitioner = LinearHashPartitioner({"flights": 4}, producer)
    with pytest.raises(KStreamsError):
        placed(partitioner)
    producer.counts["flights"] = 6
    return placed(partitioner)


AMONG_SIX = [partition_of_key(key.encode(), 4, 6) for key in KEYS]
TODAY = [partition_of_key(key.encode(), 3, 3) for key in KEYS]

PLACING = [
    walked(
        "linear_hash_partitioner.LinearHashPartitioner.__init__",
        lambda: LinearHashPartitioner({"flights": 4}, refresh_seconds=-1),
        lambda: placed(LinearHashPartitioner({"flights": 4}, refresh_seconds=0), count=6),
        AMONG_SIX,
    ),
    walked(
        "linear_hash_partitioner.LinearHashPartitioner.__init__",
        lambda: LinearHashPartitioner({"flights": 4}, timeout_seconds=0),
        lambda: placed(LinearHashPartitioner({"flights": 4}, timeout_seconds=0.1), count=6),
        AMONG_SIX,
    ),
    walked(
        "linear_hash_partitioner.LinearHashPartitioner.partition: say how many partitions",
        lambda: placed(LinearHashPartitioner({"trains": 1}), count=6),
        lambda: placed(LinearHashPartitioner({"trains": 1, "flights": 4}), count=6),
        AMONG_SIX,
    ),
    walked(
        "linear_hash_partitioner.LinearHashPartitioner.partition: serialize it first",
        lambda: LinearHashPartitioner({"flights": 4}).partition("flights", wrong("key-0"), 6),
        lambda: LinearHashPartitioner({"flights": 4}).partition("flights", b"key-0", 6),
        AMONG_SIX[0],
    ),
    walked(
        "linear_hash_partitioner.LinearHashPartitioner._count",
        lambda: placed(LinearHashPartitioner({"flights": 4})),
        lambda: placed(LinearHashPartitioner({"flights": 4}, Producer(flights=6))),
        AMONG_SIX,
    ),
    walked(
        "linear_hash_partitioner.LinearHashPartitioner._count",
        lambda: placed(LinearHashPartitioner({"flights": 4})),
        lambda: placed(LinearHashPartitioner({"flights": 4}), count=6),
        AMONG_SIX,
    ),
    walked(
        "linear_hash_partitioner.LinearHashPartitioner._found",
        lambda: placed(LinearHashPartitioner({"flights": 4}, Producer(flight=6))),
        created_later,
        AMONG_SIX,
    ),
    walked(
        "linear_hash_partitioner._check_initial",
        lambda: LinearHashPartitioner({"flights": wrong("4")}),
        lambda: placed(LinearHashPartitioner({"flights": 4}), count=6),
        AMONG_SIX,
    ),
    walked(
        "linear_hash_partitioner._check_producer",
        lambda: LinearHashPartitioner({"flights": 4}, wrong(SimpleNamespace(send=print))),
        lambda: placed(LinearHashPartitioner({"flights": 4}), count=6),
        AMONG_SIX,
    ),
    walked(
        "linear_hash_partitioner._fewer",
        lambda: placed(LinearHashPartitioner({"flights": 8}), count=6),
        lambda: placed(LinearHashPartitioner({"flights": 4}), count=6),
        AMONG_SIX,
    ),
    walked(
        "linear_hash_partitioner._fewer",
        lambda: placed(LinearHashPartitioner({"flights": 8}, Producer(flights=3))),
        lambda: placed(LinearHashPartitioner({"flights": 3}, Producer(flights=3))),
        TODAY,
    ),
]


class Grouper:
    """Answers in order, and then from the beginning."""

    id: ClassVar[str] = "scripted"

    def __init__(self, *answers: Any) -> None:
        self._answers = itertools.cycle(answers)

    def group(self, partitions_per_topic: Mapping[str, int]) -> Any:
        return next(self._answers)


def groups(*answers: Any) -> Any:
    request = GroupingRequest(
        subtopology=0, counts={"left": 2, "right": 2}, copartitioned=[{"left", "right"}]
    )
    return grouped(Grouper(*answers), None, request)


def of(*names: str) -> set[TopicPartition]:
    return {TopicPartition(name[:-2], int(name[-1])) for name in names}


TOGETHER = [of("left-0", "right-0"), of("left-1", "right-1")]
IN_TWO = ({"left": (0,), "right": (0,)}, {"left": (1,), "right": (1,)})

GROUPING = [
    walked(
        "partition_groups.grouped",
        lambda: groups(TOGETHER, TOGETHER[::-1]),
        lambda: groups(TOGETHER, TOGETHER),
        IN_TWO,
    ),
    walked(
        "partition_groups._check_joined",
        lambda: groups([of("left-0", "right-1"), of("left-1", "right-0")]),
        lambda: groups(TOGETHER),
        IN_TWO,
    ),
]


def joined(settings: Mapping[str, object], *, repartition: int | None = None, first: int = 3) -> Any:
    """Join ``in``, of 4 partitions, with the table ``other``, of 2: each key is in both.

    :param first: number of partitions that ``in`` began with.
    """
    kafka = InMemoryKafka(clock=ManualClock(now_ms=NOW_MS))
    for topic, begun, count in (("other", 2, 2), ("in", first, 4), ("out", 1, 1)):
        kafka.create_topic(topic, partitions=count)
        for key in KEYS if topic != "out" else ():
            at = partition_of_key(key.encode(), begun, count)
            kafka.append(topic, b"1", key.encode(), partition=at, timestamp_ms=NOW_MS + (topic == "in"))
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    stream, table = builder.stream("in"), builder.table("other")
    if repartition is not None:
        stream = stream.repartition(repartition, name="again")
        table = table.to_stream().repartition(repartition, name="others").to_table(store="others")
    stream.join(table, lambda value, other: value + other).send_to("out")
    application = Application(
        application_id="app",
        topology=builder.build(),
        on=kafka,
        clock=kafka.clock,
        settings={"settle.ms": 0, **settings},
    )
    # What lies in partitions that a topic has gained is read one run later.
    for number in range(2):
        application.run(f"run {number}", order=(number, number + 1))
    return sorted((record.key(), record.value()) for record in kafka.records("out"))


JOINED = sorted((key.encode(), b"11") for key in KEYS)

COUNTING = [
    walked(
        "topic_growth._check_copartitioning",
        lambda: joined({}),
        lambda: joined({}, repartition=3),
        JOINED,
    ),
    walked(
        "topic_growth._check_copartitioning",
        lambda: joined({}, first=2),
        lambda: joined({"initial.partitions": "in=2"}, first=2),
        JOINED,
    ),
]


@pytest.mark.parametrize(("fault", "told", "wanted"), [*PLACING, *GROUPING, *COUNTING])
def test_keys_are_where_the_error_says(
    fault: Callable[[], object], told: Callable[[], object], wanted: object
) -> None:
    with pytest.raises(KStreamsError):
        fault()
    assert told() == wanted
