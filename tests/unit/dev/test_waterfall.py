"""The recorder of small runs notes each call once, inside the right one; the page says what each protects."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.ports import AdminPort, ReaderPort, WriterPort
from airflow_kstreams.testing import FaultyCluster, InMemoryKafka
from airflow_kstreams.testing.in_memory_kafka import admin, reader, writer
from dev.benchmarks.waterfall import small_runs, trace
from dev.benchmarks.waterfall.command import TASKS
from dev.benchmarks.waterfall.recorder import ADMIN, READER, WRITER, Recorder, place_of, role_of
from dev.benchmarks.waterfall.trace import Call
from tests.support.kafka.in_process import Application

T = TypeVar("T")
PORTS = {"admin": (AdminPort, ADMIN), "reader": (ReaderPort, READER), "writer": (WriterPort, WRITER)}


class Counting:
    """Counts port calls, on its own."""

    def __init__(self) -> None:
        self.names: Counter[str] = Counter()

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        self.names[name] += 1
        return effect()


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Records the port calls of the Kafka in memory."""
    found: list[dict[str, Any]] = []
    recorder = Recorder(found.append)
    classes = {"admin": admin.InMemoryAdmin, "reader": reader.InMemoryReader}
    writers = (writer.InMemoryIdempotentWriter, writer.InMemoryTransactionalWriter)
    wrapped = [(cls, port) for port, cls in classes.items()] + [(cls, "writer") for cls in writers]
    for cls, port in wrapped:
        for method in PORTS[port][1]:
            if method in vars(cls):
                monkeypatch.setattr(cls, method, vars(cls)[method])  # so that the end of the test undoes it
                recorder.wrap(cls, method, f"{port}.{method}")
    return found


def application(kafka: InMemoryKafka, counting: Counting) -> Application:
    for topic in ("in", "out"):
        kafka.create_topic(topic)
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").send_to("out")
    return Application(
        on=kafka,
        clock=kafka.clock,
        application_id="app",
        topology=builder.build(),
        interceptor=counting,
        launching=FaultyCluster(kafka, counting),
    )


@pytest.mark.parametrize("port", PORTS)
def test_every_method_of_a_port_is_recorded_when_it_is_no_produce(port: str) -> None:
    protocol, methods = PORTS[port]
    defined = {name for name, member in vars(protocol).items() if callable(member) and name[0] != "_"}
    assert set(methods) == defined


def test_each_call_is_recorded_once_when_a_run_is_made(recorded: list[dict[str, Any]]) -> None:
    kafka, counting = InMemoryKafka(), Counting()
    ours = application(kafka, counting)
    kafka.append("in", b"value", b"key")

    ours.run("run")

    outermost = Counter(each["name"] for each in recorded if each["within"] < 0)
    made = {name: count for name, count in counting.names.items() if name.split(".")[0] in PORTS}
    made.pop("writer.produce")
    assert {name: outermost[name] for name in made} == made
    assert len({each["number"] for each in recorded}) == len(recorded)


def test_call_lies_within_the_one_that_made_it_when_calls_are_nested() -> None:
    found: list[dict[str, Any]] = []
    recorder = Recorder(found.append)

    class Base:
        def commit(self) -> None:
            self.flush()

        def flush(self) -> None: ...

    class Writer(Base):
        def commit(self) -> None:
            super().commit()
            threading.Thread(target=self.flush).start()

    for cls, name in ((Base, "commit"), (Base, "flush"), (Writer, "commit")):
        recorder.wrap(cls, name, name)
    writer = Writer()
    writer.commit()
    writer.flush()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and "flush" in thread.name:
            thread.join()

    (commit,) = [each for each in found if each["name"] == "commit"]
    inner, other, last = sorted(
        (each for each in found if each["name"] == "flush"), key=lambda each: each["begun_ns"]
    )
    assert commit["within"] == other["within"] == last["within"] == -1
    assert inner["within"] == commit["number"]
    assert commit["begun_ns"] <= inner["begun_ns"] <= inner["ended_ns"] <= commit["ended_ns"]
    assert other["thread"] != commit["thread"]


def test_call_is_recorded_when_it_fails() -> None:
    found: list[dict[str, Any]] = []
    recorder = Recorder(found.append)

    class Reader:
        def poll(self) -> None:
            raise ValueError("no answer")

    recorder.wrap(Reader, "poll", "reader.poll")
    for _ in range(2):
        with pytest.raises(ValueError, match="no answer"):
            Reader().poll()
    assert [each["within"] for each in found] == [-1, -1]


def test_place_is_the_function_that_wanted_the_call_when_others_pass_it_on() -> None:
    passing: dict[str, Any] = {"place_of": place_of, "sys": sys, "__name__": "airflow_kstreams.kafka.admin"}
    exec("def asked():\n    return place_of(sys._getframe(0))", passing)
    user: dict[str, Any] = {"asked": passing["asked"], "__name__": "airflow_kstreams.batch.run.begin.freeze"}
    exec("def freeze():\n    return asked()", user)
    assert passing["asked"]() == "kafka/admin.py:asked"
    assert user["freeze"]() == "batch/run/begin/freeze.py:freeze"


@pytest.mark.parametrize(
    ("command", "role"),
    [
        (["python", "-m", "dev.benchmarks.empty_host", "folder"], "operator"),
        (["python", "-m", "airflow_kstreams.streams.topology.loader", "file"], "loader"),
        (["python", "-m", "pyspark.daemon"], "worker"),
        (["python", "app.py", "--run-spec", "{}"], "driver"),
    ],
)
def test_process_is_named_by_what_it_is_for(command: Sequence[str], role: str) -> None:
    assert role_of(command) == role


def record(name: str, begun_ms: int, ended_ms: int, **more: Any) -> dict[str, Any]:
    given = {"task": "capture", "role": "operator", "process": 1, "thread": "MainThread", "within": -1}
    times = {"begun_ns": begun_ms * 1_000_000, "ended_ns": ended_ms * 1_000_000}
    return {**given, "name": name, "place": "", "number": begun_ms, **times, **more}


def test_trace_joins_the_tasks_when_time_lies_between_them() -> None:
    recorded = [
        record("import", 0, 90),
        record("execute", 100, 200),
        record("reader.poll", 110, 120, within=100),
        record("import", 130, 130, within=100),
        record("connect", 105, 106, process=2, role="worker"),
        record("connect", 107, 108, process=3, role="worker"),
        record("execute", 1_000, 1_010, task="finish", process=4),
    ]
    found = trace.joined(recorded, ["capture", "finish"])
    assert [(call.process, call.name, call.at_ms, call.for_ms, call.depth) for call in found] == [
        ("operator", "execute", 0.0, 100.0, 0),
        ("worker 1", "connect", 5.0, 1.0, 0),
        ("worker 2", "connect", 7.0, 1.0, 0),
        ("operator", "reader.poll", 10.0, 10.0, 1),
        ("operator", "execute", 100.0, 10.0, 0),
    ]


def test_trace_is_the_same_when_it_was_kept(tmp_path: Path) -> None:
    calls = [Call(task="capture", process="operator", at_ms=1.5, for_ms=2.0, name="sleep", place="a.py:b")]
    trace.write(tmp_path / "trace", calls)
    assert trace.read(tmp_path / "trace") == calls


@pytest.fixture(scope="module")
def traces() -> dict[str, list[Call]]:
    """The traces that are kept."""
    return {kind: trace.read(small_runs.trace_file(kind)) for kind in small_runs.KINDS}


def test_page_says_what_every_step_protects_when_it_is_in_a_trace(traces: dict[str, list[Call]]) -> None:
    assert not small_runs.unexplained(traces)
    rows = [line.split(" | ") for line in small_runs.PAGE.read_text().splitlines() if line[:3] == "| `"]
    said = {(row[0].strip("|` "), row[1].strip("` ")): row[-1].rstrip("| ") for row in rows}
    assert not [call for calls in traces.values() for call in calls if not said.get(small_runs.step_of(call))]


def test_step_is_missed_when_nothing_says_what_it_protects(traces: dict[str, list[Call]]) -> None:
    more = Call(task="run", process="driver", at_ms=0.0, for_ms=1.0, name="sleep", place="batch/new.py:f")
    assert small_runs.unexplained({"empty": [*traces["empty"], more]}) == ["sleep batch/new.py:f"]


def test_page_is_written_from_the_traces_when_they_change(traces: dict[str, list[Call]]) -> None:
    assert small_runs.PAGE.read_text(encoding="utf-8") == small_runs.page(traces)


def test_trace_has_all_tasks_and_no_paths_of_the_machine(traces: dict[str, list[Call]]) -> None:
    for calls in traces.values():
        assert list(dict.fromkeys(call.task for call in calls)) == list(TASKS)
        assert not [call for call in calls if call.place.startswith("/") or "/" in call.process + call.thread]
