"""Where tasks send the keys of a topic that has grown, and of one that has not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    Topology,
    TopologyError,
    TumblingWindow,
    Windowed,
    partition_of_key,
    serdes,
)
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.runtime.execution import TaskProgress
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId
from airflow_kstreams.streams.runtime.task_environment import TaskEnvironment
from airflow_kstreams.streams.settings import ApplicationSettings
from tests.support.topology.records import FakeRecord

IN = TopicPartition("in", 0)
KEYS = [b"%d" % number for number in range(100)]
GROWN, NOW = 4, 7
_THREADS = ("num.threads.per.task", "num.stream.threads")


def written(
    topology: Topology,
    keys: list[bytes | None],
    *,
    placements: Mapping[str, int],
    asked: list[str] | None = None,
    threads: int = 1,
) -> list[tuple[str, bytes | None, int]]:
    """(topic, key, partition) of what a task writes of records with these keys."""
    sent: list[tuple[str, bytes | None, int]] = []

    def produce(topic: str, value: Any, key: Any, partition: int, timestamp_ms: int, headers: Any) -> None:
        sent.append((topic, key, partition))

    def count(topic: str) -> int:
        if asked is not None:
            asked.append(topic)
        return NOW

    task = StreamTask(
        topology,
        task_id=TaskId(subtopology=0, group=0),
        bounds={IN: (0, len(keys))},
        produce=produce,
        settings=ApplicationSettings.parse("app", dict.fromkeys(_THREADS, threads)),
        progress=TaskProgress(),
        environment=TaskEnvironment(partition_count=count, placements=placements),
    )
    task.add(IN, [FakeRecord(at=n, key_bytes=key, value_bytes=b"1") for n, key in enumerate(keys)])
    task.restored()
    task.open()
    while task.process(1000) or task.execution.in_flight:
        """All of it."""
    task.flush()
    task.close()
    return sent


def topology_of(shape: Callable[[Any], object]) -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json(int))
    shape(builder.stream("in"))
    return builder.build()


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(lambda s: s.through("to"), id="bytes as read"),
        pytest.param(lambda s: s.through("to", key_serde=serdes.json()), id="made anew"),
        pytest.param(lambda s: s.peek(lambda k, v: None).send_to("to"), id="of one node"),
        pytest.param(lambda s: (s.send_to("to"), s.filter(lambda k, v: False).send_to("to")), id="two"),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_keys_are_placed_by_linear_hashing_when_their_topic_has_grown(shape: Any, threads: int) -> None:
    sent = written(topology_of(shape), [*KEYS], placements={"to": GROWN}, threads=threads)
    assert len(sent) == len(KEYS)
    assert sent == [("to", key, partition_of_key(key or b"", GROWN, NOW)) for _, key, _ in sent]
    assert {partition for *_, partition in sent} == set(range(NOW))


def test_keys_are_left_to_the_client_when_their_topic_has_not_grown() -> None:
    asked: list[str] = []
    topology = topology_of(lambda s: (s.send_to("to"), s.send_to("other")))
    sent = written(topology, [*KEYS], placements={"to": GROWN}, asked=asked)
    assert {partition for topic, _, partition in sent if topic == "other"} == {-1}
    assert {*asked} == {"to"}


def test_records_without_key_are_left_to_the_client_when_their_topic_has_grown() -> None:
    sent = written(topology_of(lambda s: s.send_to("to")), [None, b"a"], placements={"to": GROWN})
    assert sent == [("to", None, -1), ("to", b"a", partition_of_key(b"a", GROWN, NOW))]


def test_repartition_topics_are_known_by_their_real_names_when_they_have_grown() -> None:
    topology = topology_of(lambda s: s.group_by(lambda k, v: k, name="by-key").count(store="counts"))
    sent = written(topology, [*KEYS], placements={"app-by-key-repartition": GROWN})
    assert [partition for *_, partition in sent] == [partition_of_key(key, GROWN, NOW) for key in KEYS]


@pytest.mark.parametrize("placements", [{}, {"to": GROWN}])
def test_windows_lie_with_their_key_when_their_topic_has_grown_or_not(placements: dict[str, int]) -> None:
    windowed = topology_of(
        lambda s: (
            s.group_by_key()
            .windowed_by(TumblingWindow(size_ms=10))
            .count(store="w")
            .to_stream()
            .through("to")
        )
    )
    sent = written(windowed, [*KEYS], placements=placements)
    assert len(sent) == len(KEYS)
    initial = placements.get("to", NOW)
    # A window's start follows the key in 8 bytes.
    places = [partition_of_key((key or b"")[:-8], initial, NOW) for _, key, _ in sent]
    assert [partition for *_, partition in sent] == places


class Sender(Processor):
    """Sends by name, beside a sink."""

    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: ProcessorRecord) -> None:
        self._context.send("to", record.key, record.value)


class SenderOfWindows(Sender):
    def process(self, record: ProcessorRecord) -> None:
        serde = serdes.time_windowed(serdes.string(), size_ms=10)
        self._context.send("to", Windowed(record.key, 0, 10), b"1", key_serde=serde)


@pytest.mark.parametrize("threads", [1, 2])
def test_keys_that_a_processor_sends_lie_where_its_sink_puts_them(threads: int) -> None:
    topology = topology_of(lambda s: s.process(Sender).send_to("to"))
    keys = [None, *KEYS]
    sent = written(topology, keys, placements={"to": GROWN}, threads=threads)
    places = [-1, *(partition_of_key(key, GROWN, NOW) for key in KEYS)]
    assert [partition for *_, partition in sent] == places
    assert {partition for *_, partition in written(topology, keys, placements={})} == {-1}


@pytest.mark.parametrize("placements", [{}, {"to": GROWN}])
def test_windows_that_a_processor_sends_lie_with_their_key(placements: dict[str, int]) -> None:
    topology = topology_of(lambda s: s.process(SenderOfWindows).send_to("out"))
    sent = written(topology, [*KEYS], placements=placements)
    initial = placements.get("to", NOW)
    assert [partition for *_, partition in sent] == [partition_of_key(key, initial, NOW) for key in KEYS]


def test_task_fails_when_its_topic_has_fewer_partitions_than_it_began_with() -> None:
    topology = topology_of(lambda s: s.send_to("to"))
    with pytest.raises(TopologyError, match="7 partitions cannot have grown from 8"):
        written(topology, [b"a"], placements={"to": 8})
