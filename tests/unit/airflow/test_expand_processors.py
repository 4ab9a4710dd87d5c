"""More processors from a DAG: the operator as Airflow executes it, on an in-memory Kafka."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.sdk import DAG, Context

from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.expand import processor_expansion
from airflow_kstreams.batch.growing.state_copy import ThreadCopies
from airflow_kstreams.hooks.airflow_versions import AirflowFailException
from airflow_kstreams.hooks.kafka import KafkaHook
from airflow_kstreams.operators.expand import ExpandProcessorsOperator
from airflow_kstreams.streams.errors import KilledError
from tests.support.airflow.task_log import said
from tests.unit.batch.expand.test_processor_expansion import grown
from tests.unit.batch.growing.test_partition_growth import KEYS, Scene

pytestmark = pytest.mark.promise("catch-ups-go-on-where-they-were")


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """An application whose topic has four partitions, of two at first, and as many processors."""
    scene = grown()
    monkeypatch.setattr(KafkaHook, "cluster", lambda *_, **__: scene.kafka)
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", "kafka://in-memory:9092")
    return scene


def operator(**arguments: Any) -> ExpandProcessorsOperator:
    return ExpandProcessorsOperator(task_id="more", application_id="app", **arguments)


def execute(task: ExpandProcessorsOperator, *, try_number: int = 1) -> Any:
    instance = SimpleNamespace(dag_id="d", task_id=task.task_id, try_number=try_number, map_index=-1)
    dag_run = SimpleNamespace(run_id="r", clear_number=0, data_interval_start=None, data_interval_end=None)
    return task.execute(cast("Context", {"ti": instance, "dag_run": dag_run}))


def test_retry_goes_on_where_the_killed_try_was_and_the_next_run_takes_over(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DAG(dag_id="d", schedule=None):
        task = operator(processors="{{ count }}", rate="{{ rate }}", parallel="{{ parallel }}")
    task.render_template_fields(Context(count=4, rate="20", parallel=1))  # type: ignore[typeddict-unknown-key]
    ended = threading.Event()

    class Cancelling(ThreadCopies):
        def cancel(self) -> None:
            super().cancel()
            ended.set()

    def pause(clock: SystemClock, seconds: float) -> None:
        """Be killed after the first transaction, and make no other one before that is known."""
        task.on_kill()
        assert ended.wait(60)

    with monkeypatch.context() as first_try:
        first_try.setattr(processor_expansion, "ThreadCopies", Cancelling)
        first_try.setattr(processor_expansion, "_LOOK_SECONDS", 0.01)
        first_try.setattr(SystemClock, "sleep", pause)
        with pytest.raises(KilledError, match="killed before all state was copied"):
            execute(task)
    task = operator(processors=4, parallel=1)
    first = len(scene.kafka.records("app-listed-changelog"))

    done = execute(task, try_number=2)

    copied = len([r for r in scene.kafka.records("app-listed-changelog") if r.partition() >= 2])
    assert done == {
        "application_id": "app",
        "subtopology": 0,
        "processors": 2,
        "processors_asked": 4,
        "entries_copied": copied,
        "bytes_copied": done["bytes_copied"],
        "records_left": 0,
    }
    assert done["bytes_copied"] > 0
    added = len(scene.kafka.records("app-listed-changelog")) - first
    assert 0 < added < copied, "the retry copies what is left"
    scene.send(KEYS, 2)
    scene.run()
    assert len(scene.recorded.by_group) == 4
    again = execute(operator(processors=4), try_number=3)
    assert (again["processors"], again["processors_asked"], again["records_left"]) == (4, 4, 0)
    assert scene.listed == scene.sent


def test_task_that_waits_ends_when_a_run_has_taken_over(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SystemClock, "sleep", lambda self, seconds: scene.run())
    done = execute(operator(processors=4, wait=True))
    assert (done["processors"], done["processors_asked"]) == (4, 4)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"processors": 1}, "it never has fewer than it had"),
        ({"processors": 5}, "and in has 4"),
        ({"processors": "many"}, "processors='many' is not a whole number"),
        ({"processors": 4, "subtopology": "1"}, "no subtopology 1"),
        ({"processors": 4, "rate": "fast"}, "rate='fast' is not a number above 0"),
        ({"processors": 4, "rate": 0}, "rate=0 is not a number above 0"),
        ({"processors": 4, "parallel": 0}, "parallel=0 is not a whole number of 1"),
    ],
)
def test_what_cannot_be_is_refused_for_good_before_anything_changes(
    scene: Scene, arguments: dict[str, Any], expected: str
) -> None:
    with pytest.raises(AirflowFailException, match=said(expected)):
        execute(operator(**arguments))
    assert len(scene.kafka.partitions("app-listed-changelog")) == 2
