"""Counts over versions, outsiders and intervals: unknown stays unknown, and nothing is called wrong that is
not."""

from __future__ import annotations

import pytest

from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata, PackedCounts
from airflow_kstreams.batch.protocol.slice.slice import FrozenPartition
from airflow_kstreams.batch.report.counts import count_rows, headline
from airflow_kstreams.batch.run.finish import audit
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.figures.record_counts import RecordCounts
from airflow_kstreams.testing import InMemoryKafka
from tests.support.crash import Crash
from tests.support.kafka.in_process import Application
from tests.support.kafka.interception import Once
from tests.support.kafka.written_over import leave_out_counts

pytestmark = pytest.mark.promise("counts-are-exact", "late-share-fails-before-the-marker")


def _topology() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").filter(lambda key, value: value != "no").through("between").send_to("out")
    return builder.build()


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka()
    for topic in ("in", "between", "out"):
        kafka.create_topic(topic)
    return kafka


def _application(kafka: InMemoryKafka, **settings: object) -> Application:
    return Application(
        on=kafka,
        clock=kafka.clock,
        application_id="app",
        topology=_topology(),
        settings={name.replace("_", "."): value for name, value in settings.items()},
    )


def _publish(kafka: InMemoryKafka, *values: str) -> None:
    for value in values:
        kafka.append("in", value.encode(), b"k", timestamp_ms=1)


def _die() -> None:
    raise Crash


def _crash_in_the_middle(app: Application) -> None:
    slice_ = app.begin("one")
    app.interceptor = Once("writer.commit", 2, _die)
    with pytest.raises(Crash):
        app.tasks(slice_)
    app.interceptor = None


def test_counts_are_unknown_when_those_of_an_attempt_had_no_room(kafka: InMemoryKafka) -> None:
    app = _application(kafka, commit_every_records=2)
    _publish(kafka, "a", "no", "b", "c", "d")
    _crash_in_the_middle(app)
    leave_out_counts(kafka, "app")
    summary = app.run("one", (0, 2))
    assert (summary.counts, list(count_rows(summary)), summary.warnings) == (None, [], ())
    assert headline(summary) == "unknown records in, unknown out"


def test_share_of_late_records_is_not_judged_when_it_is_unknown(kafka: InMemoryKafka) -> None:
    app = _application(kafka, commit_every_records=2, max_late_share=0, late_share_exceeded="fail")
    _publish(kafka, "a", "no", "b", "c", "d")
    _crash_in_the_middle(app)
    leave_out_counts(kafka, "app")
    assert "max.late.share is not checked" in " ".join(app.run("one", (0, 2)).warnings)


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_nothing_is_called_wrong_when_others_write_between_subtopologies_and_an_attempt_dies(
    kafka: InMemoryKafka, guarantee: str
) -> None:
    app = _application(kafka, commit_every_records=2, processing_guarantee=guarantee)
    _publish(kafka, "a", "no", "b", "c", "d")
    _crash_in_the_middle(app)
    kafka.append("between", b"from elsewhere", b"k", timestamp_ms=1)
    summary = app.run("one", (0, 2))
    assert summary.counts is not None
    assert summary.counts.written["between"] == 4
    assert summary.counts.read["between"] >= 5
    assert (summary.records_in, summary.warnings) == (5, ())


@pytest.mark.parametrize(
    ("read_between", "stop", "said"),
    [
        (3, 3, ""),
        (4, 5, ""),
        (2, 3, "3 records written to between, and 2 read from it"),
        (3, 2, "3 records read from in, whose slice has 2 offsets"),
    ],
)
def test_numbers_of_several_tasks_are_compared_when_each_fits_in_itself(
    read_between: int, stop: int, said: str
) -> None:
    plan = _topology().plan("app")
    counted = {
        "0_0": RecordCounts(read={"in": 3}, written={"between": 3}),
        "1_0": RecordCounts(read={"between": read_between}, written={"out": read_between}),
    }
    tasks = {
        task_id: OffsetMetadata(
            task_id=task_id,
            records_in=sum(counts.read.values()),
            records_out=sum(counts.written.values()),
            counts=PackedCounts.of(counts, plan.subtopology(number)),
        )
        for number, (task_id, counts) in enumerate(counted.items())
    }
    inputs = [FrozenPartition(topic="in", partition=0, start_offset=0, stop_offset=stop)]
    found = audit(plan, tasks, inputs, "one")
    assert [said in line for line in found] == ([True] if said else [])


def test_records_outside_the_interval_stand_apart_when_a_run_keeps_to_it(kafka: InMemoryKafka) -> None:
    for at, value in ((1, "a"), (1_000, "b"), (1_500, "no"), (2_000, "c")):
        kafka.append("in", value.encode(), b"k", timestamp_ms=at)
    app = _application(kafka, autostop_at="interval")
    summary = app.run("one", interval_ms=(1_000, 2_000))
    assert summary.counts is not None
    assert (summary.counts.read["in"], summary.counts.outside) == (2, {"in": summary.records_skipped})
    assert (summary.records_skipped > 0, summary.warnings) == (True, ())


@pytest.mark.parametrize("share", ["1.5", "-0.1", "many", "nan"])
def test_share_is_refused_when_it_is_none(share: str) -> None:
    with pytest.raises(ConfigError, match=r"max\.late\.share"):
        _ = _application(InMemoryKafka(), max_late_share=share).checked


@pytest.mark.promise("results-that-are-gone-are-said")
@pytest.mark.parametrize("anew", [True, False])
def test_run_says_that_an_output_topic_was_deleted_after_its_tasks_wrote(
    kafka: InMemoryKafka, anew: bool
) -> None:
    app = _application(kafka)
    _publish(kafka, "a")
    app.tasks(app.begin("one"))
    kafka.admin().delete_topics(["out"])
    if anew:
        kafka.create_topic("out")
    (warning,) = app.finish("one").warnings
    assert warning.startswith(
        "output topic out was deleted, and made anew," if anew else "output topic out was"
    )
    assert "results that it had written there by then are gone" in warning
    if not anew:
        kafka.create_topic("out")
    _publish(kafka, "b")
    assert app.run("two").warnings == ()
