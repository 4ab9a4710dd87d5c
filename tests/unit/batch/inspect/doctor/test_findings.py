"""The doctor on a Kafka in memory: each thing that may break the promise is found, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from airflow_kstreams.batch.inspect.doctor import Finding, Level, Subject, diagnose
from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.report.results import iso_of
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import TopicPartition, TopicSpec
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from airflow_kstreams.testing.in_memory_kafka.clock import ManualClock
from tests.support.kafka.in_process import Application
from tests.support.kafka.interception import ConfigsForbidden
from tests.support.kafka.printed_commands import accept_in_memory, printed_commands
from tests.support.kafka.waiting import WaitingClock

pytestmark = pytest.mark.promise("doctor-finds-settings")

T = TypeVar("T")
FAULTS = (Level.WARNING, Level.ERROR)
APP = "app"
DAY_MS = 86_400_000
TEXT = serdes.string()
REPLICATED = ("in", "middle", "out", "__consumer_offsets", "__transaction_state")


def topology() -> Topology:
    builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
    middle = builder.stream("in").through("middle")
    middle.group_by(lambda _, value: value).count(store="counts").to_stream().send_to(
        "out", value_serde=serdes.int64()
    )
    return builder.build()


class Rig:
    """An application on a cluster of three brokers, in which all is well until a test spoils it."""

    def __init__(self) -> None:
        self.kafka = InMemoryKafka(clock=ManualClock(now_ms=1_700_000_000_000))
        self.kafka.configure_broker(default_replication_factor="3")
        for topic in REPLICATED:
            self.create(topic)
        self.app = Application(
            application_id=APP,
            topology=topology(),
            on=self.kafka,
            clock=self.kafka.clock,
            settings={"internal.replication.factor": 3},
        )
        self.cluster: Any = self.kafka

    def create(self, topic: str, *, replicas: int = 3, partitions: int = 2, **configs: Any) -> None:
        well = {"min_insync_replicas": "2", "retention_ms": "-1", **configs}
        dotted = {name.replace("_", "."): value for name, value in well.items()}
        spec = TopicSpec(name=topic, partitions=partitions, replication_factor=replicas, configs=dotted)
        self.kafka.admin().delete_topics([topic])
        self.kafka.admin().create_topics([spec])

    def diagnose(self, **settings: Any) -> list[Finding]:
        more = {name.replace("_", "."): value for name, value in settings.items() if name != "subject"}
        app = Application(
            application_id=APP, topology=self.app.topology, settings={**self.app.settings, **more}
        )
        subject = Subject(
            plan=self.app.topology.plan(APP),
            settings=app.checked,
            first_run=True,
            **settings.get("subject", {}),
        )
        return diagnose(self.cluster, subject, clock=self.kafka.clock)

    def problems(self, **settings: Any) -> list[tuple[str, str]]:
        return [(f.level.value, f.check) for f in self.diagnose(**settings) if f.level in FAULTS]

    def only(self, **settings: Any) -> Finding:
        """The one finding that is not well."""
        (found,) = [f for f in self.diagnose(**settings) if f.level in FAULTS]
        return found

    def run(self, run_id: str = "run-1", *values: str) -> None:
        for value in values or ("a",):
            self.kafka.append("in", value.encode(), b"k", partition=0)
        self.app.run(run_id)
        # The engine's own topics get the broker's default, which is 1.
        for topic in self.kafka.topics():
            self.kafka.alter_topic(topic, min_insync_replicas="2")


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.mark.parametrize("runs", [0, 1, 3])
def test_nothing_is_found_when_all_is_well(rig: Rig, runs: int) -> None:
    for number in range(runs):
        rig.run(f"run-{number}")
    assert rig.problems() == []
    checks = {finding.check for finding in rig.diagnose()}
    assert checks >= {
        "broker",
        "topics",
        "data loss",
        "slice",
        "lease",
        "open transactions",
        "input retention",
    }


@pytest.mark.promise("doctor-only-looks")
def test_nothing_is_written_when_a_doctor_looks(rig: Rig) -> None:
    rig.run()
    seen: list[object] = []
    rig.kafka.observe(seen.append)
    topics = rig.kafka.topics()
    at_work = rig.kafka.writer(transactional_id=f"{APP}-coordinator")
    at_work.init_transactions()
    rig.diagnose()
    assert seen == []
    assert rig.kafka.topics() == topics
    at_work.begin()
    at_work.produce("in", b"v", b"k", 0)
    at_work.commit()  # it was not fenced


@pytest.mark.parametrize("topic", ["in", "out", "__consumer_offsets", "app-counts-changelog"])
def test_unclean_leader_election_is_an_error_with_the_command_on_any_topic(rig: Rig, topic: str) -> None:
    rig.run()
    rig.kafka.alter_topic(topic, unclean_leader_election_enable="true")
    found = rig.only()
    assert (found.level, found.check) == (Level.ERROR, "unclean leader election")
    assert topic in found.text
    assert found.fix == (
        f"airflow-kstreams topics set {topic} --bootstrap-server <broker> "
        "--config unclean.leader.election.enable=false"
    )


@pytest.mark.parametrize(
    ("replicas", "least", "level", "check", "text"),
    [
        (1, "1", Level.WARNING, "replication factor", "one replica only of out"),
        (3, "1", Level.WARNING, "min.insync.replicas", "1 with several replicas of out"),
        (3, "3", Level.WARNING, "min.insync.replicas", "as many as there are replicas of out"),
        (3, "4", Level.ERROR, "min.insync.replicas", "more than there are replicas of out"),
    ],
)
def test_replicas_that_do_not_protect_are_named(
    rig: Rig, replicas: int, least: str, level: Level, check: str, text: str
) -> None:
    rig.create("out", replicas=replicas, min_insync_replicas=least)
    found = rig.only()
    assert (found.level, found.check) == (level, check)
    assert found.text.startswith(text)
    assert found.fix


def test_topics_in_the_same_way_share_one_finding(rig: Rig) -> None:
    for topic in REPLICATED:
        rig.create(topic, replicas=1, min_insync_replicas="1")
    assert rig.problems() == [("warning", "replication factor")]
    assert all(topic in rig.only().text for topic in REPLICATED)


def test_transactions_that_cannot_last_are_errors(rig: Rig) -> None:
    rig.kafka.configure_broker(transaction_max_timeout_ms="60000")
    found = rig.only()
    assert (found.level, found.check) == (Level.ERROR, "transaction timeouts")
    assert "transaction.max.timeout.ms = 60000" in found.text
    settings = {"transaction_timeout_ms": 60_000, "commit_interval_ms": 40_000}
    assert rig.problems(**settings, processing_guarantee="exactly_once") == [
        ("error", "transaction timeouts")
    ]
    assert rig.problems(transaction_timeout_ms=60_000) == []


@pytest.mark.parametrize(
    ("configs", "check"),
    [
        ({"transactional_id_expiration_ms": "3600000"}, "transactional ids"),
        ({"offsets_retention_minutes": "1440"}, "offsets retention"),
        ({"transaction_partition_verification_enable": "false"}, "broker features"),
    ],
)
def test_brokers_settings_that_forget_too_early_are_warned_of(
    rig: Rig, configs: dict[str, Any], check: str
) -> None:
    rig.kafka.configure_broker(**configs)
    assert rig.problems() == [("warning", check)]


@pytest.mark.parametrize(
    ("retention_ms", "gap_ms", "level"),
    [
        (7 * DAY_MS, DAY_MS, None),
        (7 * DAY_MS, 4 * DAY_MS, Level.WARNING),
        (7 * DAY_MS, 8 * DAY_MS, Level.ERROR),
        (-1, 100 * DAY_MS, None),
    ],
)
def test_retention_of_inputs_must_outlast_the_gap_between_runs(
    rig: Rig, retention_ms: int, gap_ms: int, level: Level | None
) -> None:
    rig.kafka.configure_broker(offsets_retention_minutes="999999")
    rig.create("in", retention_ms=str(retention_ms))
    found = [f for f in rig.diagnose(subject={"gap_ms": gap_ms}) if f.check == "input retention"]
    assert [f.level for f in found] == [level or Level.OK]
    if level is not None:
        assert f"retention.ms={2 * gap_ms}" in found[0].fix


@pytest.mark.parametrize(
    ("retention_ms", "configs", "level"),
    [
        (20 * DAY_MS, {}, Level.ERROR),
        (30 * DAY_MS + DAY_MS // 2, {}, Level.WARNING),
        (31 * DAY_MS, {}, Level.OK),
        (20 * DAY_MS, {"message_timestamp_type": "LogAppendTime"}, Level.OK),
    ],
)
@pytest.mark.parametrize("idle_runs", [0, 2])
def test_retention_of_inputs_counts_from_the_times_of_the_records(
    rig: Rig, retention_ms: int, configs: dict[str, Any], level: Level, idle_runs: int
) -> None:
    rig.kafka.configure_broker(offsets_retention_minutes="999999")
    rig.kafka.append("in", b"old", b"k", partition=0, timestamp_ms=rig.kafka.clock.now_ms() - 30 * DAY_MS)
    rig.app.run("run-1")
    for number in range(idle_runs):
        rig.kafka.clock.sleep(20 * DAY_MS / 1000)
        rig.app.run(f"idle-{number}")
    rig.kafka.alter_topic("in", retention_ms=str(retention_ms), **configs)

    (found,) = [f for f in rig.diagnose(subject={"gap_ms": DAY_MS}) if f.check == "input retention"]
    assert found.level is level
    if level is not Level.OK:
        assert "dated 30 days before their run" in found.text
        assert f"retention.ms={31 * DAY_MS}" in found.fix


@pytest.mark.promise("records-that-expire-are-found")
@pytest.mark.parametrize(
    ("days", "configs", "read", "found"),
    [
        (4_700, {}, False, True),
        (4_700, {"message_timestamp_type": "LogAppendTime"}, False, False),
        (4_700, {"retention_ms": "-1"}, False, False),
        (6, {}, False, False),
        # What is read may go.
        (8, {}, True, False),
    ],
)
def test_records_that_expire_before_a_run_reads_them_are_an_error(
    rig: Rig, days: int, configs: dict[str, Any], read: bool, found: bool
) -> None:
    week = {"retention_ms": str(7 * DAY_MS)}
    rig.create("in", **{"retention_ms": "-1", **week, **configs})
    at_ms = rig.kafka.clock.now_ms() - days * DAY_MS
    rig.kafka.append("in", b"old", b"k", partition=0, timestamp_ms=at_ms)
    if read:
        rig.app.run("run-1")
    errors = [each for each in rig.diagnose() if each.code == "records-expire-unread"]
    assert [each.level for each in errors] == ([Level.ERROR] if found else [])
    if found:
        assert f"dated back to {iso_of(at_ms)}" in errors[0].text
        assert "keeps records for 7 days after their own time" in errors[0].text


@pytest.mark.remedy("clock_checks.check")
def test_clock_that_is_ahead_is_warned_of_until_its_times_have_passed(rig: Rig) -> None:
    (unseen,) = [each for each in rig.diagnose() if each.check == "clocks"]
    assert unseen.level is Level.UNSEEN
    rig.run()
    (well,) = [each for each in rig.diagnose() if each.check == "clocks"]
    assert (well.level, "cannot be seen without writing" in well.text) == (Level.OK, True)
    behind = WaitingClock(rig.kafka.clock, ahead_ms=-700_000)
    subject = Subject(plan=rig.app.topology.plan(APP), settings=rig.app.checked)
    (found,) = [each for each in diagnose(rig.kafka, subject, clock=behind) if each.check == "clocks"]
    assert (found.level, found.code) == (Level.WARNING, "clocks-differ")
    assert "10 min or more ahead of this machine's clock" in found.text
    rig.kafka.clock.sleep(700)
    (well,) = [each for each in diagnose(rig.kafka, subject, clock=behind) if each.check == "clocks"]
    assert well.level is Level.OK


def test_gap_is_that_of_the_ledger_when_nobody_says_it(rig: Rig) -> None:
    rig.create("in", retention_ms=str(7 * DAY_MS))
    rig.run("run-1")
    rig.kafka.clock.sleep(5 * DAY_MS / 1000)
    rig.run("run-2")
    assert ("warning", "input retention") in rig.problems()
    assert ("warning", "offsets retention") in rig.problems()


@pytest.mark.parametrize("configs", [{"retention_bytes": "1000"}, {"cleanup_policy": "compact"}])
def test_inputs_that_lose_records_otherwise_are_warned_of(rig: Rig, configs: dict[str, Any]) -> None:
    rig.create("in", **configs)
    assert rig.problems() == [("warning", "input retention")]


def test_outputs_that_take_smaller_records_than_the_producer_sends_are_warned_of(rig: Rig) -> None:
    rig.create("out", max_message_bytes="500000")
    found = rig.only()
    assert found.check == "message size"
    assert "max.message.bytes=1000000" in found.fix
    assert rig.problems(subject={"producer_max_bytes": 500_000}) == []


@pytest.mark.parametrize(
    ("configs", "level"),
    [
        ({"message_timestamp_before_max_ms": str(DAY_MS)}, Level.ERROR),
        ({"retention_ms": str(DAY_MS)}, Level.WARNING),
        ({"message_timestamp_after_max_ms": "1000"}, Level.WARNING),
    ],
)
def test_outputs_that_refuse_or_delete_the_times_of_records_are_named(
    rig: Rig, configs: dict[str, Any], level: Level
) -> None:
    now_ms = rig.kafka.clock.now_ms()
    rig.kafka.append("in", b"old", b"k", partition=0, timestamp_ms=now_ms - 30 * DAY_MS)
    rig.run("run-1", "b")
    rig.kafka.append("in", b"old", b"k", partition=1, timestamp_ms=now_ms - 30 * DAY_MS)
    rig.run("run-2", "c")
    rig.kafka.alter_topic("out", **configs)
    found = rig.only()
    assert (found.level, found.check) == (level, "record times")
    assert "out " in found.text


def test_internal_topics_that_were_changed_are_named_with_the_command(rig: Rig) -> None:
    rig.run()
    rig.kafka.alter_topic("app-counts-changelog", cleanup_policy="delete")
    found = rig.only()
    assert (found.level, found.check) == (Level.ERROR, "internal topics")
    assert "app-counts-changelog has cleanup.policy=delete, expected compact" in found.text
    assert (
        "topics set app-counts-changelog --bootstrap-server <broker> --config cleanup.policy=compact"
        in found.fix
    )
    rig.kafka.alter_topic("app-counts-changelog", cleanup_policy="compact", delete_retention_ms="1")
    assert rig.only().level is Level.WARNING


def test_topics_that_begin_would_refuse_are_errors(rig: Rig) -> None:
    rig.run()
    rig.kafka.admin().delete_topics(["out"])
    assert ("error", "topics") in rig.problems()


def test_changelogs_with_partitions_for_processors_to_come_are_no_problem(rig: Rig) -> None:
    rig.run()
    rig.kafka.add_partitions("app-counts-changelog", 5)
    assert rig.problems() == []


@pytest.mark.parametrize("state", ["finished", "running"])
def test_losses_that_begin_or_a_task_would_refuse_are_errors_with_the_commands(rig: Rig, state: str) -> None:
    rig.run()
    for value in "bcdef":
        rig.kafka.append("in", value.encode(), b"k", partition=0)
    if state == "running":
        rig.app.begin("run-2")
    rig.kafka.expire({TopicPartition("in", 0): 4})
    (found,) = [f for f in rig.diagnose() if f.level is Level.ERROR]
    assert found.check == "data loss"
    assert "in-0: records from offset 1 to 4 are gone, at most 3" in found.text
    accept_in_memory(type("E", (), {"fix": found.fix})(), rig.kafka)
    assert Level.ERROR not in {f.level for f in rig.diagnose()}


def test_recreated_and_vanished_topics_are_errors(rig: Rig) -> None:
    rig.run()
    rig.create("in")
    assert ("error", "data loss") in rig.problems()
    rig.create("in", partitions=1)
    (found,) = [f for f in rig.diagnose() if f.check == "data loss"]
    assert "topic in has 1 partition, runs have read 2" in found.text


def test_progress_that_was_lost_is_an_error(rig: Rig) -> None:
    rig.kafka.append("in", b"a", b"k", partition=0)
    rig.app.begin("run-1")
    rig.kafka.expire_offsets(APP)
    assert ("error", "data loss") in rig.problems()


def test_open_transactions_are_warned_of_with_age_and_command(rig: Rig) -> None:
    writer = rig.kafka.writer(transactional_id="foreign", transaction_timeout_ms=900_000)
    writer.init_transactions()
    writer.begin()
    writer.produce("in", b"v", b"k", 1)
    writer.flush()
    rig.kafka.clock.sleep(300)
    found = rig.only()
    assert found.check == "open transactions"
    assert "in-1: a transaction open for 5 min holds the last stable offset at 0" in found.text
    find, abort = printed_commands(found.fix)
    assert find[3:] == ["describe-producers", "--topic", "in", "--partition", "1"]
    assert abort[3:] == ["abort", "--topic", "in", "--partition", "1", "--start-offset", "0"]


def test_open_transaction_on_the_metadata_topic_is_warned_of(rig: Rig) -> None:
    rig.run()
    writer = rig.kafka.writer(transactional_id="foreign", transaction_timeout_ms=900_000)
    writer.init_transactions()
    writer.begin()
    writer.produce(ProtocolTopics(APP).metadata, b"v", b"k", 0)
    writer.flush()
    assert rig.problems() == [("warning", "metadata topic")]


def test_unfinished_slice_and_live_lease_are_told(rig: Rig) -> None:
    rig.run()
    rig.kafka.append("in", b"b", b"k", partition=0)
    rig.app.begin("run-2")
    found = rig.only()
    assert (found.level, found.check) == (Level.WARNING, "slice")
    assert "run 'run-2' began" in found.text


@pytest.mark.parametrize("ahead_hours", [12, -12])
def test_last_renewal_of_a_lease_is_shown_whatever_the_drivers_clock_says(rig: Rig, ahead_hours: int) -> None:
    clock = WaitingClock(rig.kafka.clock, ahead_ms=ahead_hours * 3_600_000)
    driver = Coordinator(rig.kafka, rig.app.checked, clock=clock)
    rig.app.begin("run-1", coordinator=driver)
    renewed = iso_of(read_ledger(rig.kafka, APP, clock=rig.kafka.clock).lease_written_ms)
    rig.kafka.clock.sleep(3_600)
    (found,) = [finding for finding in rig.diagnose() if finding.check == "lease"]
    assert found.level is Level.OK
    assert found.text.startswith(f"driver of run-1 holds it for run 'run-1' and renewed it last at {renewed}")


class Forbidding:
    """Refuses some calls as a broker with ACLs does."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        if name in self.names and name == "admin.topic_configs":
            return ConfigsForbidden().call(name, client, effect, arguments)
        if name in self.names:
            raise KafkaClientError("not authorized", fix="ask", kafka_code="TOPIC_AUTHORIZATION_FAILED")
        return effect()


@pytest.mark.parametrize("call", ["admin.broker_configs", "admin.topic_configs"])
def test_what_may_not_be_seen_is_said_and_the_rest_is_looked_at(rig: Rig, call: str) -> None:
    rig.cluster = FaultyCluster(rig.kafka, Forbidding(call))
    rig.run()
    assert rig.problems() == []
    (unseen,) = [found for found in rig.diagnose() if found.level is Level.UNSEEN]
    assert (unseen.check, "cannot be looked at: " in unseen.text) == ("permissions", True)
    assert "data loss" in {finding.check for finding in rig.diagnose()}
