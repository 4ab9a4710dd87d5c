"""Records in flight in a task whose calls end when the test says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from airflow_kstreams.streams import (
    KStreamBuilder,
    Processor,
    ProcessorContext,
    ProcessorRecord,
    RetryPolicy,
    StoreSpec,
    Topology,
    TopologyError,
    serdes,
)
from airflow_kstreams.streams.calls.call import AsyncNode, Call
from airflow_kstreams.streams.figures.call_figures import ThreadState
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.runtime.execution import TaskProgress
from airflow_kstreams.streams.runtime.pipeline.async_pipeline import AsyncPipeline
from airflow_kstreams.streams.runtime.stream_task import StreamTask, TaskId
from airflow_kstreams.streams.runtime.task_environment import TaskEnvironment
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.topology.records import FakeRecord

IN = TopicPartition("in", 0)


async def never_run(value: Any) -> Any:
    raise AssertionError("the caller runs no function")


async def same(value: Any) -> Any:
    return value


class HandCaller:
    """Ends the calls that the test names."""

    patience_seconds = 0.0
    threads_replaced = 0

    def __init__(self, async_nodes: Sequence[AsyncNode]) -> None:
        self.started: dict[Any, Call] = {}
        self._ended: list[Call] = []

    def open(self) -> None:
        """Nothing runs."""

    def start(self, call: Call) -> None:
        self.started[call.value] = call

    def hurry(self) -> None:
        """Nothing waits for more."""

    def end(self, value: Any, result: Any = None, *, error: Exception | None = None) -> None:
        call = self.started.pop(value) if error else self.started[value]
        call.result, call.error = (value if result is None else result), error
        self._ended.append(call)

    def ended(self, wait_seconds: float) -> Sequence[Call]:
        ended, self._ended = self._ended, []
        return ended

    def thread_states(self) -> Sequence[ThreadState]:
        """No threads run."""
        return ()

    def close(self) -> None:
        """Nothing runs."""


class Scene:
    def __init__(self, topology: Topology, records: int = 200, padding: bytes = b"", **settings: Any) -> None:
        self.out: list[tuple[str, bytes | None]] = []
        self.now_ms = 0

        def make(async_nodes: Sequence[AsyncNode]) -> HandCaller:
            self.caller = HandCaller(async_nodes)
            return self.caller

        self.task = StreamTask(
            topology,
            task_id=TaskId(subtopology=0, group=0),
            bounds={IN: (0, records)},
            produce=lambda topic, value, *_: self.out.append((topic, value)),
            settings=ApplicationSettings.parse("app", {k.replace("_", "."): v for k, v in settings.items()}),
            progress=TaskProgress(),
            environment=TaskEnvironment(make_caller=make, now_ms=lambda: self.now_ms),
        )
        self.task.add(
            IN,
            [
                FakeRecord(at=n, key_bytes=b"k", value_bytes=padding + b"%d" % n, timestamp_ms=n)
                for n in range(records)
            ],
        )
        self.task.restored()
        self.task.open()

    @property
    def position(self) -> int:
        return self.task.group.positions()[IN]


def builder() -> KStreamBuilder:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())


def calling(**options: Any) -> Topology:
    made = builder()
    made.stream("in").map_values_async(never_run, **options).send_to("out")
    return made.build()


def test_records_are_released_in_input_order_when_later_calls_end_first() -> None:
    scene = Scene(calling(), records=4)
    assert scene.task.process(100) == 0
    assert not scene.task.execution.calls_ended()
    for value in (3, 1, 2):
        scene.caller.end(value)
        assert (scene.task.process(100), scene.out, scene.position) == (0, [], 0)
        # A call that has ended is progress, though nothing is released: the run does not stand still.
        assert [scene.task.execution.calls_ended(), scene.task.execution.calls_ended()] == [True, False]
    assert scene.task.progress.records_in == 0
    assert scene.task.execution.waiting_for().startswith(
        "in-0@0 waits for 1 call of KSTREAM-MAPVALUES-ASYNC-"
    )
    scene.caller.end(0)
    assert (scene.task.process(100), scene.position, scene.task.execution.complete) == (4, 4, True)
    assert scene.out == [("out", b"%d" % n) for n in range(4)]
    assert scene.task.progress.records_in == 4
    pipeline = scene.task.execution
    assert isinstance(pipeline, AsyncPipeline)
    assert (pipeline._limit.records, pipeline._limit.size_bytes) == (0, 0), (
        "what is released takes up nothing"
    )


@pytest.mark.parametrize(("settings", "most"), [({}, 60), ({"max_waiting_results": 7}, 7)])
def test_task_chooses_no_more_when_so_many_wait_for_one_call(settings: dict[str, Any], most: int) -> None:
    scene = Scene(calling(max_in_flight=3), **settings)
    for _ in range(30):
        scene.task.process(1_000)
        for value in {*scene.caller.started} - {0}:
            if scene.caller.started[value].result is None:
                scene.caller.end(value)
    assert len(scene.caller.started) == most
    scene.caller.end(0)
    assert scene.task.process(1_000) == most
    assert len(scene.caller.started) > most


def test_task_chooses_no_more_when_results_take_up_too_much() -> None:
    scene = Scene(calling(max_in_flight=10), max_waiting_results=50, max_waiting_bytes=1_000_000)
    assert scene.task.process(1_000) == 0
    assert len(scene.caller.started) == 50
    for value in range(50):
        scene.caller.end(value, "x" * 100_000) if value >= 40 else scene.caller.end(value)
    # Forty are released; ten wait behind the next one, and their results alone fill the room.
    del scene.caller._ended[0]
    assert scene.task.process(1_000) == 0
    assert len(scene.caller.started) == 50
    scene.caller.end(0)
    assert scene.task.process(1_000) >= 50
    assert len(scene.caller.started) > 50


class AskingToCommit(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: ProcessorRecord) -> None:
        self.context.forward(record.key, record.value)
        if record.value == 2:
            self.context.commit()


def test_commit_comes_right_behind_the_record_whose_processor_above_asks_for_it() -> None:
    made = builder()
    asked = made.stream("in").process(AskingToCommit)
    asked.map_values_async(never_run).send_to("out", key_serde=serdes.string(), value_serde=serdes.json())
    scene = Scene(made.build(), records=6)
    scene.task.process(100)
    for value in range(6):
        scene.caller.end(value)
    assert scene.task.process(100) == 3
    assert scene.position == 3
    assert scene.task.commit_due(interval_elapsed=False)
    scene.task.flush()
    assert not scene.task.commit_due(interval_elapsed=False)
    assert scene.task.process(100) == 3


class CommitsByTheClock(Processor):
    def init(self, context: ProcessorContext) -> None:
        context.schedule(1, clock="wall_clock", callback=lambda _: context.commit())

    def process(self, record: ProcessorRecord) -> None:
        """Nothing is to be done with it."""


def test_records_and_retries_go_on_when_a_timer_asks_for_a_commit_at_every_turn() -> None:
    made = builder()
    stream = made.stream("in")
    stream.process(CommitsByTheClock)
    retry = RetryPolicy(backoff_ms=0)
    stream.map_values_async(never_run, order="key", retry=retry, name="ask").send_to("out")
    scene = Scene(made.build(), records=2)

    def turn() -> None:
        scene.now_ms += 1
        scene.task.punctuate()
        scene.task.process(100)
        if scene.task.commit_due(interval_elapsed=False):
            scene.task.flush()

    turn()
    assert set(scene.caller.started) == {0}
    scene.caller.end(0)
    turn()
    scene.caller.end(1, error=ConnectionError())
    for _ in range(4):
        turn()
    assert scene.position == 2
    assert 1 in scene.caller.started, "the parked record is called again"


def beside_a_table_above_a_call(
    ask: Any = never_run, *, cached: bool = True, above: bool = False
) -> Topology:
    """A table, with a call below it, beside a call below which a commit is asked for.

    :param ask: the function of both calls.
    :param cached: whether the table emits at commit points.
    :param above: whether the commit is asked for above both calls instead.
    """
    made = builder()
    stream = made.stream("in")
    store = StoreSpec(name="counts", key_serde=serdes.string(), value_serde=serdes.int64(), cached=cached)
    counts = stream.group_by_key().count(store=store).to_stream().map_values(lambda n: f"count {n}")
    counts.map_values_async(ask).send_to("counts", value_serde=serdes.json())
    if above:
        asked = stream.process(AskingToCommit).map_values_async(ask)
    else:
        asked = stream.map_values_async(ask).process(AskingToCommit)
    asked.send_to("out", key_serde=serdes.string(), value_serde=serdes.json())
    return made.build()


@pytest.mark.remedy("stage_runner.StageRunner._refuse_unready_flush")
def test_commit_is_refused_below_a_call_when_a_table_above_emits_at_commit_points() -> None:
    scene = Scene(beside_a_table_above_a_call(), records=10, commit_every_records=5)
    scene.task.process(100)
    for value in range(3):
        scene.caller.end(value)
    found = r"'KSTREAM-PROCESSOR-\d+' asks for a commit below the asynchronous 'KSTREAM-MAPVALUES-ASYNC"
    with pytest.raises(TopologyError, match=found):
        scene.task.process(100)

    for told in ({"cached": False}, {"above": True}):
        topology = beside_a_table_above_a_call(same, **told)
        settings = {"commit.every.records": 5}
        with TopologyTestDriver(topology, application_id="app", settings=settings) as driver:
            driver.pipe_records("in", [("k", value, value) for value in range(10)])
            assert [record.value for record in driver.read_output("out")] == [*range(10)]
            assert driver.read_output("counts")[-1].value == "count 10"


def test_commit_is_made_below_a_call_when_its_record_is_a_commit_point() -> None:
    scene = Scene(beside_a_table_above_a_call(), records=10, commit_every_records=3)
    scene.task.process(100)
    for value in (0, 1, 2, "count 3"):
        scene.caller.end(value)
    assert scene.task.process(100) == 3
    assert scene.position == 3
    assert scene.task.commit_due(interval_elapsed=False)
    assert scene.out[-1] == ("counts", b'"count 3"')


def test_task_chooses_no_more_when_what_calls_are_given_takes_up_too_much() -> None:
    made = builder()
    large = made.stream("in").map_values(lambda value: "x" * 100_000 + str(value))
    large.map_values_async(never_run).send_to("out")
    scene = Scene(made.build(), max_waiting_bytes=1_000_000)
    assert scene.task.process(1_000) == 0
    assert len(scene.caller.started) == 10


def test_a_commit_is_possible_when_a_parked_record_is_called_again_and_a_table_holds_results_back() -> None:
    made = builder()
    retry = RetryPolicy(backoff_ms=0)
    asked = made.stream("in").map_values_async(never_run, order="key", retry=retry, name="ask")
    asked.group_by_key().count(store="counts").to_stream().send_to("out", value_serde=serdes.int64())
    scene = Scene(made.build(), records=2)
    task, caller = scene.task, scene.caller
    task.process(100)
    caller.end(0)
    task.process(100)
    caller.end(1, error=ConnectionError())
    task.process(100)
    assert (scene.position, task.execution.complete, task.progress.parked) == (2, False, {"ask": 1})
    assert 1 in caller.started
    allowed = [task.execution.may_commit]
    task.execution.ask_for_commit_point()
    task.execution.ask_for_commit_point()
    task.process(100)
    assert [*allowed, task.execution.may_commit] == [False, True]
    task.flush()
    assert len(scene.out) == 1
    caller.end(1)
    task.process(100)
    assert task.execution.complete
    task.stop()
    task.close_processors()
    assert len(scene.out) == 2


def test_task_chooses_no_more_when_what_it_has_consumed_takes_up_too_much() -> None:
    scene = Scene(calling(), padding=b" " * 100_000, max_waiting_bytes=1_000_000)
    assert scene.task.process(1_000) == 0
    assert len(scene.caller.started) == 10
