"""A page of runs, however long the history is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import pytest

from airflow_kstreams.batch.inspect.runs.run_in_full import read_run
from airflow_kstreams.batch.inspect.runs.seen_runs import PAGE, RunFilter, SeenRuns, read_runs
from airflow_kstreams.batch.ledger.history import Attempt, Failure, Histories, How, RunHistory
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.figures.record_counts import LeftOut, RecordCounts
from airflow_kstreams.streams.ports import Fetched
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka, ManualClock
from tests.support.kafka.ledger_history import APP, LedgerHistory
from tests.support.kafka.word_counts import counting, kafka_with_words

T = TypeVar("T")
HOUR_MS = 3_600_000


@pytest.fixture
def history() -> LedgerHistory:
    kafka = InMemoryKafka(clock=ManualClock(now_ms=1_700_000_000_000))
    kafka.create_topic("in")
    return LedgerHistory(kafka=kafka)


class Looked:
    """Counts the requests of a look, and the records that it got."""

    def __init__(self, kafka: InMemoryKafka) -> None:
        self.cluster, self.calls, self.records = FaultyCluster(kafka, self), 0, 0

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        found = effect()
        self.calls += 1
        if isinstance(found, Fetched):
            self.records += sum(map(len, found.records.values()))
        return found


def page(history: LedgerHistory, settings: dict[str, object] | None = None, **given: Any) -> SeenRuns:
    checked = ApplicationSettings.parse(APP, settings)
    return read_runs(history.kafka, checked, clock=history.kafka.clock, **given)


@pytest.mark.promise("inspect-bounded")
def test_a_page_costs_the_same_when_the_history_is_five_times_as_long(history: LedgerHistory) -> None:
    costs = []
    for runs in (80, 320):
        history.finish_many(runs)
        looked = Looked(history.kafka)
        found = read_runs(looked.cluster, ApplicationSettings.parse(APP), clock=history.kafka.clock)
        assert len(found.runs) == PAGE
        costs.append((looked.calls, looked.records))
    assert costs[1] == pytest.approx(costs[0], rel=0.1)


@pytest.mark.promise("inspect-bounded")
def test_runs_before_a_reset_are_seen_without_reading_the_whole_ledger(history: LedgerHistory) -> None:
    history.finish_many(400)
    history.take_back(history.finished[395])
    history.finish_many(3)
    looked = Looked(history.kafka)

    found = read_runs(looked.cluster, ApplicationSettings.parse(APP), count=20, clock=history.kafka.clock)

    assert [run.run_id for run in found.runs if run.state == "finished"] == history.finished[::-1][:19]
    assert found.runs[0].state == "taken back"
    assert looked.records < 400


def test_pages_follow_one_another_until_the_first_run(history: LedgerHistory) -> None:
    history.finish_many(25)
    seen: list[str] = []
    before: str | None = None
    while found := page(history, count=10, before=before):
        seen += [run.run_id for run in found.runs]
        before = found.next_before
        if before is None:
            break
    assert seen == history.finished[::-1]


@pytest.mark.promise("inspect-bounded")
def test_what_was_not_looked_at_is_said_when_few_runs_fit(
    history: LedgerHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_kstreams.batch.inspect.runs.seen_runs._MOST_ENTRIES", 10)
    history.finish_many(30)
    found = page(history, only=RunFilter(dag_id="other"))
    assert (found.runs, found.looked_at) == ((), 10)
    assert found.not_seen == (f"only 10 runs could be looked at, down to {history.finished[20]}",)
    assert found.next_before == history.finished[20]


def test_runs_are_chosen_by_dag_state_and_time(history: LedgerHistory) -> None:
    begun = history.kafka.clock.now_ms()
    for number in range(6):
        history.finish(f"r{number}", dag_id="even" if number % 2 == 0 else "odd")
        history.kafka.clock.sleep(3_600)
    only = RunFilter(dag_id="even", since_ms=begun + HOUR_MS, until_ms=begun + 4 * HOUR_MS)
    assert [run.run_id for run in page(history, only=only).runs] == ["r2"]
    assert page(history, only=RunFilter(states=frozenset({"unfinished"}))).runs == ()


def test_unknown_ids_are_refused(history: LedgerHistory) -> None:
    with pytest.raises(ConfigError, match="no application 'other'"):
        read_runs(history.kafka, ApplicationSettings.parse("other"))
    with pytest.raises(ConfigError, match="'app' has no run 'r9'"):
        page(history, before="r9")


def test_run_under_way_stands_first_with_what_its_tasks_have_committed() -> None:
    kafka = kafka_with_words()
    application = counting(kafka)
    application.run("one")
    kafka.append("in", b"c", b"c")
    coordinator = application.coordinator()
    slice_ = application.begin("two", coordinator=coordinator)

    first, second = read_runs(kafka, application.checked, clock=kafka.clock).runs

    assert (first.run_id, first.state, first.records_in, first.finished_ms) == ("two", "under way", 0, None)
    assert (second.run_id, second.state, second.records_in, second.records_out) == ("one", "finished", 5, 5)
    coordinator.close()
    application.tasks(slice_)
    first = read_runs(kafka, application.checked, clock=kafka.clock).runs[0]
    assert (first.state, first.records_in, first.records_out) == ("unfinished", 1, 1)


def test_what_is_odd_about_a_run_is_said_with_rule_and_figures(history: LedgerHistory) -> None:
    usual = RecordCounts(read={"in": 1000})
    for number in range(5):
        history.finish(f"r{number}", counts=usual)
        history.kafka.clock.sleep(3_600)
    history.finish("few", counts=RecordCounts(read={"in": 10}))
    late = RecordCounts(read={"in": 1000}, left_out=(LeftOut("KSTREAM-AGGREGATE-1", "late", 50),))
    history.finish("late", counts=late)
    history.kafka.clock.sleep(4 * 3_600)
    history.finish("nothing", counts=RecordCounts(), empty=True)

    nothing, late_run, few, *others = page(history).runs

    assert [odd.rule for run in others for odd in run.suspicions] == []
    assert [(odd.rule, odd.figure, odd.usual, odd.threshold) for odd in few.suspicions] == [
        ("fewer", 10, 1000, 5)
    ]
    assert [(odd.rule, odd.setting, odd.figure, odd.usual) for odd in late_run.suspicions] == [
        ("share", "suspicion.lost.share", 0.05, 0)
    ]
    assert [odd.text for odd in nothing.suspicions] == [
        "nothing new has come for 4 h, usually it does within 1 h"
    ]
    assert [run.run_id for run in page(history, only=RunFilter(suspicious=True)).runs] == [
        "nothing",
        "late",
        "few",
    ]
    assert not page(history, {"suspicion.records.times": 200}).runs[2].suspicions


def test_nothing_is_odd_before_it_is_known_what_is_usual(history: LedgerHistory) -> None:
    for number, records in enumerate((1000, 1000, 1)):
        history.finish(f"r{number}", counts=RecordCounts(read={"in": records}))
    assert not any(run.suspicions for run in page(history).runs)


@pytest.mark.remedy("seen_runs.unknown_run")
def test_ids_that_the_remedy_lists_are_known(history: LedgerHistory) -> None:
    history.finish_many(3)
    with pytest.raises(ConfigError) as refused:
        page(history, before="r9")
    assert refused.value.fix == "take an id from: airflow-kstreams runs --application-id app"
    newest = page(history).runs[0].run_id
    assert [run.run_id for run in page(history, before=newest).runs] == history.finished[:2][::-1]


def test_runs_that_failed_are_shown_with_cause_and_remedy(history: LedgerHistory) -> None:
    history.finish("r0")
    failure = Failure(kind="TopologyError", cause="topic 'in' does not exist", remedy="create it")
    attempt = Attempt(part="driver", owner="x", order=(0, 1), begun_ms=1_700_000_000_000)
    failed = RunHistory(
        run_id="r1", attempts=(attempt.ended(How.FAILED, 1_700_000_001_000, failure=failure),)
    )
    done = RunHistory(run_id="r0", attempts=failed.attempts)
    history.tell(Histories(runs=(done, failed)))

    first, second = page(history).runs

    assert (first.run_id, first.state, first.failure, first.records_in) == ("r1", "failed", failure, None)
    assert (second.run_id, second.state, second.failure) == ("r0", "finished", None)
    checked = ApplicationSettings.parse(APP)
    full = read_run(history.kafka, checked, "r1", clock=history.kafka.clock)
    assert (full.run.state, full.history) == ("failed", failed)


def test_failure_of_an_unfinished_run_is_shown_until_a_driver_works_on_it() -> None:
    kafka = kafka_with_words()
    application = counting(kafka)
    kafka.clock.sleep(1)
    application.begin("one")
    failure = Failure(kind="RecordError", cause="in-0@3 cannot be decoded", remedy="skip it")
    attempt = Attempt(part="driver", owner="x", order=(0, 1), begun_ms=1)
    told = LedgerHistory(kafka=kafka)
    ended = attempt.ended(How.FAILED, 2, failure=failure)
    told.tell(Histories(runs=(RunHistory(run_id="one", attempts=(ended,)),)))

    (working,) = read_runs(kafka, application.checked, clock=kafka.clock).runs

    assert (working.state, working.failure) == ("under way", None), "its lease is held"
    lease = told.read().held_lease
    assert lease is not None
    told.claimed()
    told.session.write((), lease=msgspec.structs.replace(lease, expires_ms=0))
    (failed,) = read_runs(kafka, application.checked, clock=kafka.clock).runs
    assert (failed.run_id, failed.state, failed.failure, failed.attempts) == ("one", "failed", failure, 1)
