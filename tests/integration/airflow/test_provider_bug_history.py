"""The bug history of Airflow's own Kafka provider, as tests that this package passes. Numbers are those of
issues and pull requests of apache/airflow.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import BaseOperator

from airflow_kstreams.batch.inspect.conditions import NewData, RunFinished, condition_to_json
from airflow_kstreams.decorators.kstreams import _KStreamsDecoratedOperator
from airflow_kstreams.hooks.airflow_versions import AirflowFailException, AirflowSensorTimeout
from airflow_kstreams.hooks.kafka import KafkaHook
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.operators.backfill import BackfillOperator
from airflow_kstreams.operators.expand import ExpandPartitionsOperator, ExpandProcessorsOperator
from airflow_kstreams.operators.incremental_batch import CaptureStopOffsetsOperator, FinishRunOperator
from airflow_kstreams.operators.replay_dead_letters import ReplayDeadLettersOperator
from airflow_kstreams.operators.reset_application import ResetApplicationOperator
from airflow_kstreams.operators.run_topology import RunTopologyOperator
from airflow_kstreams.sensors.new_data import NewDataSensor
from airflow_kstreams.sensors.run_finished import RunFinishedSensor
from airflow_kstreams.sensors.stop_offsets_reached import StopOffsetsReachedSensor
from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.streams.topology.loader import load_topology
from airflow_kstreams.testing.faults import FaultyCluster
from airflow_kstreams.triggers import condition, finished_run_watch
from airflow_kstreams.triggers.cluster_watch import ClusterWatch
from airflow_kstreams.triggers.condition import ConditionTrigger
from airflow_kstreams.triggers.finished_run_watch import FinishedRunsTrigger
from tests.integration.airflow.word_totals import WordTotals
from tests.support.kafka.in_process import Application

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.promise("sensors-only-read")]

RunDag = Callable[..., Any]
_BOTH = pytest.mark.parametrize("mode", ["here", "deferred"])
_OPERATORS = [
    CaptureStopOffsetsOperator,
    RunTopologyOperator,
    FinishRunOperator,
    ResetApplicationOperator,
    ReplayDeadLettersOperator,
    ExpandPartitionsOperator,
    ExpandProcessorsOperator,
    BackfillOperator,
    RunFinishedSensor,
    NewDataSensor,
    StopOffsetsReachedSensor,
    _KStreamsDecoratedOperator,
]


@pytest.fixture
def application(words: WordTotals, kafka: str) -> Application:
    return Application(
        bootstrap=kafka, application_id=words.application_id, topology=load_topology(words.file)
    )


@pytest.fixture
def calls(kafka: str, monkeypatch: pytest.MonkeyPatch, connections: Callable[..., None]) -> Iterator[Calls]:
    """What triggers ask of the real broker; and a watch of the test's own."""
    noted = Calls()
    cluster = FaultyCluster(KafkaCluster({"bootstrap.servers": kafka}), noted)
    watch = ClusterWatch(lambda: cluster)
    monkeypatch.setattr(condition, "watch_of", lambda *_: watch)
    monkeypatch.setattr(finished_run_watch, "cluster_of", lambda _: cluster)
    monkeypatch.setattr(KafkaHook, "cluster", lambda *_, **__: cluster)
    yield noted
    for thread in threading.enumerate():
        if thread.name == "kstreams-watch":
            thread.join(30)
            assert not thread.is_alive(), "the watch goes on though nobody waits"


class Calls:
    """Notes the names of port calls, and the threads that made them."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.threads: set[threading.Thread] = set()

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        self.names.append(name)
        self.threads.add(threading.current_thread())
        return effect()

    def open_clients(self) -> int:
        """How many clients were made and not closed."""
        made = self.names.count("cluster.reader") + self.names.count("cluster.admin")
        return made - self.names.count("reader.close") - self.names.count("admin.close")


def _trigger(waited: RunFinished | NewData) -> ConditionTrigger:
    return ConditionTrigger(
        condition=condition_to_json(waited),
        kafka_conn_id="kafka_default",
        poke_interval=0.05,
        deadline=time.time() + 60,
    )


async def _first(trigger: ConditionTrigger) -> Any:
    async for event in trigger.run():
        return event.payload
    raise AssertionError("the trigger ended without an event")


@_BOTH
def test_31795_62916_a_sensor_takes_no_record_away_from_whoever_comes_after_it(
    mode: str, words: WordTotals, application: Application, run_dag: RunDag, kafka_admin: AdminClient
) -> None:
    """AwaitMessageSensor committed what nobody had processed yet, and so it was lost."""
    words.publish(5)
    application.run("one")
    words.publish(10)
    conf = {"application_id": words.application_id, "topic": words.source, "min_records": 10}

    for _ in range(2):
        outcome = run_dag(f"wait_for_data_{mode}", conf)
        assert outcome.results["wait"]["records"] == 10, outcome.error_text()

    groups = {group.group_id for group in kafka_admin.list_consumer_groups().result().valid}
    assert not any("waiting" in group for group in groups), "a sensor joins no group and commits nothing"
    assert sum(part.stop_offset - part.start_offset for part in application.run("two").inputs) == 10


def test_31795_no_run_is_left_out_when_several_finish_between_two_looks(
    application: Application, calls: Calls
) -> None:
    """AwaitMessageTriggerFunctionSensor did not fire for every message."""
    trigger = FinishedRunsTrigger(application_id=application.application_id, from_start=True)
    producer = FinishedRunsTrigger.create_shared_stream_producer(trigger.serialize()[1])
    run_ids = [f"run-{number}" for number in range(7)]
    for run_id in run_ids:
        application.run(run_id)

    async def scenario() -> list[str]:
        stream = producer.open_stream()
        try:
            return [(await anext(stream))[0]["run_id"] for _ in run_ids]
        finally:
            await stream.aclose()
            await producer.aclose()

    assert asyncio.run(scenario()) == run_ids
    assert calls.open_clients() == 0


def test_32585_more_sensors_than_partitions_wait_without_disturbing_each_other(
    application: Application, calls: Calls
) -> None:
    """With more sensors than partitions: "Commit failed: Local: No offset stored"."""
    wanted = RunFinished(application_id=application.application_id, run_id="one")

    async def scenario() -> list[Any]:
        waiting = [asyncio.create_task(_first(_trigger(wanted))) for _ in range(12)]
        await asyncio.to_thread(application.run, "one")
        return await asyncio.wait_for(asyncio.gather(*waiting), 60)

    events = asyncio.run(scenario())

    assert [event["result"]["run_id"] for event in events] == ["one"] * 12
    assert "reader.commit" not in calls.names
    assert calls.names.count("cluster.reader") == 1, "they share one consumer"


@_BOTH
def test_69665_tombstones_are_records_like_others(
    mode: str,
    words: WordTotals,
    application: Application,
    run_dag: RunDag,
    produce: Callable[..., None],
) -> None:
    """AwaitMessageTrigger crashed on a message without value."""
    application.run("one")
    produce(words.source, [("gone", None)])
    # A run's entry is never tombstoned by us; a stranger's tombstone must not stop anybody either.
    produce(ProtocolTopics(words.application_id).ledger, [("stranger", None)])
    conf = {"application_id": words.application_id}

    data = run_dag(f"wait_for_data_{mode}", {**conf, "topic": words.source, "min_records": 1})
    finished = run_dag(f"wait_{mode}", {**conf, "run_id": "one"})

    assert data.results["wait"]["records"] == 1, data.error_text()
    assert finished.results["wait"]["run_id"] == "one", finished.error_text()


def test_69665_watcher_passes_over_tombstones(
    words: WordTotals, application: Application, calls: Calls, produce: Callable[..., None]
) -> None:
    """The same, in a trigger of an asset's watcher."""
    application.run("one")
    produce(ProtocolTopics(words.application_id).ledger, [("stranger", None)])
    application.run("two")
    trigger = FinishedRunsTrigger(application_id=words.application_id, from_start=True)
    producer = FinishedRunsTrigger.create_shared_stream_producer(trigger.serialize()[1])

    async def scenario() -> list[str]:
        stream = producer.open_stream()
        try:
            return [(await anext(stream))[0]["run_id"] for _ in range(2)]
        finally:
            await stream.aclose()
            await producer.aclose()

    assert asyncio.run(scenario()) == ["one", "two"]


@pytest.mark.parametrize("kind", [RunFinishedSensor, NewDataSensor, StopOffsetsReachedSensor])
def test_57863_every_sensor_takes_the_parameters_of_sensors(kind: type[Any]) -> None:
    """AwaitMessageSensor was no sensor: it refused ``timeout`` and ``soft_fail``."""
    needed = {"subtopology": 0} if kind is StopOffsetsReachedSensor else {}
    given = {"timeout": 600, "soft_fail": True, "poke_interval": 5}
    made = kind(task_id="t", application_id="a", deferrable=True, **given, **needed)
    assert {name: getattr(made, name) for name in given} == given


def test_62097_69639_a_deferred_sensor_ends_when_its_timeout_is_over(
    words: WordTotals, application: Application, run_dag: RunDag
) -> None:
    """``timeout`` was accepted, and ignored once deferred."""
    application.run("another")

    outcome = run_dag("wait_deferred", {"application_id": words.application_id, "run_id": "never"})

    assert [type(error) for _, error in outcome.errors] == [AirflowSensorTimeout]


def test_64612_clients_are_closed_off_the_event_loop_when_a_trigger_is_cancelled(
    application: Application, calls: Calls
) -> None:
    """AwaitMessageTrigger left its consumer open, and a first mend closed it on the event loop."""
    wanted = RunFinished(application_id=application.application_id, run_id="never")
    application.run("one")
    watcher = FinishedRunsTrigger(application_id=application.application_id)
    producer = FinishedRunsTrigger.create_shared_stream_producer(watcher.serialize()[1])

    async def cancelled(waiting: asyncio.Task[Any]) -> None:
        while "reader.poll" not in calls.names:
            await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    async def scenario() -> threading.Thread:
        await cancelled(asyncio.create_task(_first(_trigger(wanted))))
        while calls.open_clients():
            await asyncio.sleep(0.01)
        calls.names.clear()
        await cancelled(asyncio.ensure_future(anext(producer.open_stream())))
        await producer.aclose()
        return threading.current_thread()

    loop_thread = asyncio.run(asyncio.wait_for(scenario(), 60))

    assert calls.open_clients() == 0
    assert "reader.close" in calls.names
    assert loop_thread not in calls.threads
    assert {thread.name.partition("_")[0] for thread in calls.threads} == {
        "kstreams-watch",
        "kstreams-finished-runs",
    }


def test_69641_clients_are_closed_when_looking_fails(application: Application, calls: Calls) -> None:
    """ConsumeFromTopicOperator closed its consumer only if all went well."""
    sensor = NewDataSensor(task_id="t", application_id=application.application_id, topics=["no-such-topic"])

    with pytest.raises(AirflowFailException, match="no such topic"):
        sensor.poke({})

    assert "cluster.admin" in calls.names
    assert calls.open_clients() == 0


@_BOTH
def test_43569_wrong_credentials_fail_at_once(
    mode: str, words: WordTotals, run_dag: RunDag, connections: Callable[..., None], sasl_bootstrap: str
) -> None:
    """ConsumeFromTopicOperator succeeded with credentials that the broker refused."""
    connections(
        **{
            "bootstrap.servers": sasl_bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "not-her-secret",
        }
    )

    outcome = run_dag(f"wait_{mode}", {"application_id": words.application_id, "run_id": "one"})

    assert outcome.state == "failed"
    assert [type(error) for _, error in outcome.errors] == [AirflowFailException]
    assert "not-her-secret" not in outcome.error_text()


def test_69646_a_record_that_the_broker_refuses_is_no_success(
    words: WordTotals, application: Application, kafka_admin: AdminClient, create_topic: Callable[..., str]
) -> None:
    """ProduceToTopicOperator only logged that a message was refused."""
    small = create_topic(f"{words.sink}-small", 1, max_message_bytes="120")
    text = words.file.read_text(encoding="utf-8").replace(words.sink, small)
    text = text.replace("total + count", "(total or 0) + 7**237 + count")
    words.file.write_text(text, encoding="utf-8")
    application.topology = load_topology(words.file)
    words.publish(20)
    slice_ = application.begin("one")

    with pytest.raises(KStreamsError, match=small):
        application.tasks(slice_)
    with pytest.raises(KStreamsError, match="not finished"):
        application.finish("one")


def _parameters(kind: type[BaseOperator], of: str = "") -> dict[str, inspect.Parameter]:
    """The parameters of an operator and of its bases in a package."""
    return {
        name: parameter
        for one in kind.__mro__
        if issubclass(one, BaseOperator) and one.__module__.startswith(of)
        for name, parameter in inspect.signature(one.__init__).parameters.items()
    }


@pytest.mark.parametrize("kind", _OPERATORS)
def test_42502_no_template_field_holds_a_function(kind: type[BaseOperator]) -> None:
    """``producer_function`` was a template field, which Airflow calls to render it."""
    parameters = _parameters(kind)
    fields = set(kind.template_fields)
    functions = {name for name, parameter in parameters.items() if "Callable" in str(parameter.annotation)}
    assert fields & functions == set()
    assert "python_callable" not in fields


@pytest.mark.parametrize("kind", _OPERATORS[:-1])
def test_70296_templates_are_read_when_they_are_rendered_and_not_before(kind: type[Any]) -> None:
    """Constructors looked into fields that were still templates."""
    parameters = _parameters(kind, of="airflow_kstreams.")
    # Settings are a mapping, whose values are templates.
    names = [name for name in kind.template_fields if name in parameters and name != "settings"]
    templates = {name: f"{{{{ {name} }}}}" for name in names}

    made = kind(task_id="t", **templates)

    assert {name: getattr(made, name) for name in templates} == templates
