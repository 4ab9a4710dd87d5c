"""The fold of the metadata topic, on logs that several writers and the log cleaner have been at.

Compaction may drop any record that a later one with the same key follows, and after a while a tombstone, too,
once nothing older of its key is left. What it leaves must fold to the same state.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kstreams.batch.protocol.slice.metadata import Folded, RunState, fold
from airflow_kstreams.batch.protocol.slice.metadata_records import (
    MetadataRecord,
    completed_record,
    done_record,
    finished_record,
    tombstone,
)
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.streams.ports import TopicPartition
from tests.support.kafka.metadata_log import (
    APP,
    a_slice,
    bare,
    compacted,
    frozen,
    log_of,
    records_of,
    second_run,
    stop_record,
)

TOPICS = ("A", "B", "I")
SOURCES = (TopicPartition("A", 0), TopicPartition("A", 1), TopicPartition("B", 0))
TARGETS = (TopicPartition("I", 0), TopicPartition("I", 1))


def folded(log: Sequence[MetadataRecord]) -> Folded:
    return fold(log_of(log), APP, topics=TOPICS)


class Writers:
    """Writes a metadata topic as begin, drivers, tasks of two versions, zombies, finish and others do.

    A writer in the spec's bare format has no transactions, so it may stop after any of its records.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.log: list[MetadataRecord] = []
        self.runs: list[Slice] = []
        self.end = 0

    def write(self, steps: int) -> list[MetadataRecord]:
        actions = (
            self.begin,
            self.take_over,
            self.notify,
            self.notify,
            self.freeze,
            self.finish,
            self.zombie,
        )
        for _ in range(steps):
            self.random.choice((*actions, self.bare_begin, self.bare_notify, self.bare_finish))()
        return self.log

    def begin(self) -> None:
        self.end += self.random.randint(0, 9)
        number = len(self.runs) + 1
        inputs = tuple(frozen(tp.topic, tp.partition, 0, self.end) for tp in SOURCES)
        self.runs.append(a_slice(f"run-{number}", inputs=inputs))
        self.log += [tombstone(APP, key) for key in folded(self.log).live_keys]
        self.log += records_of(self.runs[-1])

    def take_over(self) -> None:
        if self.runs:
            taken = a_slice(
                self.runs[-1].run_id, generation=self.runs[-1].generation + 1, inputs=self.runs[-1].inputs
            )
            self.runs[-1] = taken
            self.log.append(completed_record(taken, owner="another driver"))

    def notify(self, slice_: Slice | None = None) -> None:
        if self.runs:
            self.log.append(done_record(slice_ or self.runs[-1], 0, self.random.randint(0, 1)))

    def freeze(self) -> None:
        if self.runs:
            ends = [self.random.randint(0, 99) for _ in TARGETS]
            self.log += [stop_record(self.runs[-1], *tp, end) for tp, end in zip(TARGETS, ends, strict=True)]

    def zombie(self) -> None:
        """An older run's task, as if nobody had fenced it."""
        if self.runs:
            self.notify(self.random.choice(self.runs))

    def finish(self) -> None:
        if self.runs:
            self.log.append(finished_record(self.runs[-1], owner="x"))

    def bare_begin(self) -> None:
        self.end += self.random.randint(0, 9)
        records = [bare(key.decode(), None) for key in folded(self.log).live_keys]
        records += [bare(f"{tp.topic}_{tp.partition}", str(self.end)) for tp in SOURCES]
        records.append(bare(APP, "0"))
        self.log += records[: self.random.randint(0, len(records))]

    def bare_notify(self) -> None:
        source, target = self.random.choice(SOURCES), self.random.choice(TARGETS)
        key = f"{source.topic}_{source.partition}-{target.topic}_{target.partition}"
        self.log.append(bare(key, str(self.random.randint(0, 99))))

    def bare_finish(self) -> None:
        self.log.append(bare(APP, "1"))


def cleaned(log: Sequence[MetadataRecord], random: Random) -> list[MetadataRecord]:
    """What some passes of the cleaner, each over a part of the log, may leave."""
    left = list(log)
    for _ in range(random.randint(1, 3)):
        upto = random.randint(0, len(left))
        last = {record.key: at for at, record in enumerate(left[:upto])}
        dropped = {at for at in range(upto) if last[left[at].key] != at and random.random() < 0.7}
        for at in range(upto):
            alone = all(at == other or record.key != left[at].key for other, record in enumerate(left[:at]))
            if left[at].value is None and alone and random.random() < 0.5:
                dropped.add(at)
        left = [record for at, record in enumerate(left) if at not in dropped]
    return left


@given(st.integers(0, 25), st.randoms(use_true_random=False))
def test_state_is_the_same_when_the_cleaner_dropped_whatever_it_may(steps: int, random: Random) -> None:
    log = Writers(random).write(steps)
    before, after = folded(log), folded(cleaned(log, random))
    # That a foreign writer deleted the marker is known as long as its tombstone is there.
    assert before.cleared or not after.cleared
    assert dataclasses.replace(after, cleared=before.cleared) == before


@given(st.integers(0, 25), st.randoms(use_true_random=False))
def test_state_is_what_the_last_marker_says_when_writers_of_both_formats_take_turns(
    steps: int, random: Random
) -> None:
    """Said again from KIP-95: the last marker record decides; a tombstone of it makes everything void."""
    log = Writers(random).write(steps)
    found = folded(log)
    markers = [record for record in log if record.key == APP.encode()]
    expected = {b"0": RunState.RUNNING, b"1": RunState.FINISHED, None: RunState.NEW}
    assert found.state is (expected[markers[-1].value] if markers else RunState.NEW)
    last = {record.key: record for record in log}
    assert {*found.live_keys} == {key for key, record in last.items() if record.value is not None}
    if found.state is RunState.NEW:
        assert found.slice is None
        assert not found.notifications
        assert not found.done
        assert not found.intermediate_stops
        assert not found.foreign_stops
    elif found.slice is not None:
        run = dict(markers[-1].headers or ())["kstreams.run"]
        assert found.slice.run_id.encode() == run
        for (source, target), offset in found.notifications.items():
            told = last[f"{source.topic}_{source.partition}-{target.topic}_{target.partition}".encode()]
            assert dict(told.headers or ())["kstreams.run"] == run
            assert told.value == str(offset).encode()
        for key, value in [(f"app-{s}_{g}", "done") for s, g in found.done] + [
            (f"{tp.topic}_{tp.partition}", str(stop)) for tp, stop in found.intermediate_stops.items()
        ]:
            told = last[key.encode()]
            assert (dict(told.headers or ())["kstreams.run"], told.value) == (run, value.encode())


@pytest.mark.parametrize("key", ["A_\u00b2", "A_\u0663", "A_0-I_\u00b2", "A_" + "9" * 5_000, "A_00", "A_+1"])
def test_key_of_another_kind_is_no_stop_offset_when_it_only_looks_like_a_number(key: str) -> None:
    found = folded([bare(key, "5"), bare("A_1", "7"), bare(APP, "0")])
    assert found.foreign_stops == {SOURCES[1]: 7}
    assert not found.notifications


def test_value_of_another_kind_is_no_offset_when_it_has_too_many_digits() -> None:
    long = "9" * 5_000
    assert folded([bare("A_0", long), bare("A_0-I_0", long), bare(APP, "0")]).foreign_stops == {}


@given(st.lists(st.sampled_from(range(18)), max_size=40), st.data())
def test_fold_equals_the_fold_of_the_compacted_log_when_records_come_in_any_order(
    picks: list[int], data: st.DataObject
) -> None:
    first, begin = second_run()
    pool = (first + begin)[:18]
    log = [pool[pick % len(pool)] for pick in picks]
    cut = data.draw(st.integers(0, len(log)))
    assert folded(compacted(log[:cut]) + log[cut:]) == folded(log)
