"""Changelogs, ledger and metadata topic that are not whole any more are not taken for all there ever was."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from airflow_kstreams.batch.inspect.doctor import Subject, diagnose
from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.protocol.offsets.offset_metadata import LIMIT_BYTES, OffsetMetadata
from airflow_kstreams.streams import KStreamBuilder, StoreSpec, serdes
from airflow_kstreams.streams.errors import ConfigError, DataLossError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.continuous_scene import SwitchingApplication
from tests.support.kafka.copies import APP, counting, counts, kafka_with_topics, publish, refused
from tests.support.kafka.in_process import Application
from tests.support.kafka.interception import Once
from tests.support.kafka.printed_commands import accept_at, accept_in_memory, other_way

pytestmark = pytest.mark.promise("state-is-not-lost", "ledger-and-metadata-are-whole")

CHANGELOG = f"{APP}-counts-changelog"
AT = TopicPartition(CHANGELOG, 0)
METADATA, LEDGER = ProtocolTopics(APP).protocol
GIVE_UP = (
    f"airflow-kstreams reset --bootstrap-server <broker> --application-id {APP} --internal-topics {CHANGELOG}"
)
DROP = f"airflow-kstreams reset --bootstrap-server <broker> --application-id {APP} --delete-stopoffsets"


@pytest.fixture
def kafka() -> InMemoryKafka:
    return kafka_with_topics("in", "out", partitions=1)


@pytest.fixture
def app(kafka: InMemoryKafka) -> Application:
    return counting(kafka)


def end(kafka: InMemoryKafka, at: TopicPartition) -> int:
    return kafka.admin().end_offsets([at], isolation="read_uncommitted")[at]


def delete(kafka: InMemoryKafka, topic: str) -> None:
    kafka.admin().delete_topics([topic])


def recreate(kafka: InMemoryKafka, topic: str) -> None:
    delete(kafka, topic)
    kafka.create_topic(topic, cleanup_policy="compact")


def expire(kafka: InMemoryKafka, topic: str) -> None:
    kafka.expire({TopicPartition(topic, 0): 1})


def commands_of(error: DataLossError, kafka: InMemoryKafka) -> list[str]:
    return [" ".join(command) for command in accept_in_memory(error, kafka)]


def said_by_doctor(app: Application, kafka: InMemoryKafka) -> str:
    subject = Subject(plan=app.topology.plan(APP), settings=app.checked)
    (found,) = [f for f in diagnose(kafka, subject, clock=kafka.clock) if f.check == "data loss"]
    return found.text


# == changelogs between two runs


@pytest.mark.parametrize(
    ("lose", "said"),
    [
        (delete, f"changelog {CHANGELOG} is not the one that earlier runs wrote: its id is gone, expected "),
        (recreate, f"changelog {CHANGELOG} is not the one that earlier runs wrote: its id is in-memory-"),
        (expire, f"{AT}: the changelog's records before offset 1 were deleted"),
        (
            lambda kafka, _: kafka.truncate(AT, 3),
            f"{AT}: the changelog ends at 3, but when a run was last finished it ended at 6",
        ),
    ],
    ids=["deleted", "created again", "records deleted", "truncated"],
)
@pytest.mark.parametrize("continuous", [False, True], ids=["batch", "continuous"])
@pytest.mark.parametrize("empty_run", [False, True], ids=["", "after a run without records"])
def test_state_that_is_not_whole_is_refused_and_given_up_by_the_command(
    app: Application,
    kafka: InMemoryKafka,
    lose: Callable[[InMemoryKafka, str], None],
    said: str,
    continuous: bool,
    empty_run: bool,
) -> None:
    publish(kafka, "a", "a", "a")
    app.run("run-1")
    assert end(kafka, AT) == 6
    if empty_run:
        app.run("run-empty")
    lose(kafka, CHANGELOG)
    publish(kafka, "a")
    assert said in said_by_doctor(app, kafka)
    if continuous:
        endless = SwitchingApplication(topology=app.topology, cluster=kafka, clock=kafka.clock)
        with pytest.raises(DataLossError) as caught:
            endless.run_continuously("c-1")
        error = caught.value
    else:
        error = refused(app, "run-2")
    assert said in error.cause
    assert f"with --input-topics in in place of --internal-topics {CHANGELOG} everything" in error.fix
    assert commands_of(error, kafka) == [GIVE_UP]
    assert app.run("run-2").warnings == ()
    publish(kafka, "a")
    app.run("run-3")
    assert counts(kafka) == [1, 2, 3, 1, 2]


@pytest.mark.remedy("data_loss.state_lost")
def test_state_is_built_anew_when_the_inputs_are_reset_with_it(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, "a", "a", "a")
    app.run("run-1")
    expire(kafka, CHANGELOG)
    publish(kafka, "a")
    error = refused(app, "run-2")
    accept_in_memory(DataLossError("", fix=other_way(error), run_id=""), kafka)
    app.run("run-2")
    assert counts(kafka) == [1, 2, 3, 1, 2, 3, 4]


def test_compaction_takes_nothing_away(app: Application, kafka: InMemoryKafka) -> None:
    for number in range(1, 4):
        publish(kafka, "a", "a")
        app.run(f"run-{number}")
        for topic in (CHANGELOG, METADATA, LEDGER):
            kafka.compact(topic, drop_tombstones=True)
    assert counts(kafka) == [1, 2, 3, 4, 5, 6]


def test_changelog_that_holds_nothing_yet_may_be_created_again(
    app: Application, kafka: InMemoryKafka
) -> None:
    app.run("run-1")
    recreate(kafka, CHANGELOG)
    publish(kafka, "a")
    app.run("run-2")
    assert counts(kafka) == [1]


def test_truncation_is_noticed_after_a_continuous_run_and_a_reset_too(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, "a", "a", "a")
    app.run("run-1")
    endless = SwitchingApplication(topology=app.topology, cluster=kafka, clock=kafka.clock)
    endless.run_continuously("c-1").stop()
    kafka.truncate(AT, 3)
    assert f"{AT}: the changelog ends at 3" in refused(app, "run-2").cause
    accept_in_memory(DataLossError("", fix=DROP, run_id=""), kafka)
    assert f"{AT}: the changelog ends at 3" in refused(app, "run-2").cause, "it was not given up"


# == changelogs while a run is under way


def half_run(app: Application, kafka: InMemoryKafka) -> None:
    """Begin a run of which the counting task commits two of its four records, then dies."""

    class DiedError(Exception):
        pass

    def die() -> None:
        raise DiedError

    publish(kafka, "a", "a")
    app.run("run-1")
    publish(kafka, "a", "a", "a", "a")
    slice_ = app.begin("run-2")
    app.task(slice_, 0, 0)
    app.interceptor = Once("writer.begin", 3, die)
    with pytest.raises(DiedError):
        app.task(slice_, 1, 0)
    app.interceptor = None


@pytest.mark.parametrize("at", ["this run", "the run before"])
def test_truncated_state_is_refused_while_a_run_is_under_way(
    app: Application, kafka: InMemoryKafka, at: str
) -> None:
    half_run(app, kafka)
    cut = end(kafka, AT) - (3 if at == "this run" else 6)
    kafka.truncate(AT, cut)
    slice_ = app.begin("run-2", (0, 2))
    with pytest.raises(DataLossError, match=f"{AT}: the changelog ends at {cut}, but") as caught:
        app.task(slice_, 1, 0)
    assert "was committed when it ended at" in caught.value.cause
    assert commands_of(caught.value, kafka) == [f"{GIVE_UP} --delete-stopoffsets"]
    app.run("run-3")
    assert counts(kafka) == [1, 2, 3, 4, 1, 2]


@pytest.mark.remedy("data_loss.state_lost")
@pytest.mark.parametrize(
    ("lose", "said"),
    [
        (delete, "is not the one run 'run-2' began with"),
        (recreate, "is not the one run 'run-2' began with"),
        (expire, "records before offset 1 were deleted"),
        (lambda kafka, _: kafka.truncate(AT, 1), "the changelog ends at 1"),
    ],
    ids=["deleted", "created again", "records deleted", "truncated"],
)
def test_all_is_counted_anew_by_the_other_way_of_a_task_that_reads_a_topic_for_the_first_time(
    app: Application, kafka: InMemoryKafka, lose: Callable[[InMemoryKafka, str], None], said: str
) -> None:
    kafka.create_topic("more")
    publish(kafka, "a", "a")
    app.run("run-1")
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream(["in", "more"]).group_by(lambda _, value: value).count(store="counts").to_stream().send_to(
        "out", value_serde=serdes.int64()
    )
    app.topology = builder.build()
    publish(kafka, "a")
    publish(kafka, "a", topic="more")
    slice_ = app.begin("run-2")
    app.tasks(slice_, [0])
    lose(kafka, CHANGELOG)
    with pytest.raises(DataLossError, match=said) as caught:
        app.tasks(slice_, [1])
    accept_in_memory(DataLossError("", fix=other_way(caught.value), run_id=""), kafka)
    app.run("run-3")
    assert counts(kafka) == [1, 2, 1, 2, 3, 4]


def test_state_whose_records_were_deleted_is_refused_while_a_run_is_under_way(
    app: Application, kafka: InMemoryKafka
) -> None:
    half_run(app, kafka)
    expire(kafka, CHANGELOG)
    slice_ = app.begin("run-2", (0, 2))
    with pytest.raises(DataLossError, match=f"{AT}: the changelog's records before offset 1 were deleted"):
        app.task(slice_, 1, 0)


def test_state_is_guarded_from_the_moment_a_run_has_begun(app: Application, kafka: InMemoryKafka) -> None:
    publish(kafka, "a", "a")
    app.run("run-1")
    publish(kafka, "a")
    slice_ = app.begin("run-2")
    app.task(slice_, 0, 0)
    kafka.truncate(AT, 2)
    with pytest.raises(DataLossError, match=f"{AT}: the changelog ends at 2"):
        app.task(slice_, 1, 0)


def test_loss_is_named_before_settings_when_a_changelog_was_made_anew_under_way(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, "a")
    app.begin("run-1")
    delete(kafka, CHANGELOG)
    kafka.create_topic(CHANGELOG)  # as a broker makes topics by itself
    with pytest.raises(DataLossError, match=f"changelog {CHANGELOG} is not the one run 'run-1' began with"):
        app.begin("run-1", (0, 2))


@pytest.mark.promise("replaced-topics-are-noticed")
def test_changelog_that_is_made_anew_is_noticed_when_the_run_is_finished(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, "a")
    app.tasks(app.begin("run-1"))
    recreate(kafka, CHANGELOG)
    with pytest.raises(DataLossError, match=f"changelog {CHANGELOG} is not the one run 'run-1' began with"):
        app.finish("run-1")


# == what stands beside the offsets


def test_ends_of_changelogs_stand_beside_every_offset_of_their_task(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, "a", "a")
    app.run("run-1")
    (at,) = kafka.partitions(f"{APP}-counts-repartition")
    found = OffsetMetadata.decode(kafka.reader(group_id=APP).committed([at])[at].metadata)
    assert found.changelog_ends == (3,), "behind the last record, before its marker"
    (source,) = kafka.partitions("in")
    other = OffsetMetadata.decode(kafka.reader(group_id=APP).committed([source])[source].metadata)
    assert other.changelog_ends == (), "its task has no state"
    ledger = read_ledger(kafka, APP, clock=kafka.clock)
    assert ledger.changelog_ends is not None
    assert ledger.changelog_ends.changelogs[CHANGELOG].ends == (4,)


def test_ends_are_left_to_the_ledger_when_an_offsets_metadata_has_no_room_for_them() -> None:
    many = OffsetMetadata(run_id="r", records_in=7, changelog_ends=tuple(range(10**17, 10**17 + 300)))
    text = many.encode()
    assert len(text) <= LIMIT_BYTES
    assert OffsetMetadata.decode(text).changelog_ends == ()
    assert OffsetMetadata.decode(text).records_in == 7
    few = msgspec.structs.replace(many, changelog_ends=(1, 2))
    assert OffsetMetadata.decode(few.encode()).changelog_ends == (1, 2)


# == ledger and metadata topic


@pytest.mark.parametrize("topic", [METADATA, LEDGER])
@pytest.mark.parametrize(
    "lose", [delete, recreate, expire], ids=["deleted", "created again", "records deleted"]
)
@pytest.mark.parametrize("under_way", [False, True], ids=["between runs", "under way"])
@pytest.mark.remedy("data_loss.not_whole")
def test_protocols_topics_that_are_not_whole_are_refused(
    app: Application,
    kafka: InMemoryKafka,
    topic: str,
    lose: Callable[[InMemoryKafka, str], None],
    under_way: bool,
) -> None:
    publish(kafka, "a", "a")
    app.run("run-1")
    publish(kafka, "a")
    if under_way:
        app.begin("run-2")
    lose(kafka, topic)
    error = refused(app, "run-2")
    said = f"topic {topic}: records before offset 1 were deleted"
    if lose is not expire:
        wrote = "earlier runs wrote"
        if topic == LEDGER:
            wrote = f"run 'run-{2 if under_way else 1}' began with"
        said = f"topic {topic} is not the one that {wrote}: its id is in-memory-"
    assert said in error.cause
    assert said in said_by_doctor(app, kafka)
    delete_topic = f"airflow-kstreams topics delete {topic} --bootstrap-server <broker>"
    assert commands_of(error, kafka) == ([delete_topic] if lose is expire else []) + [DROP]
    app.run("run-2")
    publish(kafka, "a")
    app.run("run-3")
    assert counts(kafka) == [1, 2, 3, 4]


def test_ledger_that_was_cut_back_is_refused(app: Application, kafka: InMemoryKafka) -> None:
    publish(kafka, "a", "a")
    app.run("run-1")
    publish(kafka, "a")
    app.begin("run-2")
    kafka.truncate(TopicPartition(LEDGER, 0), 2)
    error = refused(app, "run-2")
    assert f"topic {LEDGER} ends at 2" in error.cause
    assert commands_of(error, kafka) == [DROP]
    app.run("run-2")
    assert counts(kafka) == [1, 2, 3]


def test_metadata_topic_may_go_with_a_continuous_run(app: Application, kafka: InMemoryKafka) -> None:
    endless = SwitchingApplication(topology=app.topology, cluster=kafka, clock=kafka.clock)
    for number in range(2):
        publish(kafka, "a")
        app.run(f"run-{number}")
        running = endless.run_continuously(f"c-{number}")
        assert METADATA not in kafka.topics()
        running.stop()
    publish(kafka, "a")
    app.run("run-2")
    assert counts(kafka) == [1, 2, 3]


def test_settings_that_delete_are_refused_with_the_command_that_mends_them(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, "a")
    app.run("run-1")
    for topic in (CHANGELOG, METADATA, LEDGER):
        kafka.alter_topic(topic, cleanup_policy="delete")
    with pytest.raises(ConfigError) as caught:
        app.begin("run-2")
    for topic in (CHANGELOG, METADATA, LEDGER):
        assert f"set {topic} --bootstrap-server <broker> --config cleanup.policy=compact" in caught.value.fix


def test_person_may_set_the_offsets_of_a_task_with_state(app: Application, kafka: InMemoryKafka) -> None:
    half_run(app, kafka)
    (at,) = kafka.partitions(f"{APP}-counts-repartition")
    with closing(kafka.reader(group_id=APP)) as reader:
        found = reader.committed([at])[at].offset
    accept_at(kafka, {at: found}, APP)
    app.run("run-2", (0, 2))
    assert counts(kafka) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("storage", ["memory", "rocksdb"])
def test_offsets_that_were_taken_back_are_refused_because_the_changelog_knows_better(
    kafka: InMemoryKafka, storage: str, tmp_path: Path
) -> None:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    store = StoreSpec(
        name="counts",
        key_serde=serdes.string(),
        value_serde=serdes.int64(),
        storage="memory" if storage == "memory" else "rocksdb",
    )
    counted = builder.stream("in").group_by_key().count(store=store)
    counted.to_stream().send_to("out", value_serde=serdes.int64())
    app = Application(
        application_id=APP,
        topology=builder.build(),
        on=kafka,
        clock=kafka.clock,
        settings={"commit.every.records": 1, "state.dir": str(tmp_path)},
    )
    (at,) = kafka.partitions("in")
    reader = kafka.reader(group_id=APP)
    publish(kafka, "a", "a", "a")
    slice_ = app.begin("run-1")
    begun = reader.committed([at])
    app.tasks(slice_)
    reader.commit(begun)  # as a replica has them that lags behind
    with pytest.raises(DataLossError) as caught:
        app.tasks(app.begin("run-1", (0, 2)))
    held = f"changelog {AT} holds a record at offset"
    assert f"task 0_0: {held}" in caught.value.cause
    assert "were committed when it ended at 0" in caught.value.cause
    assert "the group's offsets were taken back, in-0 to 0" in caught.value.cause
    assert counts(kafka) == [1, 2, 3]
    (command,) = commands_of(caught.value, kafka)
    assert "--accept in:0 --to-offset 0" in command
    app.run("run-1", (0, 3))
    assert counts(kafka) == [1, 2, 3, 4, 5, 6], "twice, as a person has accepted"
