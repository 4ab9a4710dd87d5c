"""The ledger is read from its end, runs are found by offsets, and neither is trusted blindly."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

import msgspec
import pytest

from airflow_kstreams.batch.ledger import run_search, writes
from airflow_kstreams.batch.ledger.fold import CHECKPOINT_KEY, LEASE_KEY
from airflow_kstreams.batch.ledger.ledger import Ledger, read_ledger
from airflow_kstreams.batch.ledger.past_runs import INDEX_KEY, LEAF_ENTRIES, digest_of
from airflow_kstreams.batch.ledger.run_summary import DETAILS_KEY
from airflow_kstreams.batch.protocol.slice import metadata_records
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from tests.support.kafka.interception import Once
from tests.support.kafka.ledger_history import APP, LEDGER, LedgerHistory

T = TypeVar("T")


@pytest.fixture
def history() -> LedgerHistory:
    return LedgerHistory(kafka=InMemoryKafka())


def stop(ledger: Ledger) -> int | None:
    return ledger.stops.get(TopicPartition("in", 0))


def test_everything_is_found_when_many_runs_have_finished(history: LedgerHistory) -> None:
    for number in range(3 * LEAF_ENTRIES):
        history.finish(f"run-{number}", interval_ms=(number, number + 1))
    history.kafka.compact(LEDGER)
    ledger = history.read()
    assert ledger.archive.indexed
    for number in (0, 1, LEAF_ENTRIES, 3 * LEAF_ENTRIES - 1):
        found, by_interval = ledger.find(f"run-{number}"), ledger.find_interval((number, number + 1))
        assert found is not None
        assert found.run_id == f"run-{number}"
        assert found == by_interval
        assert (found.records_in, found.records_out, found.task_count) == (1, 2, 1)
    assert ledger.find("run-none") is None
    assert ledger.find_interval((7, 7)) is None
    assert [run.run_id for run in ledger.latest(3)] == history.finished[-3:]
    last = ledger.last()
    assert last is not None
    assert (last.run_id, stop(ledger)) == (history.finished[-1], len(history.finished))
    assert ledger.topic_ids == {"in": "id-in"}
    assert ledger.past.finished == len(history.finished)
    assert ledger.archive.indexed, "nothing of that took all of the log"


def test_only_leases_lie_between_the_checkpoint_and_the_end_when_a_driver_renews(
    history: LedgerHistory,
) -> None:
    history.finish("r1")
    lease = history.renew(times=60)
    ledger = history.read()
    assert ledger.lease is not None
    assert ledger.lease.owner_run_id == lease.owner_run_id
    assert ledger.checkpoint == ledger.lease.checkpoint
    assert stop(ledger) == 1
    assert ledger.find("r1") is not None
    assert ledger.archive.indexed


def test_ledger_is_the_same_from_its_end_and_from_its_beginning_whatever_happened() -> None:
    """The tail against the fold of everything, and both against what was done."""
    for seed in range(20):
        random = Random(seed)
        history = LedgerHistory(
            kafka=InMemoryKafka(random=Random(seed)), details_kept=random.choice((1, 3, 50))
        )
        taken_back: set[str] = set()
        for number in range(random.randint(1, 40)):
            action = random.random()
            if action < 0.6 or not history.finished:
                again = sorted(taken_back) if random.random() < 0.3 else []
                run_id = random.choice(again or [f"run-{number}"])
                interval_ms = random.choice((None, (number // 3, number)))
                history.finish(run_id, interval_ms=interval_ms, begun_ms=number + 1, empty=number % 3 == 1)
                taken_back.discard(run_id)
            elif action < 0.75:
                history.renew(random.randint(1, 20))
            elif action < 0.85:
                gone = random.sample(history.finished, random.randint(1, len(history.finished)))
                history.take_back(*gone)
                taken_back |= {*gone}
            elif action < 0.92:
                history.session.claim()
            else:
                history.kafka.compact(LEDGER, drop_tombstones=random.random() < 0.5)
            check(history, taken_back, seed)


def check(history: LedgerHistory, taken_back: set[str], seed: int) -> None:
    ledger = read_ledger(history.kafka, APP, clock=history.kafka.clock)
    whole = ledger.all_runs()
    again = read_ledger(history.kafka, APP, clock=history.kafka.clock)
    assert list(whole) == history.finished, seed
    assert [run.run_id for run in again.latest(5)] == history.finished[-5:], seed
    assert again.past.finished == len(history.finished), seed
    with_records = [run.begun_ms for run in whole.values() if not run.empty]
    assert again.past.new_ms == (with_records[-1] if with_records else 0), seed
    last = again.last()
    assert ([] if last is None else [last.run_id]) == history.finished[-1:], seed
    assert {*again.taken_back} <= taken_back, seed
    assert len(again.taken_back) == min(len(taken_back), 10), seed
    fresh = read_ledger(history.kafka, APP, clock=history.kafka.clock)
    for run_id in {*history.finished, *taken_back, "run-none"}:
        found = fresh.find(run_id)
        assert (None if found is None else found.run_id) == (run_id if run_id in whole else None), seed
        if found is not None and found.interval_ms is not None:
            of_interval = [run for run in whole.values() if run.interval_ms == found.interval_ms]
            newest = fresh.find_interval(found.interval_ms)
            assert newest == of_interval[-1], seed


@pytest.mark.promise("finished-is-known-for-good")
def test_details_expire_when_their_slot_is_taken_and_finished_never_does() -> None:
    history = LedgerHistory(kafka=InMemoryKafka(), details_kept=2)
    done = [history.finish(f"r{number}") for number in range(4)]
    history.kafka.compact(LEDGER)
    ledger = history.read()
    for number, run in enumerate(done):
        entry = ledger.find(run.run_id)
        assert entry is not None
        assert entry.without_details
        assert (ledger.detailed(entry) == run) == (number >= 2)
        assert ledger.detailed(entry).without_details == (number < 2)
        assert entry.records_in == 1, "the totals stay"


def test_details_of_an_expired_run_are_not_another_runs_when_offsets_are_hit_by_chance(
    history: LedgerHistory,
) -> None:
    first = history.finish("r1")
    second = history.finish("r2")
    ledger = history.read()
    entry = ledger.find("r1")
    assert entry is not None
    assert second.details is not None
    wrong = msgspec.structs.replace(entry, details=second.details)
    assert ledger.detailed(wrong).without_details
    assert ledger.detailed(entry) == first


@pytest.mark.parametrize("key", [b"__unknown__", b""])
def test_all_is_read_when_something_else_stands_at_the_end(history: LedgerHistory, key: bytes) -> None:
    for number in range(10):
        history.finish(f"r{number}")
    history.foreign(b"{}", key)
    ledger = history.read()
    assert not ledger.archive.indexed
    assert list(ledger.all_runs()) == history.finished
    assert ledger.checkpoint is None, "the next lease must not name one"
    history.renew()
    assert not history.read().archive.indexed
    history.finish("r10")
    ledger = history.read()
    assert ledger.archive.indexed, "whole again"


def test_record_that_is_none_of_the_ledgers_is_refused_when_it_stands_at_the_end(
    history: LedgerHistory,
) -> None:
    for number in range(10):
        history.finish(f"r{number}")
    history.foreign(b"not json", b"a-run")
    with pytest.raises(KafkaClientError, match="is not a ledger record") as refused:
        history.read()
    assert refused.value.kafka_code == "BAD_LEDGER"


@pytest.mark.parametrize("strays", range(1, 8))
def test_runs_are_found_all_the_same_when_another_program_writes_between_reading_and_writing(
    history: LedgerHistory, strays: int
) -> None:
    """Every offset that is written points too low; the next run mends it."""
    for number in range(LEAF_ENTRIES + 20):
        history.finish(f"r{number}")
    change = writes.LedgerChange(ledger=history.claimed(), finished=history.summary("late"))
    for _ in range(strays):
        history.foreign(b"x", b"__stray__")
    history.session.write((), ledger=change)
    history.finished.append("late")
    ledger = history.read()
    assert ledger.find("late") is not None
    assert [run.run_id for run in ledger.latest(2)] == [f"r{LEAF_ENTRIES + 19}", "late"]
    assert all(history.read().find(run_id) is not None for run_id in history.finished)
    history.session.claim()
    history.finish("after")
    ledger = history.read()
    for run_id in history.finished:
        assert ledger.find(run_id) is not None
    assert [run.run_id for run in ledger.latest(3)] == history.finished[-3:]
    assert ledger.archive.indexed, "the index was built anew, and the chain is whole"


@pytest.mark.parametrize("hashes", [1, 3])
def test_runs_are_told_apart_when_their_hashes_are_equal(
    history: LedgerHistory, monkeypatch: pytest.MonkeyPatch, hashes: int
) -> None:
    def weak(text: str) -> str:
        return digest_of(str(sum(text.encode()) % hashes))

    monkeypatch.setattr(writes, "digest_of", weak)
    monkeypatch.setattr(run_search, "digest_of", weak)
    for number in range(30):
        history.finish(f"r{number}")
    ledger = history.read()
    for run_id in history.finished:
        found = ledger.find(run_id)
        assert found is not None
        assert found.run_id == run_id
    assert ledger.find("r30") is None
    assert ledger.archive.indexed


def test_newer_checkpoint_is_read_when_the_cleaner_takes_the_old_one_away(history: LedgerHistory) -> None:
    for number in range(10):
        history.finish(f"r{number}")
    history.renew(times=40)

    class Overtaken:
        """Between the look at the end and the read of the checkpoint a run finishes, and the cleaner runs."""

        assigned = 0

        def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
            if name == "reader.assign" and arguments[0]:
                self.assigned += 1
                if self.assigned == 2:
                    history.finish("r10")
                    history.kafka.compact(LEDGER)
            return effect()

    overtaken = Overtaken()
    ledger = read_ledger(FaultyCluster(history.kafka, overtaken), APP, clock=history.kafka.clock)
    assert overtaken.assigned >= 3
    assert stop(ledger) == 11
    assert ledger.find("r10") is not None


def test_ledger_is_read_when_it_grows_between_two_looks_at_its_end(history: LedgerHistory) -> None:
    for number in range(10):
        history.finish(f"r{number}")
    grows = Once("admin.end_offsets", 2, lambda: history.renew(times=20))
    ledger = read_ledger(FaultyCluster(history.kafka, grows), APP, clock=history.kafka.clock)
    assert grows.left <= 0
    assert stop(ledger) == 10


def test_large_ledger_travels_in_pieces_and_a_shorter_one_after_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata_records, "PIECE_BYTES", 2_000)
    history = LedgerHistory(kafka=InMemoryKafka(), partitions=900, details_kept=1)
    large = history.finish("large")
    ledger = history.read()
    assert ledger.detailed(ledger.find("large")) == large  # type: ignore[arg-type]
    assert len(ledger.stops) == 900
    sizes = {record.key(): len(record.value() or b"") for record in history.kafka.records(LEDGER)}
    assert max(sizes.values()) <= 2_000
    assert {f"{CHECKPOINT_KEY}#1".encode(), f"{DETAILS_KEY}0#1".encode()} <= sizes.keys()
    history.partitions = 1
    history.kafka.compact(LEDGER)
    small = history.finish("small")
    history.kafka.compact(LEDGER, drop_tombstones=True)
    ledger = history.read()
    assert ledger.detailed(ledger.find("small")) == small  # type: ignore[arg-type]
    kept = {record.key() for record in history.kafka.records(LEDGER) if record.value() is not None}
    assert not any(b"#" in key for key in kept if key), "pieces are tombstoned"


def test_ledger_is_refused_when_its_checkpoint_is_gone(history: LedgerHistory) -> None:
    history.finish("r1")
    history.foreign(None, CHECKPOINT_KEY.encode())
    history.kafka.compact(LEDGER)
    with pytest.raises(KafkaClientError, match="checkpoint of app-runs is gone"):
        history.read()


def test_ledger_is_refused_when_the_last_checkpoint_stays_torn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_records, "PIECE_BYTES", 500)
    history = LedgerHistory(kafka=InMemoryKafka(), partitions=300)
    history.finish("large")
    history.foreign(b"another", f"{CHECKPOINT_KEY}#0".encode())
    history.kafka.compact(LEDGER)
    with pytest.raises(KafkaClientError) as refused:
        history.read()
    assert refused.value.kafka_code == "TORN_LEDGER"


def test_keys_are_reserved_or_run_ids(history: LedgerHistory) -> None:
    for number in range(LEAF_ENTRIES + 5):
        history.finish(f"r{number}")
    history.renew()
    keys = {(record.key() or b"").decode() for record in history.kafka.records(LEDGER)}
    others = {key for key in keys if key not in history.finished}
    assert {CHECKPOINT_KEY, LEASE_KEY} <= others
    assert all(
        key in (CHECKPOINT_KEY, LEASE_KEY) or key.startswith((DETAILS_KEY, INDEX_KEY)) for key in others
    )
