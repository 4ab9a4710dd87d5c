"""Records that a program writes in the place of the engine's own: what reads them raises errors of ours only,
and takes no more memory or time than the records are worth.

A record is made from one that the engine wrote, by a change at one place: of its key, its value, a header, or
at any depth of the JSON in one of these.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kstreams.batch.evidence.run_facts import RunFacts
from airflow_kstreams.batch.growing.expansion_rules import Expansion
from airflow_kstreams.batch.ledger.history import Attempt, Failure, Histories, How, RunHistory
from airflow_kstreams.batch.ledger.ledger import Ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.checked_reading import UnreadableError, read_json
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata, TaskMetrics
from airflow_kstreams.batch.protocol.replay_records import Replay, decode_replays, encode_replay
from airflow_kstreams.batch.protocol.slice.metadata import fold
from airflow_kstreams.batch.protocol.slice.metadata_records import MetadataRecord, finished_record
from airflow_kstreams.batch.protocol.step_times import StepTimes
from airflow_kstreams.batch.reset.ledger_repair import plan_repair, repair
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.batch.run.begin.left_unread import written_to
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.partitioning.processors import Processors
from airflow_kstreams.streams.ports import Record
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.bounded_process import outcome_of
from tests.support.fuzzing.poison import HOLE, PARTS, changed_json, poisoned
from tests.support.kafka.ledger_history import APP, LEDGER, LedgerHistory
from tests.support.kafka.metadata_log import a_slice, log_of, second_run

pytestmark = pytest.mark.promise("own-topics-can-be-poisoned")


def an_attempt() -> Attempt:
    failure = Failure(kind="RecordError", cause="in-0@7: no number", remedy="mend it")
    begun = Attempt(part="driver", owner="x", order=(0, 1), begun_ms=1, generation=1)
    return begun.ended(How.FAILED, 5, failure=failure, steps=[StepTimes("process", 2, 4, 0, "0_0", 1)])


def only_ours(read: Callable[[], object]) -> bool:
    """Return whether something was read; every error is one of ours, and says what to do."""
    try:
        read()
    except KStreamsError as error:
        assert error.fix
        return False
    return True


@given(seed=st.integers(0, 2**32))
def test_metadata_topic_is_read_or_refused_whatever_stands_in_it(seed: int) -> None:
    random = Random(seed)
    first, later = second_run()
    log = first + random.choice((later, []))
    at = random.randrange(len(log))
    log.insert(random.randrange(at, len(log)) + 1, poisoned(log[at], random))

    def read() -> None:
        folded = fold(log_of(log), APP, topics=("A", "B", "I"))
        facts = RunFacts(APP, Ledger(), folded)
        assert folded.reached is not None
        assert len(facts.last_tasks.transactional_ids or ()) <= 200_000
        written_to(facts)
        facts.disagreements()
        if folded.slice is not None and not folded.torn:
            finished_record(folded.slice, owner="x")

    only_ours(read)


@given(seed=st.integers(0, 2**32))
def test_ledger_is_read_or_refused_whatever_stands_in_it(seed: int) -> None:
    random = Random(seed)
    history = LedgerHistory(kafka=InMemoryKafka(clock=ManualClock()), partitions=2)
    history.finish_many(2)
    history.tell(Histories(runs=(RunHistory(run_id="r", attempts=(an_attempt(),)),)))
    history.renew()
    record = poisoned(_as_written(random.choice(history.kafka.records(LEDGER))), random)
    history.kafka.append(LEDGER, record.value, record.key, headers=record.headers)

    def read() -> None:
        ledger = history.read()
        runs = [*ledger.latest(5), *ledger.all_runs().values()]
        for run in runs:
            ledger.detailed(run)
            list(ledger.before(run))
        ledger.find(history.finished[0])
        assert ledger.histories().unreadable in (0, 1) or ledger.histories().runs
        assert (ledger.stops, ledger.topic_ids, ledger.left_at(["in"])) is not None

    only_ours(read)


@pytest.mark.promise("ledgers-are-repaired")
@given(seed=st.integers(0, 2**32))
def test_ledger_is_repaired_without_loss_whatever_stands_in_it(seed: int) -> None:
    random = Random(seed)
    history = LedgerHistory(kafka=InMemoryKafka(clock=ManualClock()), partitions=2)
    history.finish_many(3)
    history.tell(Histories(runs=(RunHistory(run_id="r", attempts=(an_attempt(),)),)))
    history.renew()
    before, written = history.read(), history.kafka.records(LEDGER)
    for _ in range(random.choice((1, 1, 2, 3, 5))):
        record = poisoned(_as_written(random.choice(written)), random)
        history.kafka.append(LEDGER, record.value, record.key, headers=record.headers)
    if random.random() < 0.3:
        history.kafka.compact(LEDGER)
    records = history.kafka.records(LEDGER)
    entries, unread = _readable(records)

    request = ResetRequest(application_id=APP, repair_ledger=True, force=True)
    planned = plan_repair(history.session, request)
    plan = repair(history.session, request)

    assert (plan.repaired, plan.lost) == (planned.repaired, planned.lost)
    after = history.session.read_ledger()
    assert [(name, run.finished_ms) for name, run in after.all_runs().items()] == [*entries.items()]
    if plan.repaired:
        said = "\n".join(plan.lost)
        assert all(f"{LEDGER}-0@{offset}" in said for offset in unread)
        assert "partition groups" in said or after.assignment == before.assignment
        assert after.latest(1) == after.latest(5)[-1:]
        for run in after.all_runs().values():
            list(after.before(after.detailed(run)))
    assert not repair(history.session, request).repaired


def _as_written(record: Record) -> MetadataRecord:
    return MetadataRecord(LEDGER, record.value(), record.key() or b"", record.headers())


def _readable(records: Sequence[Record]) -> tuple[dict[str, int], list[int]]:
    """Return when each run finished that a record tells of, in this order, and which tell nothing."""
    entries: dict[str, int] = {}
    unread: dict[bytes, int] = {}
    for record in records:
        key, value = record.key() or b"", record.value()
        if not key or key.startswith(b"__"):
            continue
        unread.pop(key, None)
        name = key.decode(errors="replace")
        if value is None:
            entries.pop(name, None)
            continue
        try:
            run = read_json(value, RunSummary)
        except UnreadableError:
            unread[key] = record.offset()
        else:
            entries.pop(name, None)
            entries[name] = run.finished_ms
    return entries, [*unread.values()]


def test_texts_beside_offsets_are_read_or_are_anothers() -> None:
    random = Random(7)
    metrics = TaskMetrics(active_ns=3)
    known = OffsetMetadata(run_id="r", task_id="0_1", records_in=4, parked={"node": 1}, metrics=metrics)
    copying = Expansion(before=2, after=Processors(4, (2, 4), "linear"), topic_id="id", stepped_ms=1)
    for _ in range(300):
        for kind, text in ((OffsetMetadata, known.encode()), (Expansion, copying.encode())):
            data = changed_json(text.encode(), random).decode(errors="replace")
            found = kind.decode(data)
            assert found is None or isinstance(found, kind)


def test_replays_are_read_or_refused_whatever_stands_in_their_topic() -> None:
    random = Random(7)
    replay = Replay(
        replay_id="r1", dead_letter_topic="d", topic_id="id", begun_ms=1, stops={0: 5}, positions={0: 2}
    )
    good = encode_replay(replay)
    for _ in range(300):
        record = poisoned(good, random)
        only_ours(lambda record=record: decode_replays(log_of([good, record])))  # type: ignore[misc]


def test_hostile_records_take_no_more_memory_or_time_than_their_size() -> None:
    def work() -> None:
        slice_ = a_slice()
        wide = [f'"t{number}":200000' for number in range(20_000)]
        for name in ("partitions", "tasks", "intermediate_starts", "groups", "topic_ids"):
            for part in (*PARTS, "{" + ",".join(wide) + "}"):
                plan = json.loads(msgspec.json.encode(slice_.plan))
                plan[name] = HOLE
                data = json.dumps(plan).replace(json.dumps(HOLE), part).encode()
                first, later = second_run()
                marker = later[-1]
                headers = [
                    (header, data if header == "kstreams.plan" else value)
                    for header, value in marker.headers or ()
                ]
                log = [*first, *later, marker._replace(headers=headers)]
                only_ours(
                    lambda log=log: (
                        RunFacts(  # type: ignore[misc]
                            APP, Ledger(), fold(log_of(log), APP)
                        ).last_tasks
                    )
                )

    assert outcome_of(work) == ""
