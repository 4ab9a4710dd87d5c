"""A task that failed does as its error says when the run is retried, and every record counts once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import (
    ConfigError,
    StateStoreError,
    TransactionAbortedError,
)
from airflow_kstreams.streams.ports import WriterPort
from airflow_kstreams.testing import InMemoryKafka
from tests.support.crash import Crash
from tests.support.kafka.in_process import Application
from tests.support.kafka.interception import CrashingAt, Once
from tests.support.kafka.printed_commands import accept_in_memory

TEXT = serdes.string()
CHANGELOG = "app-counts-changelog"


def counting(before: Callable[[str], str] = str) -> Topology:
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    counted = builder.stream("in").map_values(before).group_by_key().count(store="counts")
    counted.to_stream().send_to("out", value_serde=serdes.int64())
    return builder.build()


class Scene:
    """An application that counts records by key."""

    def __init__(self, before: Callable[[str], str] = str, **settings: object) -> None:
        self.kafka = InMemoryKafka()
        for topic in ("in", "out"):
            self.kafka.create_topic(topic)
        self.app = Application(
            application_id="app", topology=counting(before), on=self.kafka, clock=self.kafka.clock
        )
        self.set(**settings)
        self.sent: dict[str, int] = {}

    def set(self, **settings: object) -> None:
        self.app.settings = {"settle.ms": 0, **{n.replace("_", "."): v for n, v in settings.items()}}

    def send(self, *keys: str) -> None:
        for key in keys:
            self.kafka.append("in", b"v", key.encode(), timestamp_ms=1)
            self.sent[key] = self.sent.get(key, 0) + 1

    def hold(self, topic: str) -> WriterPort:
        """A producer of somebody else leaves a transaction open."""
        writer = self.kafka.writer(transactional_id="foreign", transaction_timeout_ms=900_000)
        writer.init_transactions()
        writer.begin()
        writer.produce(topic, b"open", b"open", 0)
        writer.flush()
        return writer

    @property
    def counted(self) -> Mapping[str, int]:
        return {
            (record.key() or b"").decode(): int.from_bytes(record.value() or b"", "big")
            for record in self.kafka.records("out")
        }


@pytest.mark.remedy("restore._stuck")
@pytest.mark.parametrize("program", ["found", "ended"])
def test_run_counts_all_when_the_transaction_that_hid_a_changelog_has_ended(program: str) -> None:
    scene = Scene(run_stall_timeout_ms=8_000)
    scene.send("a", "b")
    scene.app.run("first")
    scene.send("a")
    slice_ = scene.app.begin("second")
    hanging = scene.hold(CHANGELOG)
    with pytest.raises(StateStoreError, match="cannot be read to their end") as refused:
        scene.app.task(slice_, 0, 0)
    assert f"describe-producers --topic {CHANGELOG} --partition 0" in refused.value.fix
    if program == "ended":
        accept_in_memory(refused.value, scene.kafka)
    else:
        hanging.abort()
    scene.app.run("second", (0, 2))
    assert scene.counted == scene.sent


@pytest.mark.remedy("restore.ChangelogEvidence.refuse_ahead")
def test_attempt_that_claimed_the_task_last_counts_all_when_an_older_one_was_refused() -> None:
    scene = Scene(commit_every_records=1)
    scene.send("a", "b")
    scene.app.run("first")
    scene.send("a", "b")
    slice_ = scene.app.begin("second")
    scene.app.interceptor = CrashingAt(1, name="writer.commit")
    with pytest.raises(Crash):
        scene.app.task(slice_, 0, 0)
    scene.app.interceptor = None
    late = Application(
        application_id="app",
        topology=scene.app.topology,
        on=scene.kafka,
        clock=scene.kafka.clock,
        settings=scene.app.settings,
        launching=scene.kafka,
        interceptor=Once("admin.end_offsets", 2, lambda: scene.app.task(slice_, 0, 0), about=CHANGELOG),
    )
    late.task(slice_, 0, 0)
    scene.app.finish("second")
    assert scene.counted == scene.sent


@pytest.mark.remedy("loop.TaskLoop._refuse_long_transaction")
@pytest.mark.parametrize(
    "mended",
    [
        {"commit_every_records": 1},
        {"transaction_timeout_ms": 800_000},
    ],
    ids=str,
)
def test_run_counts_all_when_its_commits_come_in_time(mended: Mapping[str, object]) -> None:
    def slow(value: str) -> str:
        scene.kafka.clock.sleep(2.0)
        return value

    settings: dict[str, object] = {"transaction_timeout_ms": 10_000, "commit_interval_ms": 2_000}
    scene = Scene(slow, commit_every_records=100_000, task_max_attempts=1, **settings)
    scene.send(*["a", "b"] * 50)
    slice_ = scene.app.begin("first")
    with pytest.raises((ConfigError, TransactionAbortedError), match="no commit point for"):
        scene.app.task(slice_, 0, 0)
    scene.set(**{"commit_every_records": 100_000, **settings, **mended})
    scene.app.run("first", (0, 2))
    assert scene.counted == scene.sent


class Repeats:
    """An interceptor after whose first commits of offsets the writer may have repeated a request."""

    def __init__(self, number: int) -> None:
        self.left, self._sent = number, False

    def call(self, name: str, client: Any, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        result = effect()
        self._sent = self._sent or name == "writer.send_offsets"
        if name == "writer.commit" and self._sent and self.left:
            self._sent, self.left = False, self.left - 1
            client.spoil()
        return result


@pytest.mark.error_example("KS-TASK-004")
@pytest.mark.remedy("loop.TaskLoop._refuse_suspect")
def test_task_counts_all_once_with_a_new_producer_when_a_commit_may_have_been_repeated() -> None:
    scene = Scene(commit_every_records=1)
    scene.send("a", "b", "a", "b")
    slice_ = scene.app.begin("first")
    scene.app.interceptor = Repeats(2)
    scene.app.task(slice_, 0, 0)
    assert scene.app.interceptor.left == 0
    scene.app.interceptor = None
    scene.app.finish("first")
    assert scene.counted == scene.sent
