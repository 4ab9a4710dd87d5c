"""One look for all that wait in a process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.batch.inspect.conditions import (
    NewData,
    RunFinished,
    StopOffsetsReached,
    condition_to_json,
)
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError, KStreamsError
from airflow_kstreams.streams.naming.topic_names import ProtocolTopics
from airflow_kstreams.testing import InMemoryKafka
from airflow_kstreams.testing.faults import FaultyCluster
from airflow_kstreams.triggers.cluster_watch import ClusterWatch, PendingCondition, watch_of
from airflow_kstreams.triggers.condition import ConditionTrigger
from tests.support.kafka.in_process import Application


class OneAtATime:
    """Lets one thread at a time into a cluster in memory, counts calls, and fails on demand.

    :ivar failing: what every call raises.
    :ivar leaderless: a topic whose partitions have no leader: nobody tells where they end.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.calls: Counter[str] = Counter()
        self.threads: set[str] = set()
        self.failing: KafkaClientError | None = None
        self.leaderless = ""

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        with self.lock:
            self.calls[name] += 1
            self.threads.add(threading.current_thread().name)
            if self.failing is not None:
                raise self.failing
            if name == "admin.end_offsets" and any(tp.topic == self.leaderless for tp in arguments[0]):
                raise KafkaClientError(
                    f"{self.leaderless}-0 has no leader",
                    fix="wait",
                    kafka_code="LEADER_NOT_AVAILABLE",
                    retriable_code=True,
                )
            return effect()

    def open_readers(self) -> int:
        with self.lock:
            return self.calls["cluster.reader"] - self.calls["reader.close"]


def _topology() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("orders").send_to("stored")
    return builder.build()


@pytest.fixture
def gate() -> OneAtATime:
    return OneAtATime()


@pytest.fixture
def application() -> Application:
    kafka = InMemoryKafka()
    kafka.create_topic("orders", partitions=1)
    kafka.create_topic("stored", partitions=1)
    return Application(on=kafka, clock=kafka.clock, application_id="app", topology=_topology())


@pytest.fixture
def watch(application: Application, gate: OneAtATime) -> ClusterWatch:
    return ClusterWatch(lambda: FaultyCluster(application.cluster, gate))


def _waiting(condition: Any, *, interval: float = 0.01) -> PendingCondition:
    return PendingCondition(condition=condition, interval_seconds=interval, loop=asyncio.get_running_loop())


async def _first(waiting: PendingCondition) -> Any:
    """Wait for the first look that gave something."""
    while True:
        await asyncio.wait_for(waiting.news.wait(), 30)
        waiting.news.clear()
        if waiting.seen is not None:
            return waiting.seen


async def _thread_ends() -> None:
    while any(thread.name == "kstreams-watch" for thread in threading.enumerate()):
        await asyncio.sleep(0.01)


async def _leave(watch: ClusterWatch, *everybody: PendingCondition) -> None:
    for one in everybody:
        watch.remove(one)
    await asyncio.wait_for(_thread_ends(), 30)


def test_a_thousand_sensors_cost_one_consumer_when_they_wait_for_one_ledger(
    watch: ClusterWatch, application: Application, gate: OneAtATime
) -> None:
    async def scenario() -> list[Any]:
        everybody = [_waiting(RunFinished(application_id="app", run_id="one")) for _ in range(1_000)]
        for one in everybody:
            watch.add(one)
        await asyncio.wait_for(everybody[0].news.wait(), 30)
        assert threading.active_count() < 10
        with gate.lock:
            application.run("one")
        seen = await asyncio.gather(*(_first(one) for one in everybody))
        await _leave(watch, *everybody)
        return seen

    seen = asyncio.run(scenario())

    assert [found["run_id"] for found in seen] == ["one"] * 1_000
    assert gate.calls["cluster.reader"] == gate.calls["reader.close"] == 1
    assert gate.calls["cluster.admin"] == gate.calls["admin.close"] == 1
    assert gate.threads == {"kstreams-watch"}, "clients belong to the watch's own thread"


def test_a_thousand_different_runs_cost_one_consumer_and_one_read_of_the_ledger_per_change(
    watch: ClusterWatch, application: Application, gate: OneAtATime
) -> None:
    application.run("before")

    async def scenario() -> tuple[Any, int]:
        everybody = [_waiting(RunFinished(application_id="app", run_id=f"run-{n}")) for n in range(1_000)]
        with gate.lock:
            for one in everybody:
                watch.add(one)
        await asyncio.wait_for(everybody[-1].news.wait(), 30)
        with gate.lock:
            reads = gate.calls["reader.assign"]
            application.run("run-7")
        seen = await _first(everybody[7])
        await _leave(watch, *everybody)
        assert [one for one in everybody if one.seen is not None] == [everybody[7]]
        return seen, gate.calls["reader.assign"] - reads

    seen, reads = asyncio.run(scenario())

    assert seen["run_id"] == "run-7"
    # The ledger is read once more if it moved on while it was read.
    assert 1 <= reads <= 4
    assert gate.calls["cluster.reader"] == gate.calls["cluster.admin"] == 1


def test_newcomer_is_looked_for_at_once_when_others_wait_for_hours(
    watch: ClusterWatch, application: Application
) -> None:
    application.run("one")

    async def scenario() -> Any:
        patient = _waiting(RunFinished(application_id="app", run_id="never"), interval=10_000)
        watch.add(patient)
        await asyncio.wait_for(patient.news.wait(), 30)
        newcomer = _waiting(RunFinished(application_id="app", run_id="one"), interval=10_000)
        watch.add(newcomer)
        try:
            return await _first(newcomer)
        finally:
            await _leave(watch, patient, newcomer)

    assert asyncio.run(scenario())["run_id"] == "one"


def test_newcomer_is_looked_for_at_once_when_it_comes_as_a_round_begins(
    watch: ClusterWatch, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    application.run("one")

    async def scenario() -> Any:
        patient = _waiting(RunFinished(application_id="app", run_id="never"), interval=10_000)
        newcomer = _waiting(RunFinished(application_id="app", run_id="one"), interval=10_000)
        still_waiting, coming = watch._still_waiting, [newcomer]

        def look_who_waits() -> set[PendingCondition] | None:
            found = still_waiting()
            if coming:
                watch.add(coming.pop())
            return found

        monkeypatch.setattr(watch, "_still_waiting", look_who_waits)
        watch.add(patient)
        try:
            return await _first(newcomer)
        finally:
            await _leave(watch, patient, newcomer)

    assert asyncio.run(scenario())["run_id"] == "one"


def test_next_trigger_is_looked_for_when_no_thread_could_be_started_for_the_first(
    watch: ClusterWatch, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    application.run("one")

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def scenario() -> Any:
        waiting = _waiting(RunFinished(application_id="app", run_id="one"))
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                watch.add(waiting)
        watch.add(waiting)
        try:
            return await _first(waiting)
        finally:
            await _leave(watch, waiting)

    assert asyncio.run(scenario())["run_id"] == "one"


def test_error_of_one_condition_is_told_to_its_sensor_alone(
    watch: ClusterWatch, application: Application
) -> None:
    application.run("one")

    async def scenario() -> tuple[Any, Any]:
        wrong = _waiting(NewData(application_id="app", topics=("no-such",)))
        right = _waiting(RunFinished(application_id="app", run_id="one"))
        watch.add(wrong)
        watch.add(right)
        try:
            return await _first(wrong), await _first(right)
        finally:
            await _leave(watch, wrong, right)

    error, result = asyncio.run(scenario())

    assert isinstance(error, ConfigError)
    assert result["run_id"] == "one"


def test_everybody_hears_of_a_failing_broker_and_clients_are_made_anew_when_it_is_back(
    watch: ClusterWatch, application: Application, gate: OneAtATime
) -> None:
    async def scenario() -> Any:
        gate.failing = KafkaClientError("gone", fix="wait", kafka_code="_TRANSPORT", retriable_code=True)
        waiting = _waiting(RunFinished(application_id="app", run_id="one"))
        watch.add(waiting)
        try:
            error = await _first(waiting)
            assert isinstance(error, KafkaClientError)
            assert error.is_retriable
            with gate.lock:
                gate.failing = None
                application.run("one")
            while isinstance(seen := await _first(waiting), KafkaClientError):
                pass
            return seen
        finally:
            await _leave(watch, waiting)

    assert asyncio.run(scenario())["run_id"] == "one"


async def _seen_by(waiting: PendingCondition, wanted: Callable[[Any], bool]) -> Any:
    while not wanted(seen := await _first(waiting)):
        pass
    return seen


async def _looks(waiting: PendingCondition, count: int) -> None:
    """Wait for looks that begin from now on."""
    for _ in range(count + 1):
        waiting.news.clear()
        await asyncio.wait_for(waiting.news.wait(), 30)


def test_one_topic_without_leader_is_the_trouble_of_its_own_sensor_alone(
    watch: ClusterWatch, application: Application, gate: OneAtATime
) -> None:
    application.run("one")

    async def scenario() -> tuple[Any, Any, Any]:
        holds = _waiting(RunFinished(application_id="app", run_id="one"))
        unrelated = _waiting(RunFinished(application_id="app", run_id="never"))
        counts = _waiting(NewData(application_id="other", topics=("stored",), min_records=1_000))
        everybody = [holds, unrelated, counts]
        for one in everybody:
            watch.add(one)
        await _looks(counts, 1)
        with gate.lock:
            gate.leaderless = "stored"
        try:
            error = await _first(counts)
            await _looks(unrelated, 2)
            return error, unrelated.seen, holds.seen
        finally:
            await _leave(watch, *everybody)

    error, unrelated, holds = asyncio.run(scenario())

    assert isinstance(error, KafkaClientError)
    assert "stored-0 has no leader" in str(error)
    assert unrelated is None, "not an error of theirs"
    assert holds["run_id"] == "one"
    assert gate.open_readers() == 0


def test_look_goes_on_when_a_topic_that_had_no_leader_has_one(
    watch: ClusterWatch, application: Application, gate: OneAtATime
) -> None:
    gate.leaderless = "orders"

    async def scenario() -> Any:
        counts = _waiting(NewData(application_id="other", topics=("orders",)))
        watch.add(counts)
        try:
            assert isinstance(await _first(counts), KafkaClientError)
            with gate.lock:
                gate.leaderless = ""
                assert application.on is not None
                writer = application.on.writer(transactional_id=None)
                writer.produce("orders", b"v", b"k", 0)
                writer.flush()
                writer.close()
            return await _seen_by(counts, lambda seen: not isinstance(seen, KafkaClientError))
        finally:
            await _leave(watch, counts)

    assert asyncio.run(scenario())["records"] == 1


def test_result_is_not_lost_when_an_error_follows_before_its_sensor_had_a_turn() -> None:
    async def scenario() -> Any:
        waiting = _waiting(RunFinished(application_id="app", run_id="one"))
        waiting.answer({"run_id": "one"})
        waiting.answer(KafkaClientError("gone", fix="wait", kafka_code="_TRANSPORT", retriable_code=True))
        waiting.answer(None)
        return await _first(waiting)

    assert asyncio.run(scenario()) == {"run_id": "one"}


class _Broken(RunFinished, frozen=True, kw_only=True, tag="broken"):
    """A condition with a defect."""

    def evaluate(self, view: object) -> Any:
        raise ZeroDivisionError("of the condition's own")


@pytest.mark.remedy("cluster_watch._reported")
def test_watch_goes_on_when_a_look_fails_in_a_way_that_nobody_foresaw(
    watch: ClusterWatch, application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    application.run("one")

    async def scenario() -> tuple[Any, Any]:
        broken = _waiting(_Broken(application_id="app"))
        watch.add(broken)
        error = await _first(broken)
        newcomer = _waiting(RunFinished(application_id="app", run_id="one"))
        watch.add(newcomer)
        try:
            return error, await _first(newcomer)
        finally:
            await _leave(watch, broken, newcomer)

    error, result = asyncio.run(scenario())

    assert isinstance(error, KStreamsError)
    assert error.is_retriable, "as an error that nobody foresaw is in a worker"
    assert "ZeroDivisionError" in str(error)
    assert "of the condition's own" in str(error)
    assert result["run_id"] == "one"
    assert error.fix == "see the triggerer's log"
    logged = next(record for record in caplog.records if record.exc_info)
    assert logged.exc_info and logged.exc_info[0] is ZeroDivisionError, "with the traceback"


def test_everybody_hears_of_it_when_the_cluster_cannot_even_be_made(application: Application) -> None:
    def cluster() -> Any:
        raise ImportError("no client here")

    watch = ClusterWatch(cluster)

    async def scenario() -> list[Any]:
        everybody = [_waiting(RunFinished(application_id="app", run_id=run_id)) for run_id in "ab"]
        for one in everybody:
            watch.add(one)
        try:
            return [await _first(one) for one in everybody]
        finally:
            await _leave(watch, *everybody)

    assert all("no client here" in str(error) for error in asyncio.run(scenario()))


def test_other_applications_are_looked_at_when_a_strangers_record_is_in_one_ledger(
    watch: ClusterWatch, application: Application
) -> None:
    kafka = application.on
    assert isinstance(kafka, InMemoryKafka)
    application.run("one")
    kafka.append(ProtocolTopics("app").ledger, b"x", b"\xff\xfe")
    other = Application(on=kafka, clock=kafka.clock, application_id="other", topology=_topology())
    other.run("fine")

    async def scenario() -> tuple[Any, Any]:
        spoilt = _waiting(RunFinished(application_id="app", run_id="one"))
        fine = _waiting(RunFinished(application_id="other", run_id="fine"))
        watch.add(spoilt)
        watch.add(fine)
        try:
            return await _first(spoilt), await _first(fine)
        finally:
            await _leave(watch, spoilt, fine)

    error, result = asyncio.run(scenario())

    assert isinstance(error, KafkaClientError)
    assert error.kafka_code == "BAD_LEDGER"
    assert result["run_id"] == "fine"


def test_readers_of_groups_are_given_back_when_nobody_waits_for_their_application(
    watch: ClusterWatch, application: Application, gate: OneAtATime
) -> None:
    kafka = application.on
    assert isinstance(kafka, InMemoryKafka)
    ids = [f"app-{number}" for number in range(20)]
    for application_id in ids:
        one = Application(on=kafka, clock=kafka.clock, application_id=application_id, topology=_topology())
        kafka.append("orders", b"v", b"k")
        one.begin("one")

    async def scenario() -> tuple[int, int]:
        stages = [
            _waiting(StopOffsetsReached(application_id=application_id, run_id="one", subtopology=0))
            for application_id in ids
        ]
        patient = _waiting(RunFinished(application_id="app", run_id="never"))
        for one in (*stages, patient):
            watch.add(one)
        await _looks(stages[-1], 1)
        during = gate.open_readers()
        for one in stages:
            watch.remove(one)
        await _looks(patient, 4)
        after = gate.open_readers()
        await _leave(watch, patient)
        return during, after

    assert asyncio.run(scenario()) == (21, 1)
    assert gate.open_readers() == 0


def test_thread_starts_again_when_somebody_comes_after_the_last_one_left(
    watch: ClusterWatch, application: Application, gate: OneAtATime
) -> None:
    application.run("one")

    async def once() -> Any:
        waiting = _waiting(RunFinished(application_id="app", run_id="one"))
        watch.add(waiting)
        try:
            return await _first(waiting)
        finally:
            await _leave(watch, waiting)

    for _ in range(2):
        assert asyncio.run(once())["run_id"] == "one"
    assert gate.calls["cluster.reader"] == gate.calls["reader.close"] == 2


def test_nothing_fails_when_the_event_loop_of_a_sensor_is_gone(
    watch: ClusterWatch, application: Application
) -> None:
    application.run("one")

    async def leave() -> PendingCondition:
        waiting = _waiting(RunFinished(application_id="app", run_id="never"))
        watch.add(waiting)
        await asyncio.wait_for(waiting.news.wait(), 30)
        return waiting

    gone = asyncio.run(leave())

    async def scenario() -> Any:
        waiting = _waiting(RunFinished(application_id="app", run_id="one"))
        watch.add(waiting)
        try:
            return await _first(waiting)
        finally:
            await _leave(watch, waiting, gone)

    assert asyncio.run(scenario())["run_id"] == "one"


def test_watch_is_shared_when_client_settings_are_equal() -> None:
    def never() -> Any:
        raise AssertionError("nobody waits")

    one = watch_of({"bootstrap.servers": "watch-test:1"}, never)

    assert watch_of({"bootstrap.servers": "watch-test:1"}, never) is one
    assert watch_of({"bootstrap.servers": "watch-test:2"}, never) is not one


@pytest.mark.parametrize("turns", range(4))
def test_trigger_ends_when_it_is_cancelled_as_news_comes(turns: int) -> None:
    condition = RunFinished(application_id="app", run_id="never")

    async def scenario() -> bool:
        trigger = ConditionTrigger(
            condition=condition_to_json(condition),
            kafka_conn_id="any",
            poke_interval=60.0,
            deadline=time.time() + 3600,
        )
        waiting = PendingCondition(
            condition=condition, interval_seconds=60.0, loop=asyncio.get_running_loop()
        )
        waiting.answer(None)
        task = asyncio.create_task(trigger._event(waiting))
        for _ in range(5):
            await asyncio.sleep(0)
        waiting.news.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        ended, _ = await asyncio.wait({task}, timeout=2)
        return bool(ended) and task.cancelled()

    assert asyncio.run(scenario())
