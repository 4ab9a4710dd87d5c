"""The sensor, deferred or not, against a real ledger."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.batch.inspect.conditions import RunFinished, condition_to_json
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.hooks.airflow_versions import AirflowFailException, AirflowSensorTimeout
from airflow_kstreams.hooks.kafka import KafkaHook
from airflow_kstreams.hooks.reports import finished_run, last_values
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.loader import load_topology
from airflow_kstreams.testing.faults import FaultyCluster
from airflow_kstreams.triggers import condition, finished_run_watch
from airflow_kstreams.triggers.cluster_watch import ClusterWatch
from airflow_kstreams.triggers.condition import ConditionTrigger
from airflow_kstreams.triggers.finished_run_watch import FinishedRunsTrigger
from tests.integration.airflow.word_totals import WordTotals

pytestmark = pytest.mark.filterwarnings("default")

RunDag = Callable[..., Any]
_BOTH = pytest.mark.parametrize("dag", ["wait_here", "wait_deferred"])


@pytest.fixture
def finish_empty_run(words: WordTotals, kafka: str) -> Callable[[str], None]:
    """Begin and finish a run that has nothing to do: that needs no Spark."""

    def finish(run_id: str) -> None:
        settings = ApplicationSettings.parse(words.application_id, {"processing.guarantee": "exactly_once"})
        coordinator = Coordinator(KafkaCluster({"bootstrap.servers": kafka}, settings=settings), settings)
        try:
            coordinator.begin(run_id, load_topology(words.file).plan(words.application_id), hold_lease=False)
            coordinator.finish(run_id)
        finally:
            coordinator.close()

    return finish


def _trigger(words: WordTotals, **arguments: Any) -> ConditionTrigger:
    return ConditionTrigger(
        **{
            "condition": condition_to_json(RunFinished(application_id=words.application_id, run_id="wanted")),
            "kafka_conn_id": "kafka_default",
            "poke_interval": 0.05,
            "deadline": time.time() + 60,
            **arguments,
        }
    )


async def _first_event(trigger: ConditionTrigger) -> Any:
    async for event in trigger.run():
        return event.payload
    raise AssertionError("the trigger ended without an event")


@_BOTH
def test_sensor_succeeds_with_the_runs_result_when_the_run_is_finished(
    dag: str, words: WordTotals, run_dag: RunDag, finish_empty_run: Callable[[str], None]
) -> None:
    finish_empty_run("wanted")
    finish_empty_run("later")

    outcome = run_dag(dag, {"application_id": words.application_id, "run_id": "wanted"})

    assert outcome.state == "success", outcome.error_text()
    assert outcome.results["wait"]["run_id"] == "wanted"
    assert outcome.results["wait"]["finished"]


@_BOTH
def test_sensor_takes_the_last_finished_run_when_none_is_named(
    dag: str, words: WordTotals, run_dag: RunDag, finish_empty_run: Callable[[str], None]
) -> None:
    for run_id in ("b", "a"):
        finish_empty_run(run_id)

    outcome = run_dag(dag, {"application_id": words.application_id, "run_id": ""})

    assert outcome.results["wait"]["run_id"] == "a"


@_BOTH
def test_sensor_times_out_when_the_run_never_finishes(
    dag: str, words: WordTotals, run_dag: RunDag, finish_empty_run: Callable[[str], None]
) -> None:
    finish_empty_run("another")
    started = time.monotonic()

    outcome = run_dag(dag, {"application_id": words.application_id, "run_id": "wanted"})

    assert outcome.state == "failed"
    assert [type(error) for _, error in outcome.errors] == [AirflowSensorTimeout]
    assert time.monotonic() - started > 2


@_BOTH
def test_sensor_fails_for_good_when_the_connection_is_wrong(
    dag: str, words: WordTotals, run_dag: RunDag, connections: Callable[..., None]
) -> None:
    connections(**{"group.id": "mine"})

    outcome = run_dag(dag, {"application_id": words.application_id, "run_id": "wanted"})

    assert [type(error) for _, error in outcome.errors] == [AirflowFailException]
    assert "'group.id' is owned by the engine" in outcome.error_text()


def test_trigger_fires_once_the_run_is_finished_when_it_was_not_at_first(
    words: WordTotals, connections: Callable[..., None], finish_empty_run: Callable[[str], None]
) -> None:
    async def scenario() -> Any:
        waiting = asyncio.create_task(_first_event(_trigger(words)))
        await asyncio.to_thread(finish_empty_run, "another")
        assert not waiting.done()
        await asyncio.to_thread(finish_empty_run, "wanted")
        return await asyncio.wait_for(waiting, 30)

    event = asyncio.run(scenario())

    assert event["status"] == "holds"
    assert event["result"]["run_id"] == "wanted"
    assert json.loads(json.dumps(event)) == event


class Threads:
    """Notes which thread makes which call."""

    def __init__(self) -> None:
        self.calls: dict[str, set[threading.Thread]] = {}

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        self.calls.setdefault(name, set()).add(threading.current_thread())
        return effect()


def test_no_client_waits_on_the_event_loop_when_the_broker_cannot_be_reached(
    words: WordTotals,
    connections: Callable[..., None],
    free_port: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = {"bootstrap.servers": f"127.0.0.1:{free_port}"}
    connections(**address)
    threads = Threads()
    settings = ApplicationSettings.parse(words.application_id, {"client.timeout.ms": 1_000})
    cluster = FaultyCluster(KafkaCluster(address, settings=settings), threads)
    watch = ClusterWatch(lambda: cluster)
    monkeypatch.setattr(condition, "watch_of", lambda *_: watch)
    monkeypatch.setattr(finished_run_watch, "cluster_of", lambda _: cluster)
    producer = FinishedRunsTrigger.create_shared_stream_producer(
        FinishedRunsTrigger(application_id=words.application_id).serialize()[1]
    )

    async def scenario() -> Any:
        event = await _first_event(_trigger(words))
        with pytest.raises(KafkaClientError, match="broker unreachable"):
            await anext(producer.open_stream())
        await producer.aclose()
        return event

    event = asyncio.run(scenario())

    assert (event["status"], event["error"]["retriable"]) == ("error", True)
    assert "admin.describe_topics" in threads.calls, "the broker was asked"
    assert threading.current_thread() not in set().union(*threads.calls.values())


def test_last_values_are_the_committed_ones_when_keys_repeat_and_vanish(
    kafka: str,
    connections: Callable[..., None],
    create_topic: Callable[..., str],
    topic_name: Callable[..., str],
    produce: Callable[..., None],
) -> None:
    topic = create_topic(topic_name("table"), 3)
    produce(topic, [("a", "1"), ("b", "1"), ("c", "1"), (None, "x")])
    produce(topic, [("a", "2"), ("b", None)], transactional_id=topic)
    produce(topic, [("a", "3"), ("c", "3")], transactional_id=topic, abort=True)

    assert last_values(KafkaHook().cluster(), topic) == {b"a": b"2", b"c": b"1"}


def test_values_are_none_when_the_topic_is_empty(
    connections: Callable[..., None], create_topic: Callable[..., str], topic_name: Callable[..., str]
) -> None:
    assert last_values(KafkaHook().cluster(), create_topic(topic_name("table"), 2)) == {}


def test_topic_is_named_when_its_values_are_read_but_it_does_not_exist(
    connections: Callable[..., None],
) -> None:
    with pytest.raises(ConfigError, match="topic 'nowhere' does not exist"):
        last_values(KafkaHook().cluster(), "nowhere")


def test_nothing_is_finished_when_the_application_never_ran(connections: Callable[..., None]) -> None:
    assert finished_run(KafkaHook().cluster(), "never-ran", None) is None
