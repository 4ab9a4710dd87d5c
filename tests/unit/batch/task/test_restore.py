"""Step 4 of the task protocol against ports held in memory."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from airflow_kstreams.batch.task.restore import RestoreProgress, restore_stores
from airflow_kstreams.batch.task.task_state import TaskState
from airflow_kstreams.streams import StoreSpec, Topology, TopologyBuilder, serdes
from airflow_kstreams.streams.errors import KafkaClientError, StateStoreError
from airflow_kstreams.streams.graph.store_specs import Storage
from airflow_kstreams.streams.ports import Fetched, TopicConfigs, TopicDescription, TopicPartition
from airflow_kstreams.streams.processor.processor import Processor
from airflow_kstreams.streams.runtime.execution import TaskProgress
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.state.files.checkpoint import StateOwner
from airflow_kstreams.streams.state.stores.state_store import restore_each
from tests.support.kafka.printed_commands import printed_commands
from tests.support.topology.records import FakeRecord

LEFT, RIGHT = TopicPartition("app-left-changelog", 3), TopicPartition("app-right-changelog", 3)


class Idle(Processor):
    def process(self, record: Any) -> None:
        raise NotImplementedError


def topology(storage: Storage = "memory") -> Topology:
    raw = serdes.bytes()
    builder = TopologyBuilder().add_source("source", "in", key_serde=raw, value_serde=raw)
    for name in ("left", "right"):
        builder.add_state_store(StoreSpec(name=name, key_serde=raw, value_serde=raw, storage=storage))
    return builder.add_processor("idle", Idle, "source", stores=("left", "right")).build()


@dataclass
class FakeClock:
    now: float = 0.0

    def now_ms(self) -> int:
        return 1_000_000 + int(self.now * 1000)

    def monotonic_seconds(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Logs:
    """Changelog partitions with their records, as cluster, admin and reader see them.

    An offset without a record is a transaction marker or was compacted away.
    """

    clock: FakeClock
    records: dict[TopicPartition, list[FakeRecord]]
    ends: dict[TopicPartition, int]
    per_poll: int = 2
    configs_error: KafkaClientError | None = None
    assigned: int = 0
    _positions: dict[TopicPartition, int] = field(default_factory=dict)

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        self.assigned += 1
        self._positions = dict(starts)

    def poll(self, *, max_records: int, timeout_seconds: float) -> Fetched:
        for partition, position in self._positions.items():
            found = [record for record in self.records[partition] if record.at >= position][: self.per_poll]
            if found:
                self._positions[partition] = found[-1].at + 1
                return Fetched({partition: found}, {})
            if position < self.ends[partition]:
                self._positions[partition] = self.ends[partition]
                return Fetched({}, {partition: self.ends[partition]})
        self.clock.sleep(timeout_seconds)
        return Fetched({}, {})

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            del self._positions[partition]

    def end_offsets(self, partitions: Collection[TopicPartition], *, isolation: str) -> Any:
        return {partition: self.ends[partition] for partition in partitions}

    def start_offsets(self, partitions: Collection[TopicPartition]) -> Any:
        return dict.fromkeys(partitions, 0)

    def describe_topics(self, names: Collection[str]) -> dict[str, TopicDescription]:
        return {name: TopicDescription(name=name, topic_id=f"id-{name}", partitions=4) for name in names}

    def topic_configs(self, names: Collection[str]) -> TopicConfigs:
        error = self.configs_error
        if error is None:
            return TopicConfigs({name: {"delete.retention.ms": "600000"} for name in names}, {})
        if error.is_retriable:
            raise error
        return TopicConfigs({}, dict.fromkeys(names, error))


def changes(*rows: tuple[int, bytes, bytes | None]) -> list[FakeRecord]:
    return [FakeRecord(at=at, key_bytes=key, value_bytes=value, timestamp_ms=7) for at, key, value in rows]


@dataclass
class Scene:
    """A task's restores, one attempt after another."""

    logs: Logs
    settings: ApplicationSettings
    storage: Storage = "memory"

    def attempt(self) -> tuple[StreamTask, TaskState, int]:
        task = StreamTask(
            topology(self.storage),
            task_id=TaskId(subtopology=0, group=3),
            bounds={TopicPartition("in", 3): (0, 0)},
            produce=lambda *_: None,
            settings=self.settings,
            progress=TaskProgress(),
        )
        logs: Any = self.logs
        owner = StateOwner(application_id="app", task_id="0_3", topology_hash="h", tasks=4)
        state = TaskState(task, owner=owner, admin=logs, settings=self.settings, clock=self.logs.clock)
        try:
            restored = restore_stores(task, state, logs, logs, self.settings, self.logs.clock)
        except BaseException:
            state.close()
            raise
        return task, state, restored

    def end(self, state: TaskState) -> None:
        state.keep(self.logs.end_offsets(state.kept_changelogs, isolation="read_uncommitted"))
        state.close()


@pytest.fixture
def logs() -> Logs:
    return Logs(
        clock=FakeClock(),
        records={
            LEFT: changes((0, b"a", b"1"), (1, b"b", b"2"), (4, b"a", None), (5, b"c", b"3")),
            RIGHT: changes((2, b"z", b"26")),
        },
        ends={LEFT: 7, RIGHT: 4},
    )


def settings(**options: str) -> ApplicationSettings:
    return ApplicationSettings.parse("app", {k.replace("_", "."): v for k, v in options.items()})


@pytest.mark.parametrize("storage", ["memory", "rocksdb"])
def test_stores_hold_the_fold_of_their_changelogs_when_offsets_have_gaps(
    logs: Logs, storage: Storage
) -> None:
    task, state, restored = Scene(logs, settings(), storage).attempt()
    assert restored == 5
    assert list(task.stores["left"].all()) == [(b"b", b"2"), (b"c", b"3")]
    assert task.stores["right"].get_entry(b"z") == (b"26", 7)
    assert not any(list(changes) for _, _, _, changes in task.changes())
    state.close()
    assert logs.assigned == 2, "to the changelogs, and to none when they were at their ends"


def test_nothing_is_read_when_there_is_nothing_to_replay(logs: Logs) -> None:
    logs.ends = {LEFT: 0, RIGHT: 0}
    assert Scene(logs, settings()).attempt()[2] == 0
    assert logs.assigned == 0


@pytest.mark.parametrize(
    ("held", "told"),
    [
        (1, ["describe-producers 3", "abort 3"]),
        (0, []),
    ],
    ids=["a transaction is open", "none is"],
)
def test_task_and_partition_are_named_when_a_changelog_does_not_end(
    logs: Logs, held: int, told: list[str]
) -> None:
    class Hanging(Logs):
        def poll(self, *, max_records: int, timeout_seconds: float) -> Fetched:
            fetched = super().poll(max_records=max_records, timeout_seconds=timeout_seconds)
            return Fetched(fetched.records, {})

        def end_offsets(self, partitions: Collection[TopicPartition], *, isolation: str) -> Any:
            ends = super().end_offsets(partitions, isolation=isolation)
            if isolation == "read_committed" and LEFT in ends:
                ends[LEFT] -= held
            return ends

    hanging = Hanging(clock=logs.clock, records=logs.records, ends=logs.ends)
    with pytest.raises(
        StateStoreError, match=r"task 0_3: changelog partitions app-left-changelog-3, app-ri"
    ) as caught:
        Scene(hanging, settings(run_stall_timeout_ms="5000")).attempt()
    commands = printed_commands(caught.value.fix)
    assert [f"{command[3]} {command[7]}" for command in commands] == told
    assert all(LEFT.topic in command for command in commands)
    assert ("check the brokers" in caught.value.fix) is (not told)


def test_each_store_goes_on_from_its_own_offset_when_files_were_kept(logs: Logs, tmp_path: Path) -> None:
    scene = Scene(logs, settings(state_dir=str(tmp_path)), "rocksdb")
    _, state, restored = scene.attempt()
    assert restored == 5
    scene.end(state)
    logs.records[LEFT] += changes((8, b"d", b"4"))
    logs.ends[LEFT] = 10
    task, state, restored = scene.attempt()
    assert restored == 1
    assert list(task.stores["left"].all()) == [(b"b", b"2"), (b"c", b"3"), (b"d", b"4")]
    assert list(task.stores["right"].all()) == [(b"z", b"26")]
    state.close()


def test_files_are_not_trusted_when_the_broker_hides_the_changelogs_settings(
    logs: Logs, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(logs, settings(state_dir=str(tmp_path)), "rocksdb")
    scene.end(scene.attempt()[1])
    logs.configs_error = KafkaClientError("not allowed", kafka_code="TOPIC_AUTHORIZATION_FAILED")
    _, state, restored = scene.attempt()
    state.close()
    assert restored == 5
    assert "delete.retention.ms of app-left-changelog is unknown" in caplog.text


def test_attempt_fails_and_may_be_repeated_when_the_broker_does_not_answer(
    logs: Logs, tmp_path: Path
) -> None:
    scene = Scene(logs, settings(state_dir=str(tmp_path)), "rocksdb")
    scene.end(scene.attempt()[1])
    logs.configs_error = KafkaClientError("no answer", kafka_code="_TIMED_OUT", retriable_code=True)
    with pytest.raises(KafkaClientError, match="no answer"):
        scene.attempt()


def test_a_run_is_not_lost_when_its_files_cannot_be_kept(
    logs: Logs, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(logs, settings(state_dir=str(tmp_path)), "rocksdb")
    _, state, _ = scene.attempt()
    (claimed,) = (path for path in (tmp_path / "app-state").iterdir() if path.is_dir())
    (claimed / "checkpoint.draft").mkdir()
    scene.end(state)
    assert "the next run replays the changelogs from their beginning" in caplog.text
    _, state, restored = scene.attempt()
    assert restored == 5
    state.close()
    assert list((tmp_path / "app-state").iterdir()) == []


def test_single_records_are_applied_when_a_store_has_no_bulk_path() -> None:
    applied: list[Any] = []
    size_bytes = restore_each(
        lambda *change: applied.append(change), changes((0, b"a", b"1"), (1, b"bb", None))
    )
    assert applied == [(b"a", b"1", 7), (b"bb", None, 7)]
    assert size_bytes == 4


def test_progress_is_logged_every_five_seconds_and_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = FakeClock()
    progress = RestoreProgress("0_3", 1_000, clock)
    for _ in range(12):
        clock.now += 1
        progress.add(records=50, size_bytes=1_000_000, offsets=75)
    progress.finish()
    assert [record.getMessage() for record in caplog.records] == [
        "task 0_3: restored 250 changelog records, 5.0 MB, 37 %, about 8 s left",
        "task 0_3: restored 500 changelog records, 10.0 MB, 75 %, about 3 s left",
        "task 0_3: restored 600 changelog records, 12.0 MB, in 12.0 s (50 records/s)",
    ]


def test_nothing_is_logged_when_nothing_was_replayed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    progress = RestoreProgress("0_3", 0, FakeClock())
    progress.finish()
    assert progress.seconds_left() == 0
    assert caplog.records == []
