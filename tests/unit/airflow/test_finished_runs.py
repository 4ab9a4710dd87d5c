"""Following finished runs: none is missed, whatever dies, and a repeated one is the same."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from airflow.triggers.shared_stream import AdvanceItem, AdvanceOutcome

from airflow_kstreams.batch.inspect.finished_runs import RunFollower, new_runs
from airflow_kstreams.batch.ledger.run_summary import RunSummary
from airflow_kstreams.batch.protocol.slice.slice import FrozenPartition
from airflow_kstreams.batch.report.lineage import MAX_EXTRA_BYTES, event_extra
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import ConfigError, KafkaClientError
from airflow_kstreams.streams.ports import CommittedOffset, TopicPartition
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from airflow_kstreams.triggers import finished_run_watch
from airflow_kstreams.triggers.finished_run_watch import FinishedRunsProducer, FinishedRunsTrigger
from tests.support.kafka.in_process import Application
from tests.support.kafka.reset_scene import APP, ResetScene

pytestmark = pytest.mark.promise("watchers-miss-nothing", "unreadable-ledgers-stop-watches")


class Gate:
    """Lets one thread at a time into a cluster in memory, and notes who called what.

    :ivar failing: name of the call that fails.
    :ivar held: name of the call that waits until it is let go.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.calls: list[tuple[str, str]] = []
        self.failing = ""
        self.held = ""
        self.waits = threading.Event()
        self.let_go = threading.Event()

    def call(self, name: str, client: object, effect: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        self.calls.append((name, threading.current_thread().name))
        if name == self.held:
            self.waits.set()
            assert self.let_go.wait(60)
            self.calls.append((f"{name} ends", threading.current_thread().name))
        if name == self.failing:
            raise KafkaClientError("gone", fix="wait", kafka_code="_TRANSPORT", retriable_code=True)
        with self.lock:
            return effect()

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    @property
    def threads(self) -> set[str]:
        return {thread for _, thread in self.calls}


def _topology() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("orders").send_to("stored")
    return builder.build()


@pytest.fixture
def application() -> Application:
    kafka = InMemoryKafka()
    kafka.create_topic("orders", partitions=2)
    kafka.create_topic("stored", partitions=1)
    return Application(on=kafka, clock=kafka.clock, application_id="app", topology=_topology())


@pytest.fixture
def following(application: Application) -> Callable[..., RunFollower]:
    return lambda name="airflow": RunFollower(application.cluster, "app", name=name)


def _ids(runs: RunFollower) -> list[str]:
    return [summary.run_id for _, summary in runs.poll(0.1)]


def test_runs_are_told_from_the_first_look_on_when_nobody_followed_before(
    application: Application, following: Callable[..., RunFollower]
) -> None:
    application.run("before")
    with following() as runs:
        assert _ids(runs) == []
        application.run("one")
        application.run("two")
        assert _ids(runs) == ["one", "two"]
        assert _ids(runs) == []


def test_no_run_is_missed_when_the_follower_was_down(
    application: Application, following: Callable[..., RunFollower]
) -> None:
    application.run("before")
    with following():
        pass
    application.run("while down")
    with following() as runs:
        assert _ids(runs) == ["while down"]
    with following() as runs:
        ((offset, summary),) = runs.poll(0.1)
        assert summary.run_id == "while down", "nobody said that it was taken care of"
        runs.take(offset + 1)
    with following() as runs:
        assert _ids(runs) == []
    with following("another") as runs:
        assert _ids(runs) == [], "each name has a cursor of its own"


def test_runs_are_told_again_when_the_follower_goes_back(
    application: Application, following: Callable[..., RunFollower]
) -> None:
    application.run("before")
    with following() as runs:
        application.run("one")
        application.run("two")
        (first, _), _ = runs.poll(0.1)
        runs.rewind(first)
        assert _ids(runs) == ["one", "two"]


def test_application_is_named_when_it_never_ran(following: Callable[..., RunFollower]) -> None:
    with pytest.raises(ConfigError, match="no ledger app-runs"), following():
        pass


def test_past_runs_are_told_when_a_new_follower_wants_them_and_once_only(
    application: Application,
) -> None:
    application.run("before")
    application.run("and this")
    with RunFollower(application.cluster, "app", name="new", from_start=True) as runs:
        found = runs.poll(0.1)
        assert [summary.run_id for _, summary in found] == ["before", "and this"]
        runs.take(found[-1][0] + 1)
    with RunFollower(application.cluster, "app", name="new", from_start=True) as runs:
        assert _ids(runs) == [], "a cursor that is known has the last word"


def test_first_run_is_told_when_the_follower_came_before_it(
    application: Application, following: Callable[..., RunFollower]
) -> None:
    runs = following()
    assert not runs.has_ledger()
    application.run("first")
    assert runs.has_ledger()
    with runs:
        assert _ids(runs) == ["first"]


def test_run_that_a_reset_took_back_is_not_told_as_finished() -> None:
    scene = ResetScene(partitions=1)
    scene.send("a")
    scene.run("r1")
    with RunFollower(scene.kafka, APP, name="n") as runs:
        scene.send("b")
        scene.run("r2")
        assert _ids(runs) == ["r2"]
        assert set(scene.reset(inputs="in", intermediates="mid").taken_back) == {"r1", "r2"}
        assert _ids(runs) == []
        scene.run("r1")
        assert _ids(runs) == ["r1"], "it has finished anew"
    with RunFollower(scene.kafka, APP, name="from the start", from_start=True) as runs:
        assert _ids(runs) == ["r1"]


@pytest.mark.parametrize("call", ["reader.committed", "reader.commit", "reader.assign"])
def test_reader_is_closed_when_following_cannot_begin(application: Application, call: str) -> None:
    application.run("one")
    gate = Gate()
    gate.failing = call

    with (
        pytest.raises(KafkaClientError),
        RunFollower(FaultyCluster(application.cluster, gate), "app", name="n"),
    ):
        pass

    assert gate.names.count("cluster.reader") == gate.names.count("reader.close") == 1
    assert gate.names.count("cluster.admin") == gate.names.count("admin.close") == 1


def test_record_that_no_run_wrote_is_named_and_hides_no_run_before_it(application: Application) -> None:
    kafka = application.on
    assert isinstance(kafka, InMemoryKafka)
    application.run("one")
    kafka.append("app-runs", b"not json", b"stranger")
    for _ in range(2):
        with RunFollower(application.cluster, "app", name="new", from_start=True) as runs:
            assert _ids(runs) == ["one"]
            for _ in range(2):
                with pytest.raises(
                    KafkaClientError, match=r"app-runs-0@\d+ is not a ledger record"
                ) as refused:
                    runs.poll(0.1)
                assert refused.value.kafka_code == "BAD_LEDGER"


def _new(application: Application) -> list[str]:
    with new_runs(application.cluster, "app", name="report") as runs:
        return [run.run_id for run in runs]


def test_new_runs_are_given_once_and_without_waiting_for_more(application: Application) -> None:
    application.run("one")
    application.run("two")
    assert _new(application) == ["one", "two"]
    assert _new(application) == []
    application.run("three")
    assert _new(application) == ["three"]


def test_new_runs_are_given_again_when_the_work_on_them_failed(application: Application) -> None:
    application.run("one")
    with (
        pytest.raises(ZeroDivisionError),
        new_runs(application.cluster, "app", name="report") as runs,
    ):
        application.run("meanwhile")
        assert [run.run_id for run in runs] == ["one"]
        raise ZeroDivisionError
    with new_runs(application.cluster, "app", name="report") as runs:
        application.run("later")
        assert [run.run_id for run in runs] == ["one", "meanwhile"]
    assert _new(application) == ["later"], "only what was given counts as seen"


def test_new_run_before_a_record_that_no_run_wrote_is_given_and_the_record_is_named(
    application: Application,
) -> None:
    kafka = application.on
    assert isinstance(kafka, InMemoryKafka)
    application.run("one")
    kafka.append("app-runs", b"not json", b"stranger")
    assert _new(application) == ["one"]
    for _ in range(2):
        with pytest.raises(KafkaClientError, match="is not a ledger record"):
            _new(application)


def test_runs_that_finish_after_those_by_now_are_polled(
    application: Application, following: Callable[..., RunFollower]
) -> None:
    application.run("before")
    with following() as runs:
        application.run("one")
        assert [summary.run_id for _, summary in runs.until_now()] == ["one"]
        application.run("two")
        assert _ids(runs) == ["two"]


def _finished(application: Application, runs: RunFollower, run_id: str) -> list[tuple[int, RunSummary]]:
    application.run(run_id)
    return runs.poll(0.1)


def test_ledger_that_was_made_anew_is_told_from_its_start_however_long_it_is(
    application: Application, following: Callable[..., RunFollower]
) -> None:
    kafka = application.on
    assert isinstance(kafka, InMemoryKafka)
    application.run("before")
    with following() as runs:
        ((end, _),) = [*runs.poll(0.1), *_finished(application, runs, "another")]
        kafka.admin().delete_topics(["app-runs", "app-metadata"])
        kafka.expire_offsets("app")
        anew = [f"anew-{number}" for number in range(5)]
        for run_id in anew:
            application.run(run_id)
        # The deletion took the cursor away; a follower that has not noticed brings it back.
        runs.take(end + 1)
    assert kafka.records("app-runs")[-1].offset() > end, "the old cursor lies in the middle of it"

    with following() as runs:
        assert _ids(runs) == anew


def test_cursor_that_another_tool_has_set_is_taken_as_it_is(
    application: Application, following: Callable[..., RunFollower]
) -> None:
    application.run("before")
    with following() as runs:
        cursor = runs._cursor
    group = application.cluster.reader(group_id="app-finished-runs-airflow")
    group.commit({TopicPartition("app-runs", 0): CommittedOffset(cursor)})
    group.close()
    application.run("one")

    with following() as runs:
        assert _ids(runs) == ["one"]


def test_application_group_is_left_alone_when_its_runs_are_followed(
    application: Application, following: Callable[..., RunFollower]
) -> None:
    application.run("before")
    with following() as runs:
        application.run("one")
        runs.poll(0.1)
    group = application.cluster.reader(group_id="app")
    assert {tp.topic for tp in group.committed([TopicPartition("app-runs", 0)])} == set()


def _item(offset: int, *, acked: int = 0, failed: int = 0) -> AdvanceItem:
    return AdvanceItem(broker_payload=offset, outcome=AdvanceOutcome(acked=acked, failed=failed, rejected=0))


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def producer(application: Application, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> FinishedRunsProducer:
    extra = {"bootstrap.servers": "h:1"}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": extra}))
    monkeypatch.setattr(finished_run_watch, "cluster_of", lambda _: FaultyCluster(application.cluster, gate))
    trigger = FinishedRunsTrigger(application_id="app")
    return FinishedRunsTrigger.create_shared_stream_producer(trigger.serialize()[1])


def test_cursor_moves_past_what_airflow_has_stored_and_no_further(
    application: Application, producer: FinishedRunsProducer, gate: Gate
) -> None:
    application.run("before")

    async def scenario() -> list[Any]:
        stream = producer.open_stream()
        pending = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        while producer._runs is None:
            await asyncio.sleep(0.01)
        for run_id in ("one", "two", "three"):
            with gate.lock:
                application.run(run_id)
        found = [await pending, await anext(stream), await anext(stream)]
        offsets = [offset for _, offset in found]
        await producer.advance(
            [_item(offsets[0], acked=1), _item(offsets[1], failed=1), _item(offsets[2], acked=1)]
        )
        found += [await anext(stream), await anext(stream)]
        await stream.aclose()
        await producer.aclose()
        return found

    found = asyncio.run(scenario())

    assert [extra["run_id"] for extra, _ in found] == ["one", "two", "three", "two", "three"]
    assert found[1] == found[3], "told again, a run is the same"
    with RunFollower(application.cluster, "app", name="airflow") as runs:
        assert _ids(runs) == ["two", "three"]
    assert {"reader.poll", "reader.commit", "reader.assign", "reader.close", "admin.close"} <= {*gate.names}
    assert gate.threads == {"kstreams-finished-runs_0"}, "no client call is made on the event loop"


def test_cursor_waits_for_a_run_that_was_not_stored_when_later_ones_were(
    application: Application, producer: FinishedRunsProducer, gate: Gate
) -> None:
    application.run("before")

    async def scenario() -> None:
        stream = producer.open_stream()
        pending = asyncio.ensure_future(anext(stream))
        while producer._runs is None:
            await asyncio.sleep(0.01)
        with gate.lock:
            application.run("one")
            application.run("two")
        (_, one), (_, two) = await pending, await anext(stream)
        await producer.advance([_item(one, failed=1)])
        # It was handed out before the first one was known to have failed.
        await producer.advance([_item(two, acked=1)])
        await stream.aclose()
        await producer.aclose()

    asyncio.run(scenario())

    with RunFollower(application.cluster, "app", name="airflow") as runs:
        assert _ids(runs) == ["one", "two"]


def test_reader_is_closed_after_its_last_poll_when_the_watch_is_cancelled_in_it(
    application: Application, producer: FinishedRunsProducer, gate: Gate
) -> None:
    application.run("before")
    gate.held = "reader.poll"

    async def scenario() -> None:
        polling = asyncio.ensure_future(anext(producer.open_stream()))
        await asyncio.to_thread(gate.waits.wait, 60)
        polling.cancel()
        closing = asyncio.ensure_future(producer.aclose())
        for _ in range(10):
            await asyncio.sleep(0)
        gate.let_go.set()
        await closing
        with pytest.raises(asyncio.CancelledError):
            await polling

    asyncio.run(scenario())

    assert gate.names[-3:] == ["reader.poll", "reader.poll ends", "reader.close"]
    assert gate.threads == {"kstreams-finished-runs_0"}


def test_reader_is_closed_even_when_closing_it_is_cancelled(
    application: Application, producer: FinishedRunsProducer, gate: Gate
) -> None:
    application.run("before")
    gate.held = "reader.poll"

    async def scenario() -> None:
        polling = asyncio.ensure_future(anext(producer.open_stream()))
        await asyncio.to_thread(gate.waits.wait, 60)
        polling.cancel()
        closing = asyncio.ensure_future(producer.aclose())
        for _ in range(10):
            await asyncio.sleep(0)
        closing.cancel()
        gate.let_go.set()
        with pytest.raises(asyncio.CancelledError):
            await closing
        with pytest.raises(asyncio.CancelledError):
            await polling

    asyncio.run(scenario())
    for thread in threading.enumerate():
        if thread.name.startswith("kstreams-finished-runs"):
            thread.join(60)

    assert gate.names[-1] == "reader.close"


def test_watch_waits_for_the_ledger_and_tells_the_first_run_when_the_application_has_not_run(
    application: Application, producer: FinishedRunsProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    async def pause(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            application.run("first")

    monkeypatch.setattr(asyncio, "sleep", pause)

    async def scenario() -> Any:
        stream = producer.open_stream()
        extra, _ = await anext(stream)
        await stream.aclose()
        await producer.aclose()
        return extra

    assert asyncio.run(scenario())["run_id"] == "first"


def test_trigger_is_the_same_when_it_was_serialized() -> None:
    trigger = FinishedRunsTrigger(application_id="app", kafka_conn_id="k", name="n", from_start=True)
    path, arguments = trigger.serialize()

    assert path == f"{FinishedRunsTrigger.__module__}.{FinishedRunsTrigger.__qualname__}"
    assert FinishedRunsTrigger(**json.loads(json.dumps(arguments))).serialize() == trigger.serialize()


@pytest.mark.parametrize(
    ("other", "shared"),
    [
        ({"application_id": "another"}, False),
        ({"kafka_conn_id": "another"}, False),
        ({"name": "another"}, False),
        # One name is one cursor, which one reader only may move.
        ({"from_start": True}, True),
    ],
)
def test_watchers_share_a_reader_when_they_share_a_cursor(other: dict[str, Any], shared: bool) -> None:
    given: dict[str, Any] = {"application_id": "app", "kafka_conn_id": "k", "name": "n", "from_start": False}
    one, another = FinishedRunsTrigger(**given), FinishedRunsTrigger(**{**given, **other})

    assert (one.shared_stream_key() == another.shared_stream_key()) is shared


def test_extra_names_run_and_offsets_and_stays_small_when_there_are_many_partitions() -> None:
    inputs = tuple(
        FrozenPartition(topic=f"topic-{n % 9}", partition=n, start_offset=5, stop_offset=5 + n % 2)
        for n in range(2_000)
    )
    summary = RunSummary(
        run_id="r", application_id="a", begun_ms=1, finished_ms=2, generation=1, empty=False, inputs=inputs
    )

    extra = event_extra(summary)

    assert len(json.dumps(extra)) <= MAX_EXTRA_BYTES
    shown = [span for partitions in extra["offsets"].values() for span in partitions.values()]
    assert extra["partitions_omitted"] == 2_000 - len(shown) > 0
    assert all(span == [5, 6] for span in shown), "what moved comes first"
    assert (extra["run_id"], extra["application_id"]) == ("r", "a")
