"""Sensors that wait for data and for a part of a run, deferred or not, against a real broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.hooks.airflow_versions import AirflowFailException, AirflowSensorTimeout
from airflow_kstreams.hooks.kafka import KafkaHook
from airflow_kstreams.streams.errors import KafkaClientError
from airflow_kstreams.streams.topology.loader import load_topology
from airflow_kstreams.testing.faults import FaultyCluster
from airflow_kstreams.triggers import condition
from airflow_kstreams.triggers.cluster_watch import ClusterWatch
from tests.integration.airflow.word_totals import WordTotals
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.filterwarnings("default")

RunDag = Callable[..., Any]
_BOTH = pytest.mark.parametrize("mode", ["here", "deferred"])


@pytest.fixture
def application(words: WordTotals, kafka: str) -> Application:
    return Application(
        bootstrap=kafka, application_id=words.application_id, topology=load_topology(words.file)
    )


@_BOTH
def test_sensor_waits_for_new_records_when_runs_have_processed_the_others(
    mode: str, words: WordTotals, application: Application, run_dag: RunDag
) -> None:
    words.publish(30)
    application.run("one")
    conf = {"application_id": words.application_id, "topic": words.source, "min_records": 10}

    early = run_dag(f"wait_for_data_{mode}", conf)
    words.publish(9)
    nearly = run_dag(f"wait_for_data_{mode}", conf)
    words.publish(1)
    enough = run_dag(f"wait_for_data_{mode}", conf)

    assert [type(error) for _, error in early.errors + nearly.errors] == [AirflowSensorTimeout] * 2
    assert enough.state == "success", enough.error_text()
    assert enough.results["wait"]["records_per_topic"] == {words.source: 10}


@_BOTH
def test_sensor_fails_for_good_when_there_is_no_such_topic(
    mode: str, words: WordTotals, run_dag: RunDag
) -> None:
    outcome = run_dag(
        f"wait_for_data_{mode}",
        {"application_id": words.application_id, "topic": "no-such-topic", "min_records": 1},
    )

    assert [type(error) for _, error in outcome.errors] == [AirflowFailException]
    assert "no such topic: 'no-such-topic'" in outcome.error_text()


@_BOTH
def test_sensor_waits_for_one_subtopology_when_the_next_still_runs(
    mode: str, words: WordTotals, application: Application, run_dag: RunDag
) -> None:
    words.publish(20)
    slice_ = application.begin("one")
    conf = {"application_id": words.application_id, "run_id": "one"}
    for group in range(slice_.plan.tasks["0"]):
        application.task(slice_, 0, group)

    first = run_dag(f"wait_for_stage_{mode}", {**conf, "subtopology": 0})
    second = run_dag(f"wait_for_stage_{mode}", {**conf, "subtopology": 1})

    assert first.state == "success", first.error_text()
    assert set(first.results["wait"]["stop_offsets"]) == {f"{words.source}-{n}" for n in range(3)}
    assert [type(error) for _, error in second.errors] == [AirflowSensorTimeout]


class Failing:
    """Fails the first looks for where a ledger ends; the cluster answers all else."""

    failures = 2

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        if name == "admin.end_offsets" and self.failures > 0:
            self.failures -= 1
            raise KafkaClientError("gone", fix="wait", kafka_code="_TRANSPORT", retriable_code=True)
        return effect()


@_BOTH
def test_sensor_is_tried_again_when_an_error_may_pass(
    mode: str, application: Application, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch
) -> None:
    application.run("one")
    cluster = FaultyCluster(application.cluster, Failing())
    watch = ClusterWatch(lambda: cluster)
    monkeypatch.setattr(KafkaHook, "cluster", lambda *_, **__: cluster)
    monkeypatch.setattr(condition, "watch_of", lambda *_: watch)

    outcome = run_dag(f"wait_again_{mode}", {"application_id": application.application_id, "run_id": "one"})

    assert outcome.state == "success", outcome.error_text()
    assert outcome.tries["wait"] == 3
    assert ["gone" in str(error) for _, error in outcome.errors] == [True, True]


@_BOTH
def test_sensor_finds_the_run_of_a_data_interval(
    mode: str, words: WordTotals, application: Application, run_dag: RunDag
) -> None:
    hour = 3_600_000
    coordinator = Coordinator(application.cluster, application.checked)
    try:
        plan = application.topology.plan(application.application_id)
        coordinator.begin("one", plan, hold_lease=False, interval_ms=(0, hour))
        coordinator.finish("one")
    finally:
        coordinator.close()
    conf = {
        "application_id": words.application_id,
        "start": "1970-01-01T00:00:00+00:00",
        "end": "1970-01-01T01:00:00+00:00",
    }

    outcome = run_dag(f"wait_for_interval_{mode}", conf)

    assert outcome.state == "success", outcome.error_text()
    assert outcome.results["wait"]["run_id"] == "one"


@_BOTH
def test_sensor_times_out_when_no_run_had_the_data_interval(
    mode: str, words: WordTotals, application: Application, run_dag: RunDag
) -> None:
    application.run("one")
    conf = {
        "application_id": words.application_id,
        "start": "2026-01-01T00:00:00+00:00",
        "end": "2026-01-01T01:00:00+00:00",
    }

    outcome = run_dag(f"wait_for_interval_{mode}", conf)

    assert [type(error) for _, error in outcome.errors] == [AirflowSensorTimeout]
