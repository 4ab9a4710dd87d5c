from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from airflow_kstreams.spark.executor.stuck_functions import FunctionWatch
from airflow_kstreams.streams import KStream, KStreamBuilder, Processor, Serde, StoreSpec, serdes, timestamps
from airflow_kstreams.streams.errors import CallsStuckError
from airflow_kstreams.testing import InMemoryKafka, TopologyTestDriver
from tests.support.kafka.in_process import Application

pytestmark = pytest.mark.promise("stuck-functions-are-named")

STALL_MS = 60_000


class Gate:
    """A function that waits inside, as many times as it is called, until it may go on."""

    def __init__(self) -> None:
        self.inside = threading.Semaphore(0)
        self.may_leave = threading.Semaphore(0)

    def __call__(self, *_: object) -> str:
        self.inside.release()
        self.may_leave.acquire()
        return "done"


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    for _ in range(10):
        gate.may_leave.release()


def mapped(stream: KStream[str, str], gate: Gate) -> KStream[str, str]:
    def asks_the_service(value: str) -> str:
        return gate(value)

    return stream.map_values(asks_the_service)


def processed(stream: KStream[str, str], gate: Gate) -> KStream[str, str]:
    class Asking(Processor):
        def process(self, record: Any) -> None:
            gate(record)

    return stream.process(Asking)


def punctuated(stream: KStream[str, str], gate: Gate) -> KStream[str, str]:
    class Ticking(Processor):
        def init(self, context: Any) -> None:
            context.schedule(10, callback=self.asks)

        def process(self, record: Any) -> None: ...

        def asks(self, now_ms: int) -> None:
            gate(now_ms)

    return stream.process(Ticking)


def folded(stream: KStream[str, str], gate: Gate) -> KStream[str, str]:
    def sums(key: str, value: str, total: str) -> str:
        return gate(value)

    return stream.group_by_key().aggregate(lambda: "", sums, store="sums").to_stream()


@pytest.mark.parametrize(
    ("step", "node", "function"),
    [
        (mapped, "KSTREAM-MAPVALUES", "mapped.<locals>.asks_the_service"),
        (processed, "KSTREAM-PROCESSOR", "processed.<locals>.Asking.process"),
        (punctuated, "KSTREAM-PROCESSOR", "punctuated.<locals>.Ticking.asks"),
        (folded, "KSTREAM-AGGREGATE", "folded.<locals>.sums"),
    ],
)
def test_error_names_task_node_and_function_when_a_thread_stays_inside_one_call(
    gate: Gate, step: Callable[..., KStream[str, str]], node: str, function: str
) -> None:
    watch = FunctionWatch(["0_0", "0_1", "0_2"], stall_ms=STALL_MS)
    thread = piping(step, gate, watch)
    gate.inside.acquire()
    watch.look(0.0)
    watch.look(59.9)
    with pytest.raises(CallsStuckError) as stuck:
        watch.look(60.0)
    said = str(stuck.value)
    assert f"node '{node}" in said
    assert f"inside one call of {function} at {__file__}:" in said
    assert "for 60000 ms (run.stall.timeout.ms)" in said
    assert "task 0_0: " in said
    assert "with tasks 0_1, 0_2, which resume where they have committed" in said
    gate.may_leave.release()
    thread.join()


@pytest.mark.remedy("stuck_functions.FunctionWatch._stuck")
@pytest.mark.parametrize("told", ["a timeout", "a longer time"])
def test_task_goes_on_when_the_function_gives_up_or_may_take_longer(gate: Gate, told: str) -> None:
    watch = FunctionWatch(["0_0"], stall_ms=STALL_MS)
    thread = piping(mapped, gate, watch)
    gate.inside.acquire()
    watch.look(0.0)
    with pytest.raises(CallsStuckError) as stuck:
        watch.look(60.0)
    assert "give what the function waits for a timeout, or raise run.stall.timeout.ms" in stuck.value.fix
    gate.may_leave.release()
    thread.join()

    longer = FunctionWatch(["0_0"], stall_ms=STALL_MS if told == "a timeout" else 2 * STALL_MS)
    thread = piping(mapped, gate, longer)
    gate.inside.acquire()
    longer.look(0.0)
    longer.look(30.0 if told == "a timeout" else 60.0)
    gate.may_leave.release()
    thread.join()
    longer.look(1_000.0)


def test_error_names_the_source_when_its_extractor_or_serde_stays_inside_one_call(gate: Gate) -> None:
    def asks_when(record: Any) -> int:
        gate()
        return int(record.timestamp_ms)

    def asks_what(data: bytes) -> str:
        gate()
        return data.decode()

    whole: Any = serdes.string()
    asking = Serde(id="asking", serialize=whole.serialize, deserialize=asks_what)
    dated = timestamps.extract(lambda record: record.timestamp_ms)
    for options, function in (
        ({"timestamps": timestamps.extract(asks_when)}, "asks_when"),
        ({"timestamps": dated, "value_serde": asking}, "asks_what"),
    ):
        watch = FunctionWatch(["0_0"], stall_ms=STALL_MS)
        thread = piping(lambda stream, _: stream, gate, watch, source=options)
        gate.inside.acquire()
        watch.look(0.0)
        with pytest.raises(
            CallsStuckError, match=rf"task 0_0: node 'KSTREAM-SOURCE.*call of .*{function} at "
        ):
            watch.look(60.0)
        gate.may_leave.release()
        thread.join()


@pytest.mark.parametrize("moment", ["commit", "restore"])
def test_error_names_the_changelog_when_its_stores_serde_stays_inside_one_call(
    gate: Gate, moment: str
) -> None:
    asks = {"commit": 0, "restore": 0}

    def asks_what(data: Any) -> Any:
        kind = "commit" if isinstance(data, str) else "restore"
        asks[kind] -= 1
        if asks[kind] == 0:
            gate()
        return data.encode() if isinstance(data, str) else data.decode()

    class Keep(Processor):
        def init(self, context: Any) -> None:
            self.store = context.state_store("last")

        def process(self, record: Any) -> None:
            self.store.put(record.key, record.value)

    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    asking = Serde(id="asking", serialize=asks_what, deserialize=asks_what)
    store = StoreSpec(name="last", key_serde=serdes.string(), value_serde=asking)
    builder.stream("in").process(Keep, store)
    kafka = InMemoryKafka()
    kafka.create_topic("in")
    app = Application(application_id="app", topology=builder.build(), on=kafka)
    kafka.append("in", b"v", b"k")
    app.run("run-1")
    kafka.append("in", b"v", b"k")
    slice_ = app.begin("run-2")
    watch = FunctionWatch(["0_0"], stall_ms=STALL_MS)
    # A serde of the user's is asked by the put, too, whether it deletes the entry.
    asks[moment] = 2 if moment == "commit" else 1

    def run() -> None:
        watch.watch_this_thread()
        app.task(slice_, 0, 0)

    thread = threading.Thread(target=run)
    thread.start()
    gate.inside.acquire()
    watch.look(0.0)
    with pytest.raises(
        CallsStuckError,
        match="task 0_0: the serde of changelog 'app-last-changelog' has been inside one call",
    ):
        watch.look(60.0)
    gate.may_leave.release()
    thread.join()


def test_slow_calls_are_progress_when_each_ends(gate: Gate) -> None:
    watch = FunctionWatch(["0_0"], stall_ms=STALL_MS)
    thread = piping(mapped, gate, watch, records=3)
    for number in range(3):
        gate.inside.acquire()
        watch.look(number * 59.0)
        watch.look(number * 59.0 + 58.9)
        gate.may_leave.release()
    thread.join()
    watch.look(1_000.0)


def test_wait_of_the_engine_is_progress_when_no_function_runs() -> None:
    watch, may_end = FunctionWatch(["0_0"], stall_ms=STALL_MS), threading.Event()
    started = threading.Event()

    def wait() -> None:
        watch.watch_this_thread()
        started.set()
        may_end.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    started.wait()
    watch.look(0.0)
    watch.look(1_000.0)
    may_end.set()
    thread.join()


def test_results_come_in_order_and_the_first_error_after_all_have_ended() -> None:
    watch = FunctionWatch(["0_0"], stall_ms=STALL_MS)
    assert watch.run([lambda: 1, lambda: 2, lambda: 3], at_once=2) == [1, 2, 3]
    ended: list[int] = []

    def fails() -> None:
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        watch.run([fails, lambda: ended.append(1)], at_once=1)
    assert ended == [1]


def piping(
    step: Callable[..., KStream[str, str]],
    gate: Gate,
    watch: FunctionWatch,
    *,
    records: int = 1,
    source: Mapping[str, Any] | None = None,
) -> threading.Thread:
    """Start a thread in which a task processes records."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    step(builder.stream("in", **(source or {})), gate).send_to("out")
    topology = builder.build()

    def pipe() -> None:
        watch.watch_this_thread()
        with TopologyTestDriver(topology, application_id="app") as driver:
            for number in range(records):
                driver.pipe_input("in", key="k", value="v", timestamp_ms=10 * number + 10)

    thread = threading.Thread(target=pipe)
    thread.start()
    return thread
