"""Steps of a run whose order, or extent, a change once took away without a test that noticed."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.protocol.slice.metadata_records import PARTITION
from airflow_kstreams.batch.protocol.slice.stops import TaskShare
from airflow_kstreams.spark.driver.driver import RunJobs
from airflow_kstreams.streams import KStreamBuilder, Topology
from airflow_kstreams.streams.errors import RunBusyError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.serde import serdes
from airflow_kstreams.testing import InMemoryKafka
from tests.support.crash import Crash
from tests.support.kafka.in_process import Application
from tests.support.kafka.interception import CrashingAt, Once

APP = "app"
METADATA = ProtocolTopics(APP).metadata
LEDGER = ProtocolTopics(APP).ledger
REPARTITION = TopicPartition(f"{APP}-counts-repartition", 0)


def topology() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    counts = builder.stream("in").select_key(lambda k, v: v).group_by_key().count(store="counts")
    counts.to_stream().send_to("out", value_serde=serdes.int64())
    return builder.build()


def scene(*records: bytes) -> tuple[InMemoryKafka, Application]:
    kafka = InMemoryKafka()
    kafka.create_topic("in")
    kafka.create_topic("out")
    for record in records:
        kafka.append("in", record, b"k")
    return kafka, Application(application_id=APP, topology=topology(), on=kafka, settings={"settle.ms": 0})


def test_finish_purges_what_was_processed_and_no_more() -> None:
    kafka, app = scene(b"a", b"b")
    slice_ = app.begin("run-1")
    app.tasks(slice_)
    kafka.append(REPARTITION.topic, b"later", b"later")
    later = kafka.records(REPARTITION.topic)[-1].offset()
    app.finish("run-1")
    left = kafka.records(REPARTITION.topic)
    assert [record.offset() for record in left] == [later]
    start = app.cluster.admin().start_offsets([REPARTITION])[REPARTITION]
    assert 0 < start <= later


def live(kafka: InMemoryKafka) -> dict[bytes | None, bytes]:
    """Return what the metadata topic holds for a reader of committed records."""
    found: dict[bytes | None, bytes] = {}
    for record in kafka.records(METADATA):
        value = record.value()
        if value is None:
            found.pop(record.key(), None)
        else:
            found[record.key()] = value
    return found


def after_begin(number: int | None) -> tuple[dict[bytes | None, bytes], dict[bytes | None, bytes], int]:
    """Return the metadata before and after the begin of a second run that dies at one of its port calls."""
    kafka, app = scene(b"a", b"b")
    app.run("run-1")
    kafka.append("in", b"c", b"k")
    before = live(kafka)
    crashing = CrashingAt(number, after=True)
    app.interceptor = crashing
    try:
        app.begin("run-2")
    except Crash:
        kafka.clock.sleep(60)  # an open transaction of the dead one is over
    return before, live(kafka), len(crashing.calls)


def test_begin_takes_the_last_run_out_and_puts_the_new_one_in_at_once() -> None:
    before, after, calls = after_begin(None)
    assert before
    assert after
    assert not [key for key in before.keys() & after.keys() if before[key] == after[key]]
    gone = before.keys() - after.keys()
    assert gone, "the first run's notifications are taken out by the second one's begin"
    seen = set()
    for number in range(calls):
        _, found, _ = after_begin(number)
        assert found in (before, after)
        seen.add(frozenset(found.items()))
    assert len(seen) == 2


def test_begin_reads_the_ledger_again_when_the_run_was_finished_just_before_its_claim() -> None:
    kafka, app = scene(b"a")
    other = Application(application_id=APP, topology=topology(), on=kafka, settings={"settle.ms": 0})
    app.interceptor = Once("writer.init_transactions", 1, lambda: other.run("run-1"), about="")
    coordinator = app.coordinator()
    try:
        begun = coordinator.begin("run-1", app.topology.plan(APP), order=(0, 2), hold_lease=True)
    finally:
        coordinator.close()
    assert begun.slice is None
    assert begun.finished is not None
    assert begun.finished.run_id == "run-1"
    ends = app.cluster.admin().end_offsets([TopicPartition(METADATA, PARTITION)], isolation="read_committed")
    assert ends
    assert len(kafka.records("out")) == 1


def test_finish_reads_the_ledger_again_when_the_run_was_finished_just_before_its_claim() -> None:
    kafka, app = scene(b"a")
    app.tasks(app.begin("run-1"))
    other = Application(application_id=APP, topology=topology(), on=kafka, settings={"settle.ms": 0})
    summaries: list[RunSummary] = []
    app.interceptor = Once(
        "writer.init_transactions", 1, lambda: summaries.append(other.finish("run-1")), about=""
    )
    assert app.finish("run-1") == summaries[0]
    entries = [record for record in kafka.records(LEDGER) if record.key() == b"run-1"]
    assert len(entries) == 1


def test_finish_is_refused_when_another_runs_driver_took_the_lease_just_before_its_claim() -> None:
    kafka, app = scene(b"a")
    app.tasks(app.begin("run-1"))
    other = Application(application_id=APP, topology=topology(), on=kafka, settings={"settle.ms": 0})
    driver = other.coordinator()
    app.interceptor = Once(
        "writer.init_transactions",
        1,
        lambda: other.begin("run-2", coordinator=driver),
        about="",
    )
    try:
        with pytest.raises(RunBusyError):
            app.finish("run-1")
        assert not [record for record in kafka.records(LEDGER) if record.key() == b"run-1"]
    finally:
        driver.close()


@pytest.mark.parametrize("only", [None, 1])
def test_subtopology_is_launched_when_what_it_reads_is_written(only: int | None) -> None:
    kafka, app = scene(b"a", b"b")
    slice_ = app.begin("run-1")
    begun: list[str] = []
    reader_began = threading.Event()

    def launch(tasks: Sequence[TaskShare]) -> list[TaskReport]:
        (task,) = tasks
        begun.append(f"{task.subtopology} begins")
        if task.subtopology:
            reader_began.set()
        else:
            reader_began.wait(0.2)  # comes only if it does not wait for this one
        report = app.task(slice_, task.subtopology, task.group)
        begun.append(f"{task.subtopology} ends")
        return [report]

    if only is not None:
        app.tasks(slice_, [0])
    RunJobs(
        slice_=slice_,
        launch=launch,
        cancel=lambda: None,
        unfinished=lambda sub: [] if f"{sub} ends" in begun else [TaskShare(sub, 0)],
        check=lambda: None,
        only=only,
    ).run()
    writer = [] if only else ["0 begins", "0 ends"]
    assert begun == [*writer, "1 begins", "1 ends"]
    assert len(kafka.records("out")) == 2
