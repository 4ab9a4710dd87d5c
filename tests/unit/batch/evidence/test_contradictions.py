"""Metadata topic, ledger and committed offsets that disagree: no run takes one on faith. What only looks like
it is legal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from airflow_kstreams.batch.continuous.start import begin_continuous
from airflow_kstreams.batch.inspect.doctor import Subject, diagnose
from airflow_kstreams.batch.ledger.fold import LEASE_KEY
from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.batch.protocol.offsets.offset_metadata import OffsetMetadata
from airflow_kstreams.batch.protocol.slice.metadata import read_metadata
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.batch.reset.scenario import DEFAULT, TO_EARLIEST, Scenario
from airflow_kstreams.batch.reset.scenario import to_offset as all_to_offset
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.streams import KStreamBuilder
from airflow_kstreams.streams.errors import DataLossError
from airflow_kstreams.streams.naming.commands import reset_command
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.testing import InMemoryKafka
from airflow_kstreams.testing.in_memory_kafka import LogRecord
from tests.support.kafka.continuous_scene import SwitchingApplication
from tests.support.kafka.copies import APP, TEXT, copying, counted, counts, publish, refused, results
from tests.support.kafka.in_process import Application
from tests.support.kafka.interception import Once
from tests.support.kafka.printed_commands import accept_at, accept_in_memory
from tests.support.kafka.written_over import change_checkpoint

pytestmark = pytest.mark.promise("contradictions-are-refused", "offsets-may-be-set-by-hand")

METADATA, LEDGER = ProtocolTopics(APP).protocol
IN = TopicPartition("in", 0)
DROP = f"airflow-kstreams reset --bootstrap-server <broker> --application-id {APP} --delete-stopoffsets"
SAYS = f"topic {METADATA} says that run"

Offsets = Mapping[TopicPartition, CommittedOffset]


class DiedError(Exception):
    """A process that dies there."""


def die() -> None:
    raise DiedError


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka()
    kafka.clock.sleep(1)
    for topic in ("in", "middle"):
        kafka.create_topic(topic, partitions=2)
    kafka.create_topic("out")
    return kafka


@pytest.fixture
def app(kafka: InMemoryKafka) -> Application:
    """An application without state."""
    return copying(kafka)


@pytest.fixture
def counting(kafka: InMemoryKafka) -> Application:
    """An application with state, which commits after each record."""
    return Application(
        application_id=APP,
        topology=counted(),
        on=kafka,
        clock=kafka.clock,
        settings={"commit.every.records": 1},
    )


def end(kafka: InMemoryKafka, topic: str) -> int:
    at = TopicPartition(topic, 0)
    return kafka.admin().end_offsets([at], isolation="read_uncommitted")[at]


def cut(kafka: InMemoryKafka, topic: str, to: int) -> None:
    kafka.truncate(TopicPartition(topic, 0), to)


def write_back(kafka: InMemoryKafka, topic: str, records: Sequence[LogRecord]) -> None:
    """Restore a backup over what is there."""
    for record in records:
        kafka.append(topic, record.value(), record.key(), headers=list(record.headers() or ()))


def offsets(kafka: InMemoryKafka) -> Offsets:
    reader = kafka.reader(group_id=APP)
    found = reader.committed([tp for topic in kafka.topics() for tp in kafka.partitions(topic)])
    reader.close()
    return found


def written(kafka: InMemoryKafka) -> int:
    return len(kafka.records(METADATA)) if METADATA in kafka.topics() else 0


def commit(kafka: InMemoryKafka, committed: Offsets) -> None:
    reader = kafka.reader(group_id=APP)
    reader.commit(committed)
    reader.close()


def set_by_hand(kafka: InMemoryKafka, to: Mapping[TopicPartition, int]) -> None:
    commit(kafka, {tp: CommittedOffset(at) for tp, at in to.items()})


def capture(app: Application, run_id: str) -> None:
    """Begin a run as the capture operator does: without a lease."""
    coordinator = Coordinator(app.cluster, app.checked, clock=app.clock)
    coordinator.begin(run_id, app.topology.plan(APP), hold_lease=False)
    coordinator.close()


def reset(kafka: InMemoryKafka, *inputs: str, drop: bool = False, scenario: Scenario | None = None) -> None:
    request = ResetRequest(
        application_id=APP,
        input_topics=inputs,
        scenario=scenario or DEFAULT,
        delete_stop_offsets=drop,
        force=True,
    )
    with ApplicationReset(kafka, request, clock=kafka.clock) as done:
        done.run()


def said_by_doctor(app: Application, kafka: InMemoryKafka) -> str:
    subject = Subject(plan=app.topology.plan(APP), settings=app.checked)
    (found,) = [f for f in diagnose(kafka, subject, clock=kafka.clock) if f.check == "data loss"]
    return found.text


def refused_everywhere(app: Application, kafka: InMemoryKafka, run_id: str, said: str) -> DataLossError:
    """Return the refusal of a batch; doctor and a continuous run say the same."""
    kafka.clock.sleep(60)  # a lease that is held is not anyone's any more
    assert said in said_by_doctor(app, kafka)
    before = written(kafka), offsets(kafka)
    error = refused(app, run_id)
    assert said in error.cause
    coordinator = app.coordinator()
    with pytest.raises(DataLossError) as caught:
        begin_continuous(coordinator, "c-1", app.topology.plan(APP))
    coordinator.close()
    assert said in caught.value.cause
    assert (written(kafka), offsets(kafka)) == before, "nothing is decided"
    return error


def commands_of(error: DataLossError, kafka: InMemoryKafka) -> list[str]:
    return [" ".join(command) for command in accept_in_memory(error, kafka)]


def to_offset(offset: int, *topics: str) -> str:
    named = [f"--accept {topic}" for topic in topics]
    return reset_command(APP, *named, f"--to-offset {offset}")


# == the metadata topic was truncated


@pytest.mark.parametrize("how", ["truncated", "restored over it", "created again"])
@pytest.mark.parametrize("captured", [False, True], ids=["by a driver", "by capture"])
@pytest.mark.parametrize(
    ("back_to", "said"),
    [
        (
            "run-1 finished",
            "'run-1' was finished last, but the ledger says that run 'run-2' was finished after it",
        ),
        ("run-1 begun", "'run-1' is under way, but the ledger says that it is finished"),
        ("run-2 begun", "'run-2' is under way, but the ledger says that it is finished"),
    ],
)
def test_no_slice_begins_when_the_metadata_topic_is_that_of_an_older_run(
    app: Application, kafka: InMemoryKafka, how: str, back_to: str, said: str, captured: bool
) -> None:
    ends: dict[str, int] = {}
    for number, values in enumerate(((1, 2), (3, 4)), 1):
        publish(kafka, *values)
        if captured:
            capture(app, f"run-{number}")
        else:
            app.begin(f"run-{number}")
        ends[f"run-{number} begun"] = end(kafka, METADATA)
        app.run(f"run-{number}", (0, 2))
        ends[f"run-{number} finished"] = end(kafka, METADATA)
    backup = [record for record in kafka.records(METADATA) if record.offset() < ends[back_to]]
    if how == "truncated":
        cut(kafka, METADATA, ends[back_to])
    elif how == "restored over it":
        write_back(kafka, METADATA, backup)
    else:
        kafka.admin().delete_topics([METADATA])
        kafka.create_topic(METADATA, cleanup_policy="compact")
        write_back(kafka, METADATA, backup)
    publish(kafka, 5)
    error = refused_everywhere(app, kafka, "run-3", f"{SAYS} {said}")
    assert ("is not the one that earlier runs wrote" in error.cause) == (how == "created again")
    assert commands_of(error, kafka) == [DROP]
    app.run("run-3")
    assert results(kafka) == ["1", "2", "3", "4", "5"]


@pytest.mark.remedy("data_loss.drop_slice")
def test_stops_are_not_frozen_anew_when_only_the_newest_runs_records_are_gone(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1, 2)
    app.run("run-1")
    before = end(kafka, METADATA)
    publish(kafka, 3, 4)
    app.task(app.begin("run-2"), 0, 0)
    cut(kafka, METADATA, before)
    publish(kafka, 5)
    error = refused_everywhere(
        app,
        kafka,
        "run-2",
        f"{SAYS} 'run-1' was finished last, but the ledger says that a driver works on run 'run-2'",
    )
    assert "in-0: run 'run-2' has committed its offset 4, but the metadata topic and the" in error.cause
    assert "say that run 'run-1' was finished last" in error.cause
    assert commands_of(error, kafka) == [DROP]
    app.run("run-2")
    assert results(kafka) == ["1", "2", "3", "4", "5"]


def test_stops_are_not_frozen_anew_when_a_captured_run_is_gone_from_the_metadata_topic(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1, 2)
    app.run("run-1")
    before = end(kafka, METADATA)
    publish(kafka, 3)
    capture(app, "run-2")
    cut(kafka, METADATA, before)
    publish(kafka, 4)
    error = refused_everywhere(app, kafka, "run-2", "in-0: run 'run-2' has committed its offset 2")
    assert commands_of(error, kafka) == [DROP]
    app.run("run-2")
    assert results(kafka) == ["1", "2", "3", "4"]


@pytest.mark.parametrize("under_way", [False, True], ids=["between runs", "under way"])
def test_metadata_topic_that_holds_nothing_is_not_taken_for_a_new_one(
    app: Application, kafka: InMemoryKafka, under_way: bool
) -> None:
    publish(kafka, 1)
    app.run("run-1")
    publish(kafka, 2)
    if under_way:
        capture(app, "run-2")
    cut(kafka, METADATA, 0)
    said = (
        f"topic {METADATA} holds no run, but the ledger says that run 'run-1' is finished: it was truncated"
    )
    assert said in said_by_doctor(app, kafka)
    error = refused(app, "run-3")
    assert said in error.cause
    assert ("run 'run-2' has begun, and its stop offsets are gone" in error.cause) == under_way
    assert commands_of(error, kafka) == [DROP]
    app.run("run-3")
    assert results(kafka) == ["1", "2"]


def test_stops_of_a_slice_that_was_dropped_do_not_come_back(app: Application, kafka: InMemoryKafka) -> None:
    publish(kafka, 1, 2)
    app.begin("run-1")
    first = kafka.records(METADATA)
    reset(kafka, drop=True)
    publish(kafka, 3, 4)
    app.begin("run-1")
    write_back(kafka, METADATA, first)
    error = refused(app, "run-1")
    assert "in-0: its offset 0 was committed with other stop offsets of the run, but the" in error.cause
    assert "says that run 'run-1' is under way, which reads [0, 2)" in error.cause
    assert "other stop offsets" in said_by_doctor(app, kafka)
    assert set(commands_of(error, kafka)) == {DROP}
    assert app.run("run-1").inputs[0].stop_offset == 4
    assert results(kafka) == ["1", "2", "3", "4"]


def test_older_generation_is_refused_because_the_lease_knows_a_newer_one(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1)
    app.begin("run-1")
    before = end(kafka, METADATA)
    app.begin("run-1", (0, 2))
    cut(kafka, METADATA, before)
    said = f"{SAYS} 'run-1' has generation 1, but the ledger's lease has 2"
    error = refused_everywhere(app, kafka, "run-1", said)
    assert commands_of(error, kafka) == [DROP]
    app.run("run-1")
    assert results(kafka) == ["1"]


def test_older_slice_of_the_same_run_id_is_refused_when_the_run_was_taken_back_and_ran_again(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1, 2)
    app.run("run-1")
    first = [r for r in kafka.records(METADATA) if r.value() is not None]
    reset(kafka, "in")
    said = "'run-1' was finished last, but the ledger says that a reset took it back"
    write_back(kafka, METADATA, first)
    assert said in refused(app, "run-1").cause
    reset(kafka, drop=True)
    kafka.clock.sleep(1)
    publish(kafka, 3)
    app.run("run-1")
    write_back(kafka, METADATA, first)
    refused_everywhere(app, kafka, "run-2", f"{SAYS} 'run-1' began at ")
    assert results(kafka) == ["1", "1", "2", "2", "3"]


def test_metadata_of_before_a_reset_that_skips_forward_is_refused(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1)
    app.run("run-1")
    first = kafka.records(METADATA)
    publish(kafka, 2)
    reset(kafka, "in", scenario=all_to_offset(2))
    write_back(kafka, METADATA, first)
    said = f"{SAYS} 'run-1' was finished last, but the ledger says that the application was reset after it"
    refused_everywhere(app, kafka, "run-2", said)


# == the ledger was lost, or cut back


@pytest.mark.parametrize("run_id", ["run-2", "run-3"], ids=["the run again", "the next run"])
@pytest.mark.parametrize("captured", [False, True], ids=["by a driver", "by capture"])
def test_no_second_slice_begins_when_the_ledger_lost_the_summary_of_a_finished_run(
    app: Application, kafka: InMemoryKafka, run_id: str, captured: bool
) -> None:
    publish(kafka, 1)
    app.run("run-1")
    publish(kafka, 2)
    if captured:
        capture(app, "run-2")
    slice_ = app.begin("run-2", (0, 2))
    before = end(kafka, LEDGER)
    app.tasks(slice_)
    app.finish("run-2")
    cut(kafka, LEDGER, before)
    publish(kafka, 3)
    said = f"{SAYS} 'run-2' was finished last, but the ledger does not know it, its last run is 'run-1'"
    error = refused_everywhere(app, kafka, run_id, said)
    assert commands_of(error, kafka) == [DROP]
    app.run(run_id)
    assert results(kafka) == ["1", "2", "3"]


@pytest.mark.parametrize("under_way", [False, True], ids=["finished", "under way"])
def test_lost_ledger_opens_no_second_slice(app: Application, kafka: InMemoryKafka, under_way: bool) -> None:
    publish(kafka, 1)
    app.run("run-0")
    publish(kafka, 2)
    slice_ = app.begin("run-1")
    if not under_way:
        app.tasks(slice_)
        app.finish("run-1")
    kafka.admin().delete_topics([LEDGER])
    publish(kafka, 3)
    said = f"{SAYS} 'run-1' was finished last, but the ledger does not know it"
    if under_way:
        said = f"{SAYS} 'run-1' was claimed by a driver, but the ledger has no lease"
    error = refused_everywhere(app, kafka, "run-1", said)
    assert commands_of(error, kafka) == [DROP]
    app.run("run-1")
    assert results(kafka) == ["1", "2", "3"]


@pytest.mark.parametrize("run_id", ["run-1", "run-2"], ids=["the run again", "the next run"])
@pytest.mark.parametrize("finished", [False, True], ids=["under way", "finished"])
def test_offsets_of_a_run_that_neither_topic_knows_are_refused(
    app: Application, kafka: InMemoryKafka, run_id: str, finished: bool
) -> None:
    publish(kafka, 1, 2)
    slice_ = app.begin("run-1")
    app.tasks(slice_, [0])
    if finished:
        app.tasks(slice_, [1])
        app.finish("run-1")
    kafka.admin().delete_topics([METADATA, LEDGER])
    publish(kafka, 3)
    said = f"run 'run-1' has begun, and its stop offsets are gone: topic {METADATA} holds no slice"
    assert said in said_by_doctor(app, kafka)
    error = refused(app, run_id)
    assert said in error.cause
    assert commands_of(error, kafka) == [DROP]
    app.run(run_id)
    assert results(kafka) == ["1", "2", "3"]


def test_slice_is_refused_when_its_start_is_not_where_the_ledger_says_runs_stopped(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1)
    app.run("run-1")
    old = kafka.records(LEDGER)
    publish(kafka, 2)
    app.run("run-2")
    publish(kafka, 3)
    capture(app, "run-3")
    # A backup of the ledger: the last run that it has is the first one.
    kafka.append(LEDGER, None, b"run-2")
    write_back(kafka, LEDGER, old)
    said = f"{SAYS} 'run-3' starts at 2 in in-0, but the ledger says that run 'run-1' left it at 1"
    error = refused_everywhere(app, kafka, "run-3", said)
    assert commands_of(error, kafka) == [DROP]
    app.run("run-3")
    assert results(kafka) == ["1", "2", "3"]


def test_partition_groups_and_changelogs_of_another_run_are_refused(
    counting: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, "a")
    counting.run("run-1")
    assignment = read_ledger(kafka, APP, clock=kafka.clock).assignment
    other = msgspec.structs.replace(
        assignment,
        subtopologies={
            sub: msgspec.structs.replace(entry, changelogs=dict.fromkeys(entry.changelogs, "another"))
            for sub, entry in assignment.subtopologies.items()
        },
    )
    change_checkpoint(kafka, APP, assignment=other)
    error = refused(counting, "run-2")
    said = f"changelog {APP}-counts-changelog is not the one that earlier runs wrote"
    assert said in error.cause
    publish(kafka, "a")
    change_checkpoint(kafka, APP, assignment=assignment)
    counting.begin("run-2")
    change_checkpoint(kafka, APP, assignment=other)
    said = f"{SAYS} 'run-2' has changelogs {{'{APP}-counts-changelog': '"
    assert said in refused(counting, "run-2").cause
    assert "but the ledger has {'app-counts-changelog': 'another'}" in said_by_doctor(counting, kafka)


# == committed offsets were rolled back, between two runs


@pytest.mark.parametrize("to", ["an older run", "the middle of the last run"])
@pytest.mark.parametrize("state", [False, True], ids=["stateless", "stateful"])
@pytest.mark.remedy("data_loss.rolled_back")
def test_nothing_is_doubled_when_the_groups_offsets_are_rolled_back(
    app: Application, counting: Application, kafka: InMemoryKafka, to: str, state: bool
) -> None:
    runs = counting if state else app
    publish(kafka, "a", "a")
    runs.run("run-1")
    older = offsets(kafka)
    publish(kafka, "a", "a")
    slice_ = runs.begin("run-2")
    if to != "an older run":
        older = offsets(kafka)
    runs.tasks(slice_)
    runs.finish("run-2")
    left = {tp: at.offset for tp, at in offsets(kafka).items()}
    commit(kafka, older)
    publish(kafka, "a")
    run = "run-1" if to == "an older run" else "run-2"
    said = (
        f"in-0: its committed offset is 2, of run '{run}', but the ledger says that run 'run-2', which read "
        "it last, stopped at 4: the group's offsets were rolled back"
    )
    error = refused_everywhere(runs, kafka, "run-3", said)
    assert to_offset(4, "in:0") in " ".join(commands_of(error, kafka))
    assert {tp: at.offset for tp, at in offsets(kafka).items()} == left
    assert runs.run("run-3").warnings == ()
    if state:
        assert counts(kafka) == [1, 2, 3, 4, 5]
    else:
        assert results(kafka) == ["a"] * 5


def test_only_the_middle_that_was_rolled_back_is_named(app: Application, kafka: InMemoryKafka) -> None:
    publish(kafka, 1, 2)
    app.run("run-1")
    older = offsets(kafka)
    publish(kafka, 3, 4)
    app.run("run-2")
    now = offsets(kafka)
    (at,) = [tp for tp in now if tp.topic == "middle" and now[tp].offset != older[tp].offset][:1]
    commit(kafka, {at: older[at]})
    error = refused_everywhere(app, kafka, "run-3", f"{at}: its committed offset is {older[at].offset}")
    assert "in-0" not in error.cause
    assert commands_of(error, kafka) == [to_offset(now[at].offset, f"middle:{at.partition}")]
    publish(kafka, 5)
    app.run("run-3")
    assert results(kafka) == ["1", "2", "3", "4", "5"]


def test_what_was_deleted_behind_an_offset_that_was_rolled_back_is_not_read_again(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, *range(4))
    app.run("run-1")
    older = offsets(kafka)
    publish(kafka, *range(4, 8))
    app.run("run-2")
    commit(kafka, {IN: older[IN]})
    kafka.expire({IN: 6})
    error = refused(app, "run-3")
    assert "records from offset 4 to 6 are gone" not in error.cause, "they were read"
    assert commands_of(error, kafka) == [to_offset(8, "in:0")]
    publish(kafka, 8)
    app.run("run-3")
    assert results(kafka) == sorted(map(str, range(9)))


def test_offsets_of_before_a_reset_are_refused_until_the_next_run(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1, 2)
    app.run("run-1")
    older = offsets(kafka)
    publish(kafka, 3, 4)
    reset(kafka, "in", scenario=all_to_offset(3))
    commit(kafka, {IN: older[IN]})
    said = "in-0: its committed offset is 2, of run 'run-1', but the ledger says that a reset left it at 3"
    error = refused_everywhere(app, kafka, "run-2", said)
    assert commands_of(error, kafka) == [to_offset(3, "in:0")]
    app.run("run-2")
    assert results(kafka) == ["1", "2", "4"]


def test_offsets_of_before_the_last_batch_are_refused_after_a_continuous_run(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1)
    app.run("run-1")
    older = offsets(kafka)
    publish(kafka, 2)
    app.run("run-2")
    endless = SwitchingApplication(topology=app.topology, cluster=kafka, clock=kafka.clock)
    endless.run_continuously("c-0").stop()
    commit(kafka, older)
    refused_everywhere(app, kafka, "run-3", "in-0: its committed offset is 1, of run 'run-1'")


@pytest.mark.parametrize("then", ["batch", "continuous"])
def test_offsets_of_a_continuous_run_that_were_rolled_back_are_refused_because_the_changelog_knows_better(
    counting: Application, kafka: InMemoryKafka, then: str
) -> None:
    endless = SwitchingApplication(
        topology=counting.topology, cluster=kafka, clock=kafka.clock, settings=counting.settings
    )
    running = endless.run_continuously("c-0")
    publish(kafka, "a", "a")
    running.rounds(10)
    older = offsets(kafka)
    publish(kafka, "a")
    running.rounds(10)
    running.stop()
    assert counts(kafka) == [1, 2, 3]
    now = offsets(kafka)
    if then == "continuous":
        endless.run_continuously("c-1").stop()
    assert "every position" in said_by_doctor(counting, kafka)
    at = TopicPartition(f"{APP}-counts-repartition", 0)
    assert now[at].offset > older[at].offset
    commit(kafka, {at: older[at]})
    known = OffsetMetadata.decode(older[at].metadata).changelog_ends[0]
    said = (
        f"changelog {APP}-counts-changelog-0 holds a record at or behind offset {known}, where it ended when "
        f"the committed offsets of its task were committed: the group's offsets were taken back, {at} to"
    )
    error = refused_everywhere(counting, kafka, "run-1", said)
    assert commands_of(error, kafka) == [to_offset(older[at].offset, f"{at.topic}:0")]
    accept_at(kafka, {at: now[at].offset}, APP)
    publish(kafka, "a")
    counting.run("run-1")
    assert counts(kafka) == [1, 2, 3, 4]


def test_backup_of_all_but_the_changelogs_is_refused_because_they_know_a_later_run(
    counting: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, "a")
    counting.run("run-1")
    older = offsets(kafka)
    ends = {topic: end(kafka, topic) for topic in (METADATA, LEDGER)}
    publish(kafka, "a")
    counting.run("run-2")
    now = offsets(kafka)
    for topic, to in ends.items():
        cut(kafka, topic, to)
    commit(kafka, older)
    error = refused_everywhere(
        counting, kafka, "run-2", f"changelog {APP}-counts-changelog-0 holds a record at or behind offset 2"
    )
    commands_of(error, kafka)
    accept_at(kafka, {tp: at.offset for tp, at in now.items()}, APP)
    publish(kafka, "a")
    counting.run("run-2")
    assert counts(kafka) == [1, 2, 3]


# == committed offsets that are not of the slice under way


@pytest.mark.remedy("data_loss.taken_back")
def test_offset_of_an_older_run_is_refused_while_a_run_is_under_way(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1, 2)
    app.run("run-1")
    older = offsets(kafka)
    publish(kafka, 3, 4)
    slice_ = app.begin("run-2")
    app.tasks(slice_, [0])
    commit(kafka, {IN: older[IN]})
    said = (
        "in-0: run 'run-1' has committed its offset 2, but the metadata topic says that run 'run-2' is under "
        "way, which reads [2, 4)"
    )
    with pytest.raises(DataLossError, match=r"in-0: run 'run-1' has committed its offset 2"):
        app.task(slice_, 0, 0)
    with pytest.raises(DataLossError, match=r"in-0: run 'run-1' has committed its offset 2"):
        app.tasks(slice_, [1])
        app.finish("run-2")
    error = refused_everywhere(app, kafka, "run-2", said)
    assert "comes twice" in error.fix
    assert commands_of(error, kafka) == [to_offset(2, "in:0")]
    app.run("run-2", (0, 2))
    assert results(kafka) == ["1", "2", "3", "4"], "the stop of the topic between them is frozen"
    app.run("run-3")
    assert results(kafka) == ["1", "2", "3", "3", "4", "4"], "as a person has accepted"


@pytest.mark.parametrize("at", [-1, 1], ids=["before the start", "behind the stop"])
def test_offset_of_the_run_that_lies_outside_of_its_slice_is_refused(
    app: Application, kafka: InMemoryKafka, at: int
) -> None:
    publish(kafka, 1, 2)
    app.run("run-1")
    publish(kafka, 3, 4)
    slice_ = app.begin("run-2")
    publish(kafka, 5, 6)
    outside = 1 if at < 0 else 5
    ours = OffsetMetadata(run_id="run-2", stop_set=slice_.stop_set).encode()
    commit(kafka, {IN: CommittedOffset(outside, ours)})
    said = f"in-0: its committed offset is {outside}, but the metadata topic says that run 'run-2' is"
    with pytest.raises(DataLossError, match=said):
        app.task(slice_, 0, 0)
    error = refused_everywhere(app, kafka, "run-2", said)
    assert commands_of(error, kafka) == [to_offset(2, "in:0") if at < 0 else DROP]
    app.run("run-2", (0, 2))
    assert results(kafka) == (["1", "2", "3", "4"] if at < 0 else ["1", "2", "6"])


@pytest.mark.remedy("data_loss.cut_before_slice")
def test_slice_is_dropped_when_its_log_was_cut_before_its_start_and_a_person_accepted_that(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1, 2)
    app.run("run-1")
    publish(kafka, 3, partition=1)
    app.begin("run-2")
    kafka.truncate(IN, 1)
    accept_at(kafka, {IN: 1}, APP)
    said = "in-0: its committed offset is 1, but the metadata topic says that run 'run-2' is under way"
    endless = SwitchingApplication(
        topology=app.topology, cluster=kafka, clock=kafka.clock, settings=app.settings
    )
    with pytest.raises(DataLossError, match=said) as caught:
        endless.run_continuously("c-1")
    assert ", and the log ends at 1: it was truncated" in caught.value.cause
    assert len(accept_in_memory(caught.value, kafka)) == 2
    endless.run_continuously("c-1").stop()
    publish(kafka, 9)
    app.run("run-3")
    assert results(kafka) == ["1", "2", "3", "9"]


def test_older_slice_is_refused_when_a_later_run_has_committed(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1, 2)
    app.begin("run-1")
    old = kafka.records(METADATA)
    reset(kafka, drop=True)
    publish(kafka, 3, 4)
    app.task(app.begin("run-2"), 0, 0)
    write_back(kafka, METADATA, old)
    kafka.append(LEDGER, None, LEASE_KEY.encode())
    error = refused(app, "run-1")
    assert f"{SAYS} 'run-1' was claimed by a driver, but the ledger has no lease" in error.cause
    leases = [r.value() for r in kafka.records(LEDGER) if r.key() == LEASE_KEY.encode()]
    kafka.append(
        LEDGER,
        next(value for value in leases if value and b'"slice_run_id":"run-1"' in value),
        LEASE_KEY.encode(),
    )
    error = refused(app, "run-1")
    assert "in-0: run 'run-2' has committed its offset 4, but the metadata topic says" in error.cause
    assert DROP in commands_of(error, kafka)


# == legal


@pytest.mark.parametrize("state", [False, True], ids=["stateless", "stateful"])
def test_person_may_set_offsets_back_and_the_run_says_what_that_means(
    app: Application, counting: Application, kafka: InMemoryKafka, state: bool
) -> None:
    runs = counting if state else app
    publish(kafka, "a", "a")
    runs.run("run-1")
    set_by_hand(kafka, {IN: 1})
    assert "every position" in said_by_doctor(runs, kafka)
    (warning,) = runs.run("run-2").warnings
    assert "committed offsets were set back since the last run, by a person or another program" in warning
    assert "in-0 from 2 to 1; the records in between are processed again" in warning
    assert ("what they have added to stores is added once more" in warning) == state
    if state:
        assert counts(kafka) == [1, 2, 3]
    else:
        assert results(kafka) == ["a"] * 3
    runs.run("run-3")


@pytest.mark.parametrize("died", [False, True], ids=["", "resumed"])
def test_person_may_set_offsets_forward(app: Application, kafka: InMemoryKafka, died: bool) -> None:
    publish(kafka, 1)
    app.run("run-1")
    publish(kafka, 2, 3)
    accept_at(kafka, {IN: 2}, APP)
    if died:
        slice_ = app.begin("run-2")
        assert slice_.plan.moved_starts == {"in-0": 1}
    assert app.run("run-2", (0, 2)).warnings == ()
    assert results(kafka) == ["1", "3"]


def test_offsets_may_expire(app: Application, kafka: InMemoryKafka) -> None:
    publish(kafka, 1)
    app.run("run-1")
    kafka.expire_offsets(APP)
    publish(kafka, 2)
    app.run("run-2")
    kafka.expire_offsets(APP, [TopicPartition("in", 1)])
    app.begin("run-3")
    app.run("run-3", (0, 2))
    assert results(kafka) == ["1", "2"]


@pytest.mark.parametrize("scenario", [TO_EARLIEST, all_to_offset(1), all_to_offset(3)], ids=["0", "1", "3"])
def test_reset_may_set_offsets_and_its_runs_may_run_again(
    app: Application, kafka: InMemoryKafka, scenario: Scenario
) -> None:
    publish(kafka, 1)
    app.run("run-1")
    publish(kafka, 2)
    app.run("run-2")
    publish(kafka, 3)
    reset(kafka, "in", scenario=scenario)
    assert "every position" in said_by_doctor(app, kafka)
    again = "run-3" if scenario.option == "--to-offset 3" else "run-2"
    app.begin(again)
    assert "every position" in said_by_doctor(app, kafka)
    assert app.run(again, (0, 2)).warnings == ()
    app.run("run-4")


def test_dropped_run_may_leave_offsets_even_of_a_topic_that_was_left_out_since(kafka: InMemoryKafka) -> None:
    kafka.create_topic("more")

    def reading(*topics: str) -> Application:
        builder = KStreamBuilder(default_key_serde=TEXT, default_value_serde=TEXT)
        for topic in topics:
            builder.stream(topic).send_to("out")
        return Application(
            application_id=APP,
            topology=builder.build(),
            on=kafka,
            clock=kafka.clock,
            settings={"commit.every.records": 1},
        )

    both, one = reading("in", "more"), reading("in")
    publish(kafka, 1, topic="more")
    both.run("run-1")
    publish(kafka, 2, 3, topic="more")
    slice_ = both.begin("run-2")
    both.interceptor = Once("writer.begin", 2, die)
    with pytest.raises(DiedError):
        both.tasks(slice_)
    both.interceptor = None
    reset(kafka, drop=True)
    publish(kafka, 4)
    one.run("run-3")
    both.run("run-4")
    assert results(kafka) == ["1", "2", "3", "4"]


def test_person_may_set_offsets_inside_of_a_slice_but_not_before_it(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1, 2)
    app.run("run-1")
    publish(kafka, 3, 4)
    app.begin("run-2")
    set_by_hand(kafka, {IN: 1})
    said = "in-0: its committed offset is 1, but the metadata topic says that run 'run-2' is under way"
    assert said in refused(app, "run-2").cause
    accept_at(kafka, {IN: 3}, APP)
    assert "every position" in said_by_doctor(app, kafka)
    app.run("run-2", (0, 2))
    assert results(kafka) == ["1", "2", "4"]


def test_other_program_may_die_between_its_tombstones_and_its_stop_offsets(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1)
    app.run("run-1")
    for key in read_metadata(kafka, APP, clock=kafka.clock).live_keys:
        kafka.append(METADATA, None, key)
    publish(kafka, 2)
    app.run("run-2")
    assert results(kafka) == ["1", "2"]


@pytest.mark.parametrize("call", ["writer.commit", "admin.delete_records"])
def test_finish_may_die_before_its_transaction_and_before_it_purges(
    counting: Application, kafka: InMemoryKafka, call: str
) -> None:
    publish(kafka, "a")
    counting.tasks(counting.begin("run-1"))
    counting.interceptor = Once(call, 1, die)
    with pytest.raises(DiedError):
        counting.finish("run-1")
    counting.interceptor = None
    kafka.clock.sleep(60)
    assert "every position" in said_by_doctor(counting, kafka)
    counting.finish("run-1")
    publish(kafka, "a")
    counting.run("run-2")
    assert counts(kafka) == [1, 2]


def test_continuous_start_may_die_before_it_deletes_the_metadata_topic(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1)
    app.run("run-1")
    publish(kafka, 2)
    app.task(app.begin("run-2"), 0, 0)
    coordinator = app.coordinator()
    begin_continuous(coordinator, "c-1", app.topology.plan(APP))
    coordinator.close()
    assert "every position" in said_by_doctor(app, kafka)
    publish(kafka, 3)
    app.run("run-3")
    app.run("run-4")
    assert results(kafka) == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("call", "number"),
    [("writer.commit", 1), ("writer.commit", 2), ("admin.delete_topics", 1), ("writer.commit", 3)],
    ids=["before STOPPING", "before DELETING", "before topics are deleted", "before DONE"],
)
def test_reset_may_die_between_its_stages(
    counting: Application, kafka: InMemoryKafka, call: str, number: int
) -> None:
    publish(kafka, "a", "a")
    counting.run("run-1")
    counting.begin("run-2")
    counting.interceptor = Once(call, number, die)
    request = ResetRequest(application_id=APP, input_topics=("in",), delete_stop_offsets=True, force=True)
    with pytest.raises(DiedError), ApplicationReset(counting.cluster, request, clock=kafka.clock) as died:
        died.run()
    counting.interceptor = None
    kafka.clock.sleep(60)
    reset(kafka, "in", drop=True)
    assert "every position" in said_by_doctor(counting, kafka)
    counting.run("run-1")
    assert counts(kafka) == [1, 2, 1, 2]


def test_captured_run_may_wait_while_the_lease_is_of_the_run_before(
    app: Application, kafka: InMemoryKafka
) -> None:
    publish(kafka, 1)
    app.run("run-1")
    publish(kafka, 2)
    capture(app, "run-2")
    lease = read_ledger(kafka, APP, clock=kafka.clock).lease
    assert lease is not None
    assert lease.slice_run_id == "run-1"
    assert "every position" in said_by_doctor(app, kafka)
    app.run("run-2")
    assert results(kafka) == ["1", "2"]


def test_offsets_say_which_slice_of_a_run_they_are_of(app: Application, kafka: InMemoryKafka) -> None:
    publish(kafka, 1)
    slice_ = app.begin("run-1")
    begun = OffsetMetadata.decode(offsets(kafka)[IN].metadata)
    app.tasks(slice_)
    done = OffsetMetadata.decode(offsets(kafka)[IN].metadata)
    assert begun.stop_set == done.stop_set == slice_.plan.stop_hash[:12] != ""


@pytest.mark.parametrize("call", range(1, 7))
@pytest.mark.parametrize("meanwhile", ["finish", "begin"])
def test_doctor_looks_again_when_a_run_goes_on_while_it_looks(
    app: Application, kafka: InMemoryKafka, meanwhile: str, call: int
) -> None:
    publish(kafka, 1)
    slice_ = app.begin("run-1")
    app.tasks(slice_)
    other = Application(application_id=APP, topology=app.topology, on=kafka, clock=kafka.clock)
    if meanwhile == "begin":
        app.finish("run-1")
        publish(kafka, 2)

    def go_on() -> None:
        gone_on.append(meanwhile)
        if meanwhile == "finish":
            other.finish("run-1")
        else:
            other.tasks(other.begin("run-2"))

    gone_on: list[str] = []
    app.interceptor = Once("reader.assign", call, go_on)
    subject = Subject(plan=app.topology.plan(APP), settings=app.checked)
    (found,) = [f for f in diagnose(app.cluster, subject, clock=kafka.clock) if f.check == "data loss"]
    assert gone_on == [meanwhile], "else the test looks at nothing"
    assert "every position" in found.text
