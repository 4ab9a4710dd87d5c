"""Runs by their data interval on drawn logs, against what a look at every record says.

Records are dated anyhow, in transactions that are committed or aborted or in none, with markers dated by the
clock. Between the runs more arrives, and a process may die at any port call.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cache

import msgspec
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.slice.metadata import RunState, read_metadata
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.simulation.crash_points import Calls, Died, one_after_the_other
from tests.support.examples import examples
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("runs-end-with-their-interval", "backfills-keep-to-their-interval")

TEXT = serdes.string()
EPOCH_MS = 1_600_000_000_000
WIDTH_MS = 10
INTERVALS = 4
PARTITIONS = 2
APP = "app"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Records that arrive together in one partition.

    :param times: of each, milliseconds after the first interval's start.
    :param kind: whether they are in a transaction, and how that ends.
    """

    partition: int
    times: tuple[int, ...]
    kind: str


def batches() -> st.SearchStrategy[list[Batch]]:
    times = st.integers(-5, INTERVALS * WIDTH_MS + 15)
    batch = st.builds(
        Batch,
        partition=st.integers(0, PARTITIONS - 1),
        times=st.lists(times, min_size=1, max_size=5).map(tuple),
        kind=st.sampled_from(("plain", "plain", "commit", "abort")),
    )
    return st.lists(batch, max_size=5)


@cache
def topology() -> Topology:
    """One stage without state, and one with a repartition topic and a store."""
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    stream = builder.stream("in")
    stream.send_to("out")
    counts = stream.group_by(lambda _, value: value[-1]).count(store="counts")
    counts.to_stream().send_to("counts", value_serde=serdes.int64())
    return builder.build()


class Scene:
    """A Kafka in memory with what has arrived in it."""

    def __init__(self, autostop: str) -> None:
        # The clock is past every interval, so markers are dated past all of them.
        self.kafka = InMemoryKafka(clock=ManualClock(now_ms=EPOCH_MS + 1_000_000))
        for topic in ("in", "out", "counts"):
            self.kafka.create_topic(topic, partitions=PARTITIONS)
        self.application = Application(
            application_id=APP,
            topology=topology(),
            on=self.kafka,
            clock=self.kafka.clock,
            settings={
                "autostop.at": autostop,
                "commit.interval.ms": 1,
                "commit.every.records": 2,
                "transaction.timeout.ms": 10_000,
                "lease.ms": 3_000,
                "settle.ms": 200,
            },
        )
        self._written = 0

    def arrive(self, some: list[Batch]) -> None:
        for batch in some:
            records = [(f"v{self._written + n}".encode(), EPOCH_MS + t) for n, t in enumerate(batch.times)]
            self._written += len(records)
            if batch.kind == "plain":
                for value, at_ms in records:
                    self.kafka.append("in", value, value, partition=batch.partition, timestamp_ms=at_ms)
                continue
            writer = self.kafka.writer(transactional_id="foreign")
            writer.init_transactions()
            writer.begin()
            for value, at_ms in records:
                writer.produce("in", value, value, batch.partition, at_ms, None)
            writer.flush()
            (writer.commit if batch.kind == "commit" else writer.abort)()
            writer.close()

    def visible(self, partition: int) -> list[tuple[int, int, bytes]]:
        """Offset, time and value of every record that a reader sees."""
        return [
            (record.offset(), record.timestamp()[1], record.value() or b"")
            for record in self.kafka.records("in")
            if record.partition() == partition
        ]

    def end(self, partition: int) -> int:
        tp = TopicPartition("in", partition)
        return self.kafka.admin().end_offsets([tp], isolation="read_committed")[tp]

    def out(self) -> Counter[bytes]:
        return Counter(value or b"" for value in self.kafka.values("out"))

    def counts(self) -> dict[bytes, int]:
        last = {r.key() or b"": r.value() or b"" for r in self.kafka.records("counts")}
        return {key: int.from_bytes(value) for key, value in last.items()}

    def run(self, number: int, crash: int | None, takes_effect: bool, meanwhile: list[Batch]) -> RunSummary:
        """Run an interval; a process may die at a port call, and then more arrives before the next try."""
        run_id, interval_ms = f"run-{number}", interval(number)
        frozen = None
        if crash is not None:
            calls = Calls(last=crash, takes_effect=takes_effect)
            dying = replace(self.application, on=calls.process(self.kafka, "run"))
            try:
                summary = dying.run(run_id, (0, 1), interval_ms)
            except Died:
                event("a process died")
            else:
                return summary
            # A dead task's transaction would be waited for until it times out.
            self.kafka.clock.sleep(30)
            ledger = read_ledger(self.kafka, APP, clock=self.kafka.clock)
            if (finished := ledger.find(run_id)) is not None:
                event("it had finished the run")
                return ledger.detailed(finished)
            folded = read_metadata(self.kafka, APP, clock=self.kafka.clock)
            if folded.state is RunState.RUNNING and folded.slice is not None:
                frozen = folded.slice
                event("its slice was frozen")
            self.arrive(meanwhile)
        summary = self.application.run(run_id, (0, 2), interval_ms)
        if frozen is not None:
            # The ledger keeps no epochs: they guard the slice while it is processed.
            inputs = tuple(msgspec.structs.replace(part, end_epoch=-1) for part in frozen.inputs)
            assert summary.inputs == inputs, "what was frozen moved"
        return summary


def interval(number: int) -> tuple[int, int]:
    return (EPOCH_MS + number * WIDTH_MS, EPOCH_MS + (number + 1) * WIDTH_MS)


crashes = st.none() | st.integers(0, 300)
judged = settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])


@judged
@given(st.lists(batches(), min_size=1, max_size=INTERVALS), crashes, st.booleans(), batches(), st.data())
def test_every_record_is_processed_once_in_the_first_run_whose_interval_reaches_it_and_all_before_it(
    arrivals: list[list[Batch]],
    crash: int | None,
    takes_effect: bool,
    meanwhile: list[Batch],
    data: st.DataObject,
) -> None:
    scene = Scene("interval_end")
    dying = data.draw(st.integers(0, len(arrivals) - 1), label="the run in which a process dies")
    positions = [0] * PARTITIONS
    expected: Counter[bytes] = Counter()
    with one_after_the_other():
        for number, some in enumerate(arrivals):
            scene.arrive(some)
            logs = [(scene.visible(p), scene.end(p)) for p in range(PARTITIONS)]
            died = number == dying and crash is not None
            summary = scene.run(number, crash if died else None, takes_effect, meanwhile)
            later = [(scene.visible(p), scene.end(p)) for p in range(PARTITIONS)]
            stops = [part.stop_offset for part in summary.inputs]
            # Who died before the slice was written sees, at its next try, what has arrived meanwhile.
            wanted = [stops_by_hand(found, positions, interval(number)[1]) for found in (logs, later)]
            assert stops in (wanted if died else wanted[:1])
            for partition, (records, _) in enumerate(later):
                expected.update(
                    value for offset, _, value in records if positions[partition] <= offset < stops[partition]
                )
            positions = stops
            assert scene.out() == expected
    assert scene.counts() == Counter(value[-1:] for value in expected.elements())


def stops_by_hand(
    logs: list[tuple[list[tuple[int, int, bytes]], int]], positions: list[int], end_ms: int
) -> list[int]:
    """The oracle: the first visible record from the position on that is dated at or past the end."""
    return [
        next((offset for offset, at_ms, _ in records if offset >= position and at_ms >= end_ms), end)
        for (records, end), position in zip(logs, positions, strict=True)
    ]


@judged
@given(batches(), batches(), crashes, st.booleans(), batches(), st.integers(0, INTERVALS - 1))
def test_backfill_gives_exactly_what_is_dated_in_its_interval_and_counts_the_rest_once(
    before: list[Batch],
    more: list[Batch],
    crash: int | None,
    takes_effect: bool,
    meanwhile: list[Batch],
    dying: int,
) -> None:
    scene = Scene("interval")
    scene.arrive(before + more)
    expected: Counter[bytes] = Counter()
    with one_after_the_other():
        for number in range(INTERVALS):
            start_ms, end_ms = interval(number)
            summary = scene.run(number, crash if number == dying else None, takes_effect, meanwhile)
            skipped = 0
            for part in summary.inputs:
                for offset, at_ms, value in scene.visible(part.partition):
                    inside = start_ms <= at_ms < end_ms
                    assert offset >= part.start_offset or not inside, "an earlier record was passed over"
                    if not part.start_offset <= offset < part.stop_offset:
                        continue
                    expected.update([value] if inside else [])
                    skipped += not inside
            assert scene.out() == expected
            assert summary.records_skipped == skipped
    assert scene.counts() == Counter(value[-1:] for value in expected.elements())
