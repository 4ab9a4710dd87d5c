"""Following finished runs: none is missed, whatever dies, and a repeated one is the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from airflow.triggers.shared_stream import AdvanceItem, AdvanceOutcome

from airflow_kstreams.batch.model import FrozenPartition, RunSummary
from airflow_kstreams.hooks.asset_events import MAX_EXTRA_BYTES, event_extra
from airflow_kstreams.hooks.finished_runs import FinishedRuns
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing import InMemoryKafka
from airflow_kstreams.triggers import finished_runs
from airflow_kstreams.triggers.finished_runs import FinishedRunsProducer, FinishedRunsTrigger
from tests.in_process import Application


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
def following(application: Application) -> Callable[..., FinishedRuns]:
    return lambda name="airflow": FinishedRuns(application.cluster, "app", name=name)


def _ids(runs: FinishedRuns) -> list[str]:
    return [summary.run_id for _, summary in runs.poll(0.1)]


def test_runs_are_told_from_the_first_look_on_when_nobody_followed_before(
    application: Application, following: Callable[..., FinishedRuns]
) -> None:
    application.run("before")
    with following() as runs:
        assert _ids(runs) == []
        application.run("one")
        application.run("two")
        assert _ids(runs) == ["one", "two"]
        assert _ids(runs) == []


def test_no_run_is_missed_when_the_follower_was_down(
    application: Application, following: Callable[..., FinishedRuns]
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
    application: Application, following: Callable[..., FinishedRuns]
) -> None:
    application.run("before")
    with following() as runs:
        application.run("one")
        application.run("two")
        (first, _), _ = runs.poll(0.1)
        runs.rewind(first)
        assert _ids(runs) == ["one", "two"]


def test_application_is_named_when_it_never_ran(following: Callable[..., FinishedRuns]) -> None:
    with pytest.raises(ConfigError, match="no ledger app-runs"), following():
        pass


def test_past_runs_are_told_when_a_new_follower_wants_them_and_once_only(
    application: Application,
) -> None:
    application.run("before")
    application.run("and this")
    with FinishedRuns(application.cluster, "app", name="new", from_start=True) as runs:
        found = runs.poll(0.1)
        assert [summary.run_id for _, summary in found] == ["before", "and this"]
        runs.take(found[-1][0] + 1)
    with FinishedRuns(application.cluster, "app", name="new", from_start=True) as runs:
        assert _ids(runs) == [], "a cursor that is known has the last word"


def test_first_run_is_told_when_the_follower_came_before_it(
    application: Application, following: Callable[..., FinishedRuns]
) -> None:
    runs = following()
    assert not runs.has_ledger()
    application.run("first")
    assert runs.has_ledger()
    with runs:
        assert _ids(runs) == ["first"]


def test_application_group_is_left_alone_when_its_runs_are_followed(
    application: Application, following: Callable[..., FinishedRuns]
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
def producer(application: Application, monkeypatch: pytest.MonkeyPatch) -> FinishedRunsProducer:
    extra = {"bootstrap.servers": "h:1"}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": extra}))
    monkeypatch.setattr(finished_runs, "cluster_of", lambda _: application.cluster)
    trigger = FinishedRunsTrigger(application_id="app")
    return FinishedRunsTrigger.create_shared_stream_producer(trigger.serialize()[1])


def test_cursor_moves_past_what_airflow_has_stored_and_no_further(
    application: Application, producer: FinishedRunsProducer
) -> None:
    application.run("before")

    async def scenario() -> list[Any]:
        stream = producer.open_stream()
        pending = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        while producer._runs is None:
            await asyncio.sleep(0.01)
        for run_id in ("one", "two", "three"):
            async with producer._lock:
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
    with FinishedRuns(application.cluster, "app", name="airflow") as runs:
        assert _ids(runs) == ["two", "three"]


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
    assert trigger.shared_stream_key() != FinishedRunsTrigger(application_id="app").shared_stream_key()


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
