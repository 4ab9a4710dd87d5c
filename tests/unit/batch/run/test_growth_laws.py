"""What a run writes and reads for the protocol: counted, not timed, at two sizes each.

The ledger must not grow with history in anything that begin, finish and a sensor read or write; it grows with
partitions and tasks at most as they do; and no record is ever larger than a piece.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar
from unittest import mock

import pytest

from airflow_kstreams.batch.inspect.cluster_view import ClusterView
from airflow_kstreams.batch.inspect.conditions import RunFinished
from airflow_kstreams.batch.inspect.finished_runs import RunFollower
from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.protocol.slice import metadata_records
from airflow_kstreams.batch.protocol.slice.metadata_records import PIECE_BYTES
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.ports import Headers
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from tests.support.kafka.in_process import Application
from tests.support.kafka.ledger_history import APP, LEDGER, LedgerHistory
from tests.support.kafka.reset_scene import ResetScene

T = TypeVar("T")


class Traffic:
    """Counts records and bytes of topics of the protocol that pass."""

    def __init__(self, *topics: str) -> None:
        self.topics = topics
        self.counts: Counter[str] = Counter()
        self.largest = 0

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        """Make the call, see ``Interceptor``."""
        result: Any = effect()
        if name == "writer.produce":
            topic, value, key, _, _, headers = arguments
            self.count("written", topic, value, key, headers)
        elif name == "reader.poll":
            for records in result.records.values():
                for record in records:
                    self.count("read", record.topic(), record.value(), record.key(), record.headers())
        return result  # type: ignore[no-any-return]

    def count(
        self, what: str, topic: str, value: bytes | None, key: bytes | None, headers: Headers | None
    ) -> None:
        if topic not in self.topics:
            return
        size = len(value or b"") + len(key or b"")
        size += sum(len(name) + len(text or b"") for name, text in headers or ())
        self.counts[f"{what} records"] += 1
        self.counts[f"{what} bytes"] += size
        if what == "written":
            self.largest = max(self.largest, size)


def copying(kafka: InMemoryKafka, *, interceptor: Traffic | None = None, **settings: object) -> Application:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").send_to("out")
    return Application(
        application_id=APP,
        topology=builder.build(),
        on=kafka,
        clock=kafka.clock,
        settings={name.replace("_", "."): value for name, value in settings.items()},
        interceptor=interceptor,
    )


def kafka_with_topics(partitions: int) -> InMemoryKafka:
    kafka = InMemoryKafka()
    kafka.create_topic("in", partitions=partitions)
    kafka.create_topic("out")
    return kafka


def cost_after(runs: int) -> Counter[str]:
    """What begin, finish and two sensors cost of the ledger after so many runs."""
    kafka = kafka_with_topics(1)
    history = LedgerHistory(kafka=kafka, details_kept=5, offsets=0, topic_id="")
    history.finish_many(runs)
    history.session.close()
    kafka.compact(LEDGER)
    kafka.append("in", b"x", b"x")
    traffic = Traffic(LEDGER)
    app = copying(kafka, interceptor=traffic)
    slice_ = app.begin("the next")
    app.tasks(slice_)
    app.finish("the next")
    with ClusterView(FaultyCluster(kafka, traffic), clock=kafka.clock) as view:
        for run_id, there in (("the next", True), (history.finished[0], True), ("never", False)):
            found = RunFinished(application_id=APP, run_id=run_id).evaluate(view)
            assert (found is not None) == there
    ledger = read_ledger(kafka, APP, clock=kafka.clock)
    assert ledger.past.finished == runs + 1
    return traffic.counts


@pytest.mark.promise("history-is-not-read")
def test_cost_of_a_run_is_the_same_when_the_past_is_long() -> None:
    few, many = cost_after(10), cost_after(2_000)
    # A path of the index is longer by a page, which is looked at more than once; its root is full.
    assert many["written records"] <= few["written records"] + 1
    assert many["written bytes"] <= few["written bytes"] + 2_500
    assert many["read records"] <= few["read records"] + 16
    assert many["read bytes"] <= few["read bytes"] + 20_000


def cost_of(partitions: int) -> Traffic:
    """What begin and finish cost of ledger and metadata when each partition is a task with a record."""
    kafka = kafka_with_topics(partitions)
    for number in range(partitions):
        kafka.append("in", b"x", b"x", partition=number)
    copying(kafka).run("first")
    traffic = Traffic(LEDGER, f"{APP}-metadata")
    for number in range(partitions):
        kafka.append("in", b"x", b"x", partition=number)
    app = copying(kafka, interceptor=traffic)
    slice_ = app.begin("next")
    app.interceptor = None
    app.tasks(slice_)
    app.interceptor = traffic
    app.finish("next")
    return traffic


@pytest.mark.promise("cost-grows-with-tasks")
def test_cost_of_a_run_grows_as_its_partitions_do() -> None:
    small, large = cost_of(20), cost_of(100)
    for what in ("written records", "written bytes", "read records", "read bytes"):
        assert large.counts[what] <= 5 * small.counts[what], what


def test_no_record_is_larger_than_a_piece_when_there_are_ten_thousand_tasks() -> None:
    kafka = InMemoryKafka()
    history = LedgerHistory(kafka=kafka, partitions=10_000, first_offset=10**12, offsets=10**6)
    for number in range(2):
        history.finish(f"run-{number}")
    history.renew()
    sizes = {record.key() or b"": len(record.value() or b"") for record in kafka.records(LEDGER)}
    assert max(sizes.values()) <= PIECE_BYTES
    assert any(b"#" in key for key in sizes), "something had to be cut"
    assert max(size for key, size in sizes.items() if key.startswith(b"run-")) < 1_000, "entries stay small"
    assert len(history.read().stops) == 10_000


@pytest.mark.promise("pieces-are-whole")
@mock.patch.object(metadata_records, "PIECE_BYTES", 300)
def test_application_works_when_everything_is_cut_into_pieces() -> None:
    scene = ResetScene()
    traffic = Traffic(LEDGER, f"{APP}-metadata")
    scene.send(*"abab")
    first = scene.run("r1")
    scene.send(*"ab")
    second = scene.run("r2")
    assert second.inputs[0].start_offset == first.inputs[0].stop_offset
    assert scene.reset(inputs="in", intermediates="mid").taken_back == ("r1", "r2")
    again = scene.run("r2")
    assert again.reads[0].start == 0
    assert again.reads[0].stop >= second.reads[0].stop
    kept = scene.kafka.records(LEDGER) + scene.kafka.records(f"{APP}-metadata")
    for record in kept:
        traffic.count("written", record.topic(), record.value(), b"", None)
    cut = {(record.key() or b"").partition(b"#")[0] for record in kept if b"#" in (record.key() or b"")}
    assert {APP.encode(), b"__checkpoint__"} <= cut
    entries = [len(r.value() or b"") for r in kept if (r.key() or b"").startswith(b"r")]
    assert traffic.largest <= max(300, *entries)
    assert read_ledger(scene.kafka, APP, clock=scene.clock).find("r2") is not None


def test_follower_reads_each_record_once_when_it_catches_up_with_many_runs() -> None:
    kafka = kafka_with_topics(1)
    history = LedgerHistory(kafka=kafka, details_kept=3)
    history.finish_many(50)
    kafka.compact(LEDGER)
    traffic = Traffic(LEDGER)
    with RunFollower(FaultyCluster(kafka, traffic), APP, name="follower", from_start=True) as runs:
        found = [run for _, run in runs.until_now()]
    assert [run.run_id for run in found] == history.finished
    assert [run.without_details for run in found] == [True] * 47 + [False] * 3
    assert traffic.counts["read records"] == len(kafka.records(LEDGER))
