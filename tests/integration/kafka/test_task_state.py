"""A task's local files over several runs on the real broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from airflow_kstreams.batch.protocol.offsets.offset_metadata import TaskReport
from airflow_kstreams.batch.task.task_state import TaskState
from airflow_kstreams.streams import KStreamBuilder, StoreSpec, Topology, serdes
from airflow_kstreams.streams.errors import DataLossError
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.state.files.checkpoint import Checkpoint
from tests.support.crash import Crash
from tests.support.kafka.in_process import Application
from tests.support.kafka.printed_commands import accept

Produce = Callable[..., None]
Consume = Callable[..., list[Any]]
HOUR_MS = 3600 * 1000


def counts(
    source: str, target: str, on_key: Callable[[str], None] = lambda _: None, **store: Any
) -> Topology:
    """Counts per key, in one subtopology with one store."""

    def seen(key: str, value: Any) -> Any:
        on_key(key)
        return value

    spec = StoreSpec(
        name="counts",
        key_serde=serdes.string(),
        value_serde=serdes.int64(),
        **{"storage": "rocksdb", **store},
    )
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    (
        builder.stream(source)
        .peek(seen)
        .group_by_key()
        .count(store=spec)
        .to_stream()
        .send_to(target, value_serde=serdes.int64())
    )
    return builder.build()


@dataclass
class Scene:
    """An application with one task per partition of its source, and what its counts must be."""

    application: Application
    source: str
    target: str
    state_dir: Path
    produce: Produce
    consume_all: Consume
    expected: Counter[str] = field(default_factory=Counter)
    runs: int = 0

    def run(self, keys: Iterable[str]) -> list[TaskReport]:
        """Publish records with these keys, run, check the counts, and return what the tasks reported."""
        self.publish(keys)
        self.runs += 1
        slice_ = self.application.begin(f"run-{self.runs}")
        reports = self.application.tasks(slice_)
        self.application.finish(f"run-{self.runs}")
        self.check()
        return reports

    def publish(self, keys: Iterable[str]) -> None:
        batch = list(keys)
        self.produce(self.source, [{"key": key, "value": 1, "partition": 0} for key in batch])
        self.expected.update(batch)

    def check(self) -> None:
        latest = {row.key.decode(): int.from_bytes(row.value, "big") for row in self.consume_all(self.target)}
        assert latest == self.expected

    def restored(self, keys: Iterable[str] = "a") -> int:
        """Run and return how many changelog records were replayed."""
        return sum(report.restored for report in self.run(keys))

    @property
    def home(self) -> Path:
        return self.state_dir / f"{self.application.application_id}-state" / "0_0"

    def edit_checkpoint(self, edit: Callable[[Checkpoint], Checkpoint]) -> None:
        path = self.home / "checkpoint"
        checkpoint = Checkpoint.decode(path.read_bytes())
        assert checkpoint is not None
        path.write_bytes(edit(checkpoint).encode())


@pytest.fixture
def make_scene(
    kafka: str,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    produce: Produce,
    consume_all: Consume,
    tmp_path: Path,
) -> Callable[..., Scene]:
    def make(settings: Mapping[str, object] | None = None, **store: Any) -> Scene:
        source, target = create_topic(topic_name("in"), 1), create_topic(topic_name("out"), 1)
        state_dir = tmp_path / "state"
        application = Application(
            bootstrap=kafka,
            application_id=application_id,
            topology=counts(source, target, **store),
            settings={"state.dir": str(state_dir), **(settings or {})},
        )
        return Scene(
            application=application,
            source=source,
            target=target,
            state_dir=state_dir,
            produce=produce,
            consume_all=consume_all,
        )

    return make


@pytest.fixture
def scene(make_scene: Callable[..., Scene]) -> Scene:
    """An application whose first run ended cleanly, with three keys."""
    scene = make_scene()
    assert scene.restored("abcab") == 0
    return scene


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_nothing_is_replayed_when_the_last_run_ended_cleanly(
    make_scene: Callable[..., Scene], guarantee: str
) -> None:
    scene = make_scene({"processing.guarantee": guarantee, "commit.every.records": 2})
    for keys in ("abcab", "ad", "", "bbe", "a"):
        assert scene.restored(keys) == 0
    assert [path.name for path in scene.home.parent.iterdir()] == ["0_0"]


def test_everything_is_replayed_when_the_checkpoint_is_corrupt(scene: Scene) -> None:
    (scene.home / "checkpoint").write_bytes(b"00000000\n{}")
    assert scene.restored() == 3
    assert scene.restored() == 0


def test_everything_is_replayed_when_the_checkpoint_is_too_old(scene: Scene) -> None:
    # The engine's changelogs keep tombstones for seven days; half of that counts.
    def aged(hours: float) -> Callable[[Checkpoint], Checkpoint]:
        return lambda checkpoint: msgspec.structs.replace(
            checkpoint, written_ms=checkpoint.written_ms - round(hours * HOUR_MS)
        )

    scene.edit_checkpoint(aged(83.9))
    assert scene.restored() == 0
    scene.edit_checkpoint(aged(84.1))
    assert scene.restored() == 4


def test_age_is_judged_by_the_changelogs_own_setting_when_the_user_gave_one(
    make_scene: Callable[..., Scene],
) -> None:
    scene = make_scene(changelog_configs={"delete.retention.ms": "0"})
    assert scene.restored("ab") == 0
    admin = scene.application.cluster.admin()
    changelog = f"{scene.application.application_id}-counts-changelog"
    configs = admin.topic_configs([changelog]).found[changelog]
    admin.close()
    assert (configs["delete.retention.ms"], configs["cleanup.policy"]) == ("0", "compact")
    assert scene.restored() == 2


@pytest.mark.promise("failed-attempts-leave-nothing")
@pytest.mark.parametrize("commits_before", [0, 2])
def test_everything_is_replayed_when_an_attempt_was_killed(scene: Scene, commits_before: int) -> None:
    application = scene.application
    application.settings = {**application.settings, "commit.every.records": 2}
    seen: list[str] = []

    def die(key: str) -> None:
        seen.append(key)
        if len(seen) == 2 * commits_before + 2:
            raise Crash

    whole = application.topology
    application.topology = counts(scene.source, scene.target, die)
    scene.publish("abcdeabcde")
    scene.runs += 1
    slice_ = application.begin(f"run-{scene.runs}")
    with pytest.raises(Crash):
        application.task(slice_, 0, 0)
    assert not scene.home.exists(), "what a dead attempt left is nobody's home"
    application.topology = whole
    reports = application.tasks(slice_)
    application.finish(f"run-{scene.runs}")
    scene.check()
    assert reports[0].restored == 3 + 2 * commits_before
    assert scene.restored() == 0


def test_files_are_not_used_when_the_changelog_was_made_anew(scene: Scene, kafka: str) -> None:
    changelog = f"{scene.application.application_id}-counts-changelog"
    admin = scene.application.cluster.admin()
    before = admin.describe_topics([changelog])[changelog].topic_id
    admin.delete_topics([changelog])
    with pytest.raises(DataLossError, match="its id is gone") as refused:
        scene.application.begin("run-2")
    accept(refused.value, kafka)
    # More records than before, so that only the topic's id says that it is another one.
    scene.expected.clear()
    with_files, scene.application.settings = scene.application.settings, {}
    assert scene.restored("abcdefgh") == 0
    assert admin.describe_topics([changelog])[changelog].topic_id != before
    admin.close()
    scene.application.settings = with_files
    assert scene.restored("abc") == 8
    assert scene.restored("abc") == 0


def test_nothing_is_left_when_no_state_dir_is_given(make_scene: Callable[..., Scene], tmp_path: Path) -> None:
    scene = make_scene({"state.dir": ""})
    assert [scene.restored("ab"), scene.restored("c"), scene.restored("a")] == [0, 2, 3]
    assert list(tmp_path.iterdir()) == []


def test_store_in_memory_is_replayed_when_a_state_dir_is_given(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(storage="memory")
    assert [scene.restored("ab"), scene.restored("c"), scene.restored("a")] == [0, 2, 3]
    assert not scene.state_dir.exists()


def test_content_does_not_survive_when_the_store_is_not_logged(make_scene: Callable[..., Scene]) -> None:
    scene = make_scene(logged=False)
    scene.run("ab")
    scene.expected.clear()
    scene.expected.update({"b": 1})  # the target's latest of the first run
    assert scene.restored("a") == 0
    admin = scene.application.cluster.admin()
    assert admin.describe_topics([f"{scene.application.application_id}-counts-changelog"]) == {}
    admin.close()
    assert list(scene.home.iterdir()) == [scene.home / "checkpoint"]


def test_a_late_clean_end_does_not_hide_what_the_next_run_wrote(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the last commit of a run's task and its checkpoint, another machine does the whole next run."""
    keep = TaskState.keep
    application = scene.application
    # The next run waits for the end of the lease of the first one's driver, which never gives it up.
    application.settings = {**application.settings, "lease.ms": 3_000}
    elsewhere = Application(
        bootstrap=application.bootstrap,
        application_id=application.application_id,
        topology=application.topology,
        settings={"state.dir": str(tmp_path / "elsewhere")},
    )

    def late_keep(self: TaskState, ends: Mapping[TopicPartition, int]) -> None:
        monkeypatch.setattr(TaskState, "keep", keep)
        application.finish("run-2")
        scene.publish("cccx")
        elsewhere.run("run-3")
        keep(self, ends)

    monkeypatch.setattr(TaskState, "keep", late_keep)
    scene.publish("ad")
    application.tasks(application.begin("run-2"))
    scene.check()
    scene.runs = 3
    assert scene.restored("cx") == 2, "c and x of the run in between"
