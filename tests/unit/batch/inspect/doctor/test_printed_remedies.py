"""What the doctor finds is mended as it says, and it finds nothing any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from airflow_kstreams.batch.growing import takeover
from airflow_kstreams.batch.inspect.doctor import Finding, Level
from airflow_kstreams.streams import KStreamBuilder
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.testing import FaultyCluster
from tests.support.kafka.printed_commands import accept_in_memory, printed_commands
from tests.support.remedies import walked
from tests.unit.batch.expand.test_processor_expansion import abort, begin_to_copy, expand, grown
from tests.unit.batch.growing.test_partition_growth import KEYS, Scene
from tests.unit.batch.inspect.doctor import (
    test_blocked_partitions,
    test_growing_checks,
    test_key_checks,
)
from tests.unit.batch.inspect.doctor.test_findings import APP, DAY_MS, TEXT, Rig


def by_command(rig: Rig, found: Finding) -> None:
    """Execute the commands of a finding."""
    accept_in_memory(KStreamsError(found.text, fix=found.fix), rig.kafka)


def broker(**configs: str) -> Callable[[Rig], None]:
    """Return what sets the brokers' configuration."""
    return lambda rig: rig.kafka.configure_broker(**configs)


def spoiled(topic: str, *, replicas: int = 3, **configs: Any) -> Callable[[Rig], None]:
    """Return what makes a topic with some settings."""
    return lambda rig: rig.create(topic, replicas=replicas, **configs)


def dated(**configs: str) -> Callable[[Rig], None]:
    """Return what lets a run read records of a month ago, and sets the output's configuration."""

    def make(rig: Rig) -> None:
        old_ms = rig.kafka.clock.now_ms() - 30 * DAY_MS
        for run_id, partition, value in (("run-1", 0, "b"), ("run-2", 1, "c")):
            rig.kafka.append("in", b"old", b"k", partition=partition, timestamp_ms=old_ms)
            rig.run(run_id, value)
        rig.kafka.alter_topic("out", **configs)

    return make


def with_table(**configs: Any) -> Callable[[Rig], None]:
    """Return what gives the application a global table over a topic with some settings."""

    def make(rig: Rig) -> None:
        rig.create("names", **configs)
        builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
        names = builder.global_table("names")
        joined = builder.stream("in").join(names, lambda value, name: value, key=lambda key, value: value)
        joined.send_to("out")
        rig.app.topology = builder.build()

    return make


def joins(rig: Rig) -> None:
    rig.kafka.join_group(APP, "a-consumer")


MENDED = [
    walked(
        "broker_checks._features: use Kafka 3.6 or later, with",
        broker(transaction_partition_verification_enable="false"),
        lambda rig, found: rig.kafka.configure_broker(transaction_partition_verification_enable="true"),
    ),
    walked(
        "broker_checks._offsets_retention",
        broker(offsets_retention_minutes="1440"),
        lambda rig, found: rig.kafka.configure_broker(
            offsets_retention_minutes=found.fix.split(" to ")[1].split()[0]
        ),
    ),
    walked(
        "broker_checks._transactions",
        broker(transactional_id_expiration_ms="3600000"),
        lambda rig, found: rig.kafka.configure_broker(transactional_id_expiration_ms=str(DAY_MS)),
    ),
    walked(
        "retention_checks._expiring",
        lambda rig: (
            rig.create("in", retention_ms=str(DAY_MS * 30)),
            rig.kafka.append("in", b"old", b"k", partition=0, timestamp_ms=1),
        ),
        by_command,
    ),
    walked("run_checks._members", joins, lambda rig, found: rig.kafka.leave_group(APP)),
    walked(
        "topic_checks._replication: {for_each}",
        spoiled("in", unclean_leader_election_enable="true"),
        by_command,
    ),
    walked(
        "topic_checks._replication: give them three replicas",
        spoiled("out", replicas=1, min_insync_replicas="1"),
        lambda rig, found: rig.create("out"),
    ),
    walked("topic_checks._min_insync", spoiled("out", min_insync_replicas="1"), by_command),
    walked("topic_checks._min_insync", spoiled("out", min_insync_replicas="3"), by_command),
    walked("retention_checks._limits: {for_each}", spoiled("in", retention_bytes="1000"), by_command),
    walked(
        "retention_checks._limits: nothing if they are tables",
        spoiled("in", cleanup_policy="compact"),
        by_command,
    ),
    walked("topic_checks._output", spoiled("out", max_message_bytes="500000"), by_command),
    walked("topic_checks._output", dated(message_timestamp_before_max_ms=str(DAY_MS)), by_command),
    walked("topic_checks._output", dated(message_timestamp_after_max_ms="1000"), by_command),
    walked("topic_checks._output", dated(retention_ms=str(DAY_MS)), by_command),
]


@pytest.mark.parametrize(("spoil", "mend"), MENDED)
def test_nothing_is_found_any_more_when_it_was_mended_as_the_finding_says(
    spoil: Callable[[Rig], None], mend: Callable[[Rig, Finding], None]
) -> None:
    rig = Rig()
    spoil(rig)
    mend(rig, rig.only())
    assert rig.problems() == []


class WithoutIds:
    """Describes topics as Kafka before 2.8 does."""

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        found = effect()
        if name != "admin.describe_topics":
            return found
        return {topic: replace(each, topic_id="A" * 22) for topic, each in found.items()}


@pytest.mark.remedy("broker_checks._features: use Kafka 3.6 or later")
def test_topics_have_ids_when_the_brokers_are_of_a_later_kafka() -> None:
    rig = Rig()
    rig.cluster = FaultyCluster(rig.kafka, WithoutIds())
    found = next(each for each in rig.diagnose() if each.level is Level.ERROR)
    assert found.fix == "use Kafka 3.6 or later"
    rig.cluster = rig.kafka
    assert rig.problems() == []


@pytest.mark.remedy("topic_checks._min_insync")
def test_records_can_be_written_when_fewer_replicas_are_asked_for_than_there_are() -> None:
    rig = Rig()
    rig.create("out", min_insync_replicas="4")
    by_command(rig, rig.only())
    assert not [found for found in rig.diagnose() if found.level is Level.ERROR]
    by_command(rig, rig.only())
    assert rig.problems() == []


@pytest.mark.remedy("retention_checks._limits: {for_each}")
def test_records_are_kept_for_two_gaps_when_the_retention_was_set_by_the_command() -> None:
    rig = Rig()
    rig.kafka.configure_broker(offsets_retention_minutes="999999")
    rig.create("in", retention_ms=str(DAY_MS), retention_bytes="1000")
    found = [each for each in rig.diagnose(subject={"gap_ms": DAY_MS}) if each.check == "input retention"]
    for each in found:
        by_command(rig, each)
    assert rig.problems(subject={"gap_ms": DAY_MS}) == []


@pytest.mark.remedy("topic_checks._global_tables")
@pytest.mark.parametrize(
    "configs",
    [
        {"cleanup_policy": "delete", "retention_ms": str(DAY_MS)},
        {"cleanup_policy": "compact", "min_compaction_lag_ms": "0"},
        {"cleanup_policy": "compact,delete", "retention_ms": str(DAY_MS)},
    ],
    ids=str,
)
def test_global_table_keeps_its_entries_when_its_topic_was_set_by_the_commands(
    configs: dict[str, str],
) -> None:
    rig = Rig()
    with_table(**configs)(rig)
    for _ in range(2):
        for each in rig.diagnose():
            if each.check == "global tables" and each.level is not Level.OK:
                by_command(rig, each)
    assert [each.level for each in rig.diagnose() if each.check == "global tables"] == [Level.OK]


@pytest.mark.remedy("run_checks._state")
@pytest.mark.parametrize("run_id", ["run-2", "run-3"])
def test_unfinished_run_is_finished_when_it_or_the_next_one_runs(run_id: str) -> None:
    rig = Rig()
    rig.run()
    rig.kafka.append("in", b"b", b"k", partition=0)
    rig.app.begin("run-2")
    assert rig.only().check == "slice"
    slice_ = rig.app.begin(run_id, (0, 2))
    rig.app.tasks(slice_)
    assert rig.app.finish(slice_.run_id).run_id == "run-2"
    assert rig.problems() == []
    assert {int.from_bytes(value or b"", "big") for value in rig.kafka.values("out")} == {1}


@pytest.mark.remedy("run_checks._open_transactions")
@pytest.mark.parametrize("program", ["found", "ended"])
def test_records_behind_an_open_transaction_are_read_when_its_producer_was_found_and_ended(
    program: str,
) -> None:
    rig = Rig()
    writer = rig.kafka.writer(transactional_id="foreign", transaction_timeout_ms=900_000)
    writer.init_transactions()
    writer.begin()
    writer.produce("in", b"v", b"k", 1)
    writer.flush()
    rig.kafka.append("in", b"w", b"k", partition=1)
    found = rig.only()
    (find, _) = printed_commands(found.fix)
    assert find[-4:] == ["--topic", "in", "--partition", "1"]
    if program == "ended":
        by_command(rig, found)
    else:
        writer.abort()
    assert rig.problems() == []
    rig.app.run("run-1")
    assert len(rig.kafka.values("out")) == 1


# == topics and processors that grow


@pytest.mark.remedy("growing_checks._judged: {go_on}")
@pytest.mark.parametrize("way", ["processors", "abort"])
def test_expansion_arrives_or_is_given_up_by_the_commands_of_the_finding(way: str) -> None:
    scene = grown()
    begin_to_copy(scene, 4, records=20)
    for _ in range(3):
        test_growing_checks.run(scene)
    (found,) = test_growing_checks.findings(scene)
    (command,) = (each for each in printed_commands(found.fix) if each[2] == way)
    if way == "processors":
        expand(scene, int(command[command.index("--to") + 1]))
    else:
        abort(scene)
    test_growing_checks.run(scene)
    assert test_growing_checks.findings(scene) == []
    assert scene.listed == scene.sent
    assert len(scene.recorded.by_group) == (4 if way == "processors" else 2)


@pytest.mark.remedy("growing_checks._judged: see the warnings of the last run")
def test_expansion_that_runs_leave_is_given_up_by_the_command_of_the_finding() -> None:
    scene = grown()
    with mock.patch.object(takeover, "under_way", return_value=None):
        begin_to_copy(scene, 4, records=10_000, sources=2)
        for _ in range(3):
            test_growing_checks.run(scene)
        (found,) = test_growing_checks.findings(scene)
    (command,) = printed_commands(found.fix)
    assert command[2] == "abort"
    abort(scene)
    test_growing_checks.run(scene)
    assert test_growing_checks.findings(scene) == []
    assert scene.listed == scene.sent


@pytest.mark.remedy("growing_checks._judged_blocked")
def test_gained_partitions_are_read_after_one_run_to_the_end_as_the_finding_says() -> None:
    scene = Scene(2, settings={"autostop.at": "interval_end"})
    held, flows, moved = "k3", "k0", "k8"
    scene.send(KEYS, 0, timestamp_ms=5)
    test_blocked_partitions.run(scene, 0)
    scene.send([held], 1, timestamp_ms=25)
    scene.send([held], 2, timestamp_ms=99)
    scene.grow(3)
    scene.send([moved], 3, timestamp_ms=15)
    for number in range(1, 5):
        scene.send([flows], 3, timestamp_ms=number * 10 + 5)
        test_blocked_partitions.run(scene, number)
    (found,) = test_blocked_partitions.findings(scene)
    assert "one run with autostop.at=eol reads what they wait for, and the next run the gained" in found.fix
    scene.app.settings = {**scene.app.settings, "autostop.at": "eol"}
    scene.app.run("whole")
    assert test_blocked_partitions.findings(scene) == []
    scene.app.run("next")
    assert scene.listed == scene.sent


@pytest.mark.remedy("growing_checks._judged_keys")
def test_keys_are_with_their_state_when_it_begins_by_the_count_that_the_topic_had() -> None:
    rig = test_key_checks.Rig()
    rig.send()
    rig.grow(7)
    rig.send()
    (wrong,) = rig.findings(initial_partitions="in=3")
    assert wrong.level is Level.ERROR
    assert wrong.fix.endswith("start over with initial.partitions=in=<that count>")
    (right,) = rig.findings(initial_partitions="in=4")
    assert right.level is Level.OK
    rig.app.settings = {**rig.app.settings, "initial.partitions": "in=4"}
    for number in range(3):
        rig.app.run(f"run-{number}")
    last = {record.key(): int.from_bytes(record.value() or b"", "big") for record in rig.kafka.records("out")}
    assert last == {key.encode(): 2 for key in test_key_checks.KEYS}
