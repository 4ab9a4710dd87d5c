"""An application whose ledger an earlier version wrote, without checkpoints, goes on: in the middle of a run,
too.
"""

from __future__ import annotations

import pytest

from airflow_kstreams.batch.inspect.cluster_view import ClusterView
from airflow_kstreams.batch.inspect.conditions import RunFinished
from airflow_kstreams.batch.inspect.finished_runs import FinishedRuns
from airflow_kstreams.batch.inspect.status import read_status
from airflow_kstreams.batch.ledger.ledger import Ledger, read_ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.report.asset_events import event_extra
from airflow_kstreams.batch.report.reading import finished_run
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.batch.reset.scenario import ToOffset
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.earlier_version import forget_checkpoints
from tests.support.kafka.in_process import Application
from tests.support.kafka.word_counts import APP, EXACT, WORDS, counting, counts, kafka_with_words

IN = TopicPartition("in", 0)


@pytest.fixture
def kafka() -> InMemoryKafka:
    return kafka_with_words()


@pytest.fixture
def app(kafka: InMemoryKafka) -> Application:
    return counting(kafka)


def ledger_of(kafka: InMemoryKafka) -> Ledger:
    return read_ledger(kafka, APP, clock=kafka.clock)


def more(kafka: InMemoryKafka, count: int = 1) -> None:
    for _ in range(count):
        kafka.append("in", b"z", b"z")


def earlier_runs(app: Application, kafka: InMemoryKafka, count: int) -> list[RunSummary]:
    """Runs whose records an earlier version has written."""
    done = []
    for number in range(count):
        done.append(app.run(f"r{number}", interval_ms=(number, number + 1)))
        kafka.clock.sleep(60)
        more(kafka)
    forget_checkpoints(kafka, APP)
    return done


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("runs", [1, 30])
def test_run_that_an_earlier_version_began_is_finished_and_the_next_begins(
    app: Application, kafka: InMemoryKafka, runs: int, compacted: bool
) -> None:
    earlier = earlier_runs(app, kafka, runs)
    slice_ = app.begin("middle")
    forget_checkpoints(kafka, APP)
    assert ledger_of(kafka).checkpoint is None
    if compacted:
        kafka.compact(f"{APP}-runs")
    app.tasks(slice_)
    middle = app.finish("middle")
    assert middle.inputs[0].start_offset == earlier[-1].inputs[0].stop_offset
    ledger = ledger_of(kafka)
    assert ledger.checkpoint is not None
    assert ledger.last() == ledger.find("middle")
    assert [run.run_id for run in ledger.latest(2)] == [earlier[-1].run_id, "middle"]
    assert [*ledger.all_runs()] == [*(run.run_id for run in earlier), "middle"]
    for run in earlier:
        found = ledger_of(kafka).find(run.run_id)
        assert found is not None
        assert found.inputs == run.inputs, "entries of earlier versions keep their details"
        assert finished_run(kafka, APP, run.run_id) == found
        assert event_extra(found) == event_extra(run)
        assert app.coordinator().finished(run.run_id) == found
    kafka.expire_offsets(APP)
    more(kafka)
    last = app.run("last")
    assert last.inputs[0].start_offset == middle.inputs[0].stop_offset
    assert counts(kafka)[: len(EXACT)] == EXACT


def test_committed_offsets_that_are_gone_are_known_when_only_an_earlier_version_ran(
    app: Application, kafka: InMemoryKafka
) -> None:
    (run,) = earlier_runs(app, kafka, 1)
    kafka.expire_offsets(APP)
    kafka.admin().delete_topics([f"{APP}-metadata"])
    ledger = ledger_of(kafka)
    assert ledger.stops[IN] == run.inputs[0].stop_offset == len(WORDS)
    assert ledger.topic_ids["in"] == run.topic_ids["in"]
    assert {f"{IN}": ledger.past.left["in"].times_of(IN)} == run.partition_times


def test_people_and_sensors_see_what_an_earlier_version_finished(
    app: Application, kafka: InMemoryKafka
) -> None:
    earlier = earlier_runs(app, kafka, 12)
    status = read_status(kafka, APP, clock=kafka.clock)
    assert [run.run_id for run in status.runs] == [run.run_id for run in earlier[-10:]]
    assert [run.records_in for run in status.runs] == [run.records_in for run in earlier[-10:]]
    with ClusterView(kafka, clock=kafka.clock) as view:
        for number, run in enumerate(earlier):
            for condition in (
                RunFinished(application_id=APP, run_id=run.run_id),
                RunFinished(application_id=APP, interval_ms=(number, number + 1)),
            ):
                result = condition.evaluate(view)
                assert result is not None
                assert (result["run_id"], result["records_in"]) == (run.run_id, run.records_in)
                assert result["records_per_topic"] == {
                    "in": run.inputs[0].stop_offset - run.inputs[0].start_offset
                }
        assert RunFinished(application_id=APP, run_id="r99").evaluate(view) is None
    with FinishedRuns(kafka, APP, name="follower", from_start=True) as runs:
        assert [run.run_id for _, run in runs.until_now()] == [run.run_id for run in earlier]


@pytest.mark.parametrize("finished_since", [0, 1])
def test_reset_takes_back_what_earlier_versions_finished(
    app: Application, kafka: InMemoryKafka, finished_since: int
) -> None:
    earlier = earlier_runs(app, kafka, 4)
    for number in range(finished_since):
        app.run(f"since-{number}")
    request = ResetRequest(
        application_id=APP,
        input_topics=("in",),
        scenario=ToOffset(offset=earlier[1].inputs[0].stop_offset),
    )
    with ApplicationReset(kafka, request, settings=app.checked, clock=kafka.clock) as reset:
        done = reset.run()
    since = [f"since-{number}" for number in range(finished_since)]
    assert list(done.taken_back) == ["r2", "r3", *since]
    ledger = ledger_of(kafka)
    assert sorted(ledger.taken_back) == ["r2", "r3", *since]
    assert [run.run_id for run in ledger.latest(9)] == ["r0", "r1"]
    assert [ledger.find(run.run_id) is not None for run in earlier] == [True, True, False, False]
    again = app.run("r3")
    assert again.inputs[0].start_offset == earlier[1].inputs[0].stop_offset
    assert ledger_of(kafka).find("r3") is not None
    assert [run.run_id for run in ledger_of(kafka).latest(9)] == ["r0", "r1", "r3"]
