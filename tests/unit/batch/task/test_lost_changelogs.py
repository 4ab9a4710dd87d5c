"""A changelog that is gone or is another topic while a run is under way."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_kstreams.batch.inspect.doctor import Subject, diagnose
from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.streams.errors import DataLossError
from airflow_kstreams.streams.ports import TopicSpec
from airflow_kstreams.testing import InMemoryKafka
from tests.support.kafka.copies import APP, counting, counts, kafka_with_topics, publish
from tests.support.kafka.in_process import Application
from tests.support.kafka.interception import Once
from tests.support.kafka.printed_commands import accept_in_memory

pytestmark = pytest.mark.promise("state-is-not-lost")

CHANGELOG = f"{APP}-counts-changelog"


@pytest.fixture
def kafka() -> InMemoryKafka:
    return kafka_with_topics("in", "out", partitions=1)


@pytest.fixture
def app(kafka: InMemoryKafka) -> Application:
    return counting(kafka)


def delete(kafka: InMemoryKafka) -> None:
    kafka.admin().delete_topics([CHANGELOG])


def recreate(kafka: InMemoryKafka) -> None:
    delete(kafka)
    kafka.admin().create_topics(
        [TopicSpec(name=CHANGELOG, partitions=1, configs={"cleanup.policy": "compact"})]
    )


lose = pytest.mark.parametrize("lose", [delete, recreate], ids=["deleted", "created again"])
Lose = Callable[[InMemoryKafka], None]


def test_nothing_is_said_when_a_reset_deleted_the_changelog(app: Application, kafka: InMemoryKafka) -> None:
    publish(kafka, "a", "a")
    app.run("run-1")
    request = ResetRequest(application_id=APP, input_topics=("in",), force=True)
    with ApplicationReset(kafka, request, clock=kafka.clock) as reset:
        reset.run()
    assert CHANGELOG not in kafka.topics()
    assert app.run("run-2").warnings == ()
    assert counts(kafka) == [1, 2, 1, 2]


@pytest.mark.parametrize(
    "when", ["before the task", "while it is restored", "between two commits", "at last"]
)
@lose
def test_run_is_refused_when_the_changelog_is_lost_while_it_is_under_way(
    app: Application, kafka: InMemoryKafka, lose: Lose, when: str
) -> None:
    publish(kafka, "a", "a")
    app.run("run-1")
    publish(kafka, "a", "a", "a")
    slice_ = app.begin("run-2")
    app.task(slice_, 0, 0)

    def happen() -> None:
        lose(kafka)
        kafka.clock.sleep(2)  # sources and changelogs are looked at once a second

    points = {
        "before the task": None,
        "while it is restored": Once("admin.start_offsets", 1, happen, about=CHANGELOG),
        "between two commits": Once("writer.send_offsets", 1, happen),
        "at last": Once("reader.pause", 1, happen),
    }
    app.interceptor = points[when]
    if when == "before the task":
        happen()
    with pytest.raises(DataLossError) as caught:
        app.task(slice_, 1, 0)
    app.interceptor = None
    error = caught.value
    assert f"changelog {CHANGELOG} is not the one run 'run-2' began with: its id is " in error.cause
    commands = [" ".join(command) for command in accept_in_memory(error, kafka)]
    assert commands == [
        f"airflow-kstreams reset --bootstrap-server <broker> --application-id {APP} "
        f"--internal-topics {CHANGELOG} --delete-stopoffsets"
    ]
    before = counts(kafka)
    publish(kafka, "b", "b")
    assert app.run("run-3").warnings == ()
    assert counts(kafka)[len(before) :][-1:] == [2]


def test_doctor_tells_what_the_next_attempt_would_refuse(app: Application, kafka: InMemoryKafka) -> None:
    publish(kafka, "a")
    app.begin("run-1")
    delete(kafka)
    subject = Subject(plan=app.topology.plan(APP), settings=app.checked)
    (found,) = [f for f in diagnose(kafka, subject, clock=kafka.clock) if f.check == "data loss"]
    assert f"changelog {CHANGELOG} is not the one run 'run-1' began with: its id is gone" in found.text


def test_changelogs_are_frozen_by_their_topic_ids(app: Application, kafka: InMemoryKafka) -> None:
    publish(kafka, "a")
    slice_: Slice = app.begin("run-1")
    described = kafka.admin().describe_topics([CHANGELOG])
    assert slice_.plan.changelog_ids == {CHANGELOG: described[CHANGELOG].topic_id}
