"""What the ledger keeps of attempts: found from the log's end, bounded, and never in the way of a read."""

from __future__ import annotations

import msgspec
import pytest

from airflow_kstreams.batch.ledger.history import (
    HISTORY_KEY,
    MOST_ATTEMPTS,
    MOST_BYTES,
    MOST_RUNS,
    MOST_TEXT,
    Attempt,
    Failure,
    Histories,
    How,
    RunHistory,
    how_ended,
)
from airflow_kstreams.batch.protocol.step_times import StepTimes
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError, KilledError, ReportedError
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.ledger_history import LEDGER, LedgerHistory


def attempt(number: int = 1, **more: object) -> Attempt:
    given = {"part": "driver", "owner": "a driver", "order": (0, number), "begun_ms": 1_000 * number, **more}
    return msgspec.convert(given, Attempt)


def run(run_id: str, *attempts: Attempt) -> RunHistory:
    return RunHistory(run_id=run_id, attempts=attempts)


@pytest.mark.promise("failures-are-kept")
def test_history_is_found_from_the_end_when_leases_checkpoints_and_runs_follow() -> None:
    history = LedgerHistory(kafka=InMemoryKafka())
    history.finish_many(1)
    told = Histories(runs=(run("r", attempt().ended(How.LOST, 5)),))
    history.tell(told)
    assert history.read().histories() == told
    history.renew(30)
    assert history.read().histories() == told
    # A checkpoint that follows names it, too, and so does the lease behind that.
    history.take_back(history.finished[0])
    assert history.read().histories() == told
    history.finish_many(1)
    history.renew(20)
    history.kafka.compact(LEDGER)
    assert history.read().histories() == told
    assert history.session.read_ledger().histories() == told
    history.tell(Histories())
    assert history.read().histories() == Histories()
    assert history.read().history("r") is None


def test_earlier_read_goes_on_to_a_history_that_was_written_since() -> None:
    from airflow_kstreams.batch.ledger.ledger import read_ledger
    from tests.support.kafka.ledger_history import APP

    history = LedgerHistory(kafka=InMemoryKafka())
    history.finish_many(8)
    before = history.read()
    told = Histories(runs=(run("r", attempt()),))
    history.tell(told)
    history.renew(40)
    now = read_ledger(history.kafka, APP, clock=history.kafka.clock, before=before)
    assert now.histories() == told
    assert [each.run_id for each in now.latest(8)] == history.finished


@pytest.mark.parametrize("value", [b"", b"\xff", b"{}x", b'{"runs":[{"run_id":1}]}', b'{"unreadable":1e400}'])
def test_unreadable_history_is_counted_and_stops_no_read(value: bytes) -> None:
    history = LedgerHistory(kafka=InMemoryKafka())
    history.finish_many(1)
    history.tell(Histories(runs=(run("r", attempt()),)))
    history.foreign(value, HISTORY_KEY.encode())
    ledger = history.claimed()
    assert ledger.histories() == Histories(runs=(run("r", attempt()),))  # as the lease names it
    history.kafka.compact(LEDGER)
    ledger = history.claimed()
    assert ledger.histories() == Histories.decode(value) == Histories(unreadable=1)
    assert [each.run_id for each in ledger.latest(5)] == history.finished
    history.finish_many(1)
    assert [each.run_id for each in history.read().latest(5)] == history.finished


def test_details_of_a_finished_run_have_its_history_for_as_long_as_they_are_kept() -> None:
    history = LedgerHistory(kafka=InMemoryKafka(), details_kept=2)
    told = run("r", attempt(1).ended(How.LOST, 1_500), attempt(2).ended(How.FINISHED, 3_000))
    history.finish("r", history=told, attempts=2)
    assert history.read().history("r") == told
    entry = history.read().find("r")
    assert entry is not None
    assert (entry.attempts, entry.history) == (2, None)
    history.finish_many(2)
    assert history.read().history("r") is None


def test_attempt_has_no_try_when_a_person_started_its_driver() -> None:
    assert attempt(3).trial == 3
    assert [attempt(order=(0, number)).trial for number in (0, 1_795_964_381_750)] == [None, None]


def test_first_and_last_attempts_stay_when_there_are_many() -> None:
    found = RunHistory(run_id="r")
    of_task = StepTimes("process", 1, 2, 0, "0_0")
    of_all = StepTimes("process", 1, 2, 0)
    for number in range(1, MOST_ATTEMPTS + 11):
        found = found.with_attempt(attempt(number, steps=[of_all, of_task]))
    assert [each.trial for each in found.attempts] == [1, *range(12, MOST_ATTEMPTS + 11)]
    assert (found.omitted, found.number) == (10, MOST_ATTEMPTS + 10)
    assert found.attempts[-1].steps == (of_all, of_task)
    assert {each.steps for each in found.attempts[:-1]} == {(of_all,)}


def test_record_is_bounded_whatever_happened() -> None:
    long = "\N{SNOWMAN}" * 5_000
    failure = Failure.of(ConfigError(long, fix=long))
    assert (len(failure.cause), len(failure.remedy)) == (MOST_TEXT, MOST_TEXT)
    steps = [StepTimes("process", 2**40, 2**40 + n, n, f"{n}_0", n) for n in range(150)]
    histories = Histories()
    for name in range(MOST_RUNS + 5):
        each = RunHistory(run_id=f"r{name}")
        for number in range(MOST_ATTEMPTS):
            each = each.with_attempt(attempt(number).ended(How.FAILED, 2**40, failure=failure, steps=steps))
        histories = histories.with_run(each)
    assert len(histories.runs) == MOST_RUNS
    encoded = histories.encode()
    assert len(encoded) <= MOST_BYTES
    last = Histories.decode(encoded).last
    assert last is not None
    assert last.run_id == f"r{MOST_RUNS + 4}"
    assert last.number == MOST_ATTEMPTS
    assert last.failure == failure
    assert len(Histories().with_run(each, most_runs=1).with_run(run("x"), most_runs=1).runs) == 1


@pytest.mark.promise("errors-hold-no-values")
def test_failure_has_class_code_cause_and_remedy_and_no_words_of_others() -> None:
    error = KafkaClientError("in-0@7: no answer", fix="retry", kafka_code="_TRANSPORT", retriable_code=True)
    error.trace = "the value was 'secret'"
    expected = Failure(
        kind="KafkaClientError",
        code="KS-KAFKA-001",
        kafka_code="_TRANSPORT",
        cause="in-0@7: no answer",
        remedy="retry",
        retriable=True,
    )
    assert Failure.of(error) == expected
    assert Failure.of(ReportedError.from_dict(error.to_dict())) == expected
    other = Failure.of(ValueError("'secret'"))
    assert other.kind == "ValueError"
    assert "secret" not in msgspec.json.encode([other, Failure.of(error)]).decode()


def test_way_of_an_end_follows_from_the_error() -> None:
    assert how_ended(None, otherwise=How.DONE) is How.DONE
    assert how_ended(ConfigError("x"), otherwise=How.DONE) is How.FAILED
    assert how_ended(ValueError("x"), otherwise=How.DONE) is How.FAILED
    assert how_ended(KilledError("x"), otherwise=How.DONE) is How.STOPPED
    assert how_ended(KeyboardInterrupt(), otherwise=How.DONE) is How.STOPPED


def test_attempts_without_an_end_get_one_when_the_next_begins() -> None:
    ended = attempt(1).ended(How.FAILED, 1_200)
    noted = run("r", ended, attempt(2)).noted(How.LOST, 2_700)
    assert noted.attempts == (ended, attempt(2).ended(How.LOST, 2_700))
    assert run("r", attempt(2)).noted(How.LOST, 0).attempts[0].ended_ms == attempt(2).begun_ms
