"""The offsets that wait for the next run, on the in-memory Kafka."""

from __future__ import annotations

from airflow_kstreams.batch.inspect.ahead.lag import SeenLag, read_lag
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.kafka.in_process import Application

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000


def application() -> tuple[InMemoryKafka, Application]:
    kafka = InMemoryKafka(clock=ManualClock(now_ms=NOW_MS))
    kafka.create_topic("in", partitions=3)
    kafka.create_topic("between", partitions=3)
    kafka.create_topic("out")
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").through("between").send_to("out")
    return kafka, Application(
        on=kafka,
        clock=kafka.clock,
        application_id="app",
        topology=builder.build(),
        settings={"autostop.at": "eol"},
    )


def feed(kafka: InMemoryKafka, partition: int, count: int = 1) -> None:
    for _ in range(count):
        kafka.append("in", b"v", b"k", partition=partition, timestamp_ms=kafka.clock.now_ms())


def look(kafka: InMemoryKafka, partitions: int = 20) -> SeenLag:
    return read_lag(kafka, ApplicationSettings.parse("app"), partitions=partitions, clock=kafka.clock)


def test_offsets_that_wait_are_shown_by_topic_and_the_largest_partitions_first() -> None:
    kafka, ours = application()
    feed(kafka, 0)
    ours.run("one")
    read_to_ms = NOW_MS
    kafka.clock.sleep(60)
    feed(kafka, 0, 2)
    feed(kafka, 2, 5)

    found = look(kafka, partitions=1)

    assert (found.lag, found.of_run, found.run_id, found.driver) == (7, 0, None, None)
    first, second = found.topics
    assert (first.topic, first.partitions, first.lag, first.largest, first.read_to_ms) == (
        "in",
        3,
        7,
        5,
        read_to_ms,
    )
    assert (second.topic, second.between, second.lag) == ("between", True, 0)
    assert [(part.partition, part.position, part.end, part.lag) for part in found.partitions] == [
        (2, 0, 5, 5)
    ]
    assert found.more_partitions == 1


def test_part_of_the_run_under_way_is_told_from_what_came_later() -> None:
    kafka, ours = application()
    feed(kafka, 0, 3)
    ours.run("zero")
    feed(kafka, 0, 2)
    ours.begin("one")
    feed(kafka, 0, 4)

    found = look(kafka)

    assert (found.lag, found.of_run, found.run_id) == (6, 2, "one")
    (part,) = found.partitions
    assert (part.start, part.position, part.stop, part.end) == (3, 3, 5, 9)


def test_lag_that_no_run_takes_is_odd_until_a_driver_works() -> None:
    kafka, ours = application()
    for number in range(5):
        feed(kafka, 0)
        ours.run(f"r{number}")
        kafka.clock.sleep(3_600)
    feed(kafka, 0)
    assert not look(kafka).suspicions, "the next run is due now"
    kafka.clock.sleep(3 * 3_600)

    (odd,) = look(kafka).suspicions

    assert (odd.rule, odd.figure, odd.usual, odd.threshold) == ("untaken", 4 * 3_600, 3_600, 3)
    assert odd.text == (
        "1 offset waits and no run has begun for 4 h, usually one does within 1 h: is its DAG paused?"
    )
    coordinator = ours.coordinator()
    ours.begin("r5", coordinator=coordinator)
    assert not look(kafka).suspicions
    coordinator.close()


def test_it_is_odd_that_nothing_comes_for_longer_than_usual_though_no_run_was_empty() -> None:
    kafka, ours = application()
    for number in range(5):
        feed(kafka, 0)
        ours.run(f"r{number}")
        kafka.clock.sleep(3_600)
    assert not look(kafka).suspicions
    kafka.clock.sleep(100 * 3_600)
    assert look(kafka).lag == 0

    (odd,) = look(kafka).suspicions

    assert (odd.rule, odd.figure, odd.usual) == ("nothing-new", 101 * 3_600, 3_600)
    assert odd.text == "nothing new has come for 4 days 5 h, usually it does within 1 h"
