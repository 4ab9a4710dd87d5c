"""Notes the calls of the process that it is started in: when each began and ended, in which thread, inside
which other call, and which function of the package asked for it.

:func:`start` runs before anything else in a process, and imports next to nothing, so that the process
imports the package when it would without it. It wraps what a module defines when the module is imported.

Recorded are the calls of the ports to Kafka, but ``produce``, which comes once a record; the first contact of
each client; the package's own sleeps and waits; processes that start; its imports; and a few functions that
contain all the rest. A method that calls the same method of its base class is one call.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any

#: The folder that the records are written to; without it nothing is recorded.
FOLDER_VARIABLE = "KSTREAMS_WATERFALL"
#: The name of the Airflow task that this process works for.
TASK_VARIABLE = "KSTREAMS_WATERFALL_TASK"
_PACKAGE = "airflow_kstreams"
#: Modules that only pass a call on: the place of a call is in the module that uses them.
_PASSING = tuple(
    f"{_PACKAGE}.{name}"
    for name in (
        "kafka.",
        "batch.clock",
        "batch.protocol.logs.log_read",
        "batch.run.coordinator_session",
        "streams.bounded_read",
    )
)
#: Packages whose imports are recorded: those that take long.
_IMPORTED = (_PACKAGE, "airflow.providers", "confluent_kafka", "pandas", "pyarrow", "pyspark")

ADMIN = (
    *("topic_names", "describe_topics", "topic_configs", "broker_configs", "broker_addresses", "allowed"),
    *("create_topics", "create_partitions", "alter_topic", "delete_topics", "end_offsets", "end_epochs"),
    *("start_offsets", "offsets_for_times", "group_ids", "group_members", "delete_records", "close"),
)
READER = ("assign", "poll", "pause", "resume", "committed", "commit", "close")
WRITER = ("init_transactions", "begin", "flush", "send_offsets", "commit", "abort", "close")


def _ports(port: str, cls: str, methods: Sequence[str]) -> list[tuple[str, str]]:
    return [(f"{cls}.{method}", f"{port}.{method}") for method in methods]


#: Module -> what it defines, and the name of a call of that.
_CALLS: dict[str, list[tuple[str, str]]] = {
    f"{_PACKAGE}.{module}": calls
    for module, calls in {
        "kafka.admin": _ports("admin", "ClusterAdmin", ADMIN),
        "kafka.admin_requests": [("AdminRequests._made", "admin.new")],
        "kafka.reader": [
            *_ports("reader", "BoundedReader", READER),
            ("BoundedReader.__init__", "reader.new"),
        ],
        "kafka.writer": [
            ("IdempotentWriter.__init__", "writer.new"),
            *_ports("writer", "IdempotentWriter", ("flush", "send_offsets", "commit", "abort", "close")),
            ("TransactionalWriter.__init__", "writer.new"),
            *_ports(
                "writer",
                "TransactionalWriter",
                ("init_transactions", "begin", "send_offsets", "commit", "abort", "close"),
            ),
        ],
        "kafka.connection": [("await_connection", "connect"), ("FirstContact._try", "first.contact")],
        "operators.incremental_batch": [
            ("CaptureStopOffsetsOperator.execute", "execute"),
            ("FinishRunOperator.execute", "execute"),
        ],
        "operators.run_topology": [("RunTopologyOperator.execute", "execute")],
        "hooks.spark": [("TopologySubmitHook.submit", "spark-submit")],
        "batch.run.coordinator": [("Coordinator.begin", "begin"), ("Coordinator.finish", "finish")],
        "batch.task.runner": [("TaskRunner.run", "task")],
        "spark.driver.driver": [("Driver.run", "driver")],
        "spark.driver.executors": [("SparkExecutors.launch", "spark.job")],
        "spark.driver.spark_session": [("open_session", "spark.session")],
    }.items()
} | {"subprocess": [("Popen.__init__", "process.start")]}
#: The same for waits of all programs, of which the package's own are recorded.
_WAITS: dict[str, list[tuple[str, str]]] = {
    "time": [("sleep", "sleep")],
    "threading": [("Event.wait", "wait"), ("Thread.join", "thread.join")],
    "subprocess": [("Popen.communicate", "process.wait")],
    "concurrent.futures._base": [("wait", "threads.wait")],
}


class Recorder:
    """Records calls.

    :param write: takes each record, a JSON object, when its call has ended.
    """

    def __init__(self, write: Callable[[dict[str, Any]], None]) -> None:
        self._write = write
        self._numbers = itertools.count()
        self._here = threading.local()

    @contextmanager
    def call(self, name: str, frame: FrameType | None) -> Iterator[None]:
        """Record the block as a call, unless it is a part of one of the same name.

        :param frame: the frame that calls.
        """
        open_calls = self._open_calls()
        if open_calls and open_calls[-1][1] == name:
            yield
            return
        number, within = next(self._numbers), open_calls[-1][0] if open_calls else -1
        place = place_of(frame)
        open_calls.append((number, name))
        begun_ns = time.monotonic_ns()
        try:
            yield
        finally:
            ended_ns = time.monotonic_ns()
            open_calls.pop()
            self._write(
                {
                    "thread": threading.current_thread().name,
                    "number": number,
                    "within": within,
                    "name": name,
                    "place": place,
                    "begun_ns": begun_ns,
                    "ended_ns": ended_ns,
                }
            )

    def importing(self) -> bool:
        """Return whether this thread is in a recorded import."""
        open_calls = self._open_calls()
        return bool(open_calls) and open_calls[-1][1] == "import"

    def wrap(self, owner: Any, attribute: str, name: str, *, only_package: bool = False) -> None:
        """Record the calls of a function.

        :param owner: class or module that defines the function.
        :param only_package: whether only those that the package itself makes count.
        """
        function = vars(owner)[attribute]

        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            if only_package and not _module(frame).startswith(f"{_PACKAGE}."):
                return function(*args, **kwargs)
            with self.call(name, frame):
                return function(*args, **kwargs)

        setattr(owner, attribute, recorded)

    def _open_calls(self) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = self._here.__dict__.setdefault("calls", [])
        return found


def place_of(frame: FrameType | None) -> str:
    """Return the file and the function of the package from which a call comes; empty if there is none."""
    passing = ""
    while frame is not None:
        module = _module(frame)
        if module.startswith(f"{_PACKAGE}."):
            function = frame.f_code.co_qualname.replace(".<locals>", "")
            place = f"{module.removeprefix(f'{_PACKAGE}.').replace('.', '/')}.py:{function}"
            if not module.startswith(_PASSING):
                return place
            passing = passing or place
        frame = frame.f_back
    return passing


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


class _Imports(importlib.abc.MetaPathFinder):
    """Wraps what a module defines when it has been imported, and records the imports that take long."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        wrapped = fullname in _CALLS or fullname in _WAITS
        counted = fullname.startswith(_IMPORTED)
        if not wrapped and not counted:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            if counted and not self._recorder.importing():
                with self._recorder.call("import", sys._getframe(1)):
                    execute(module)
            else:
                execute(module)
            if wrapped:
                wrap_module(self._recorder, module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def wrap_module(recorder: Recorder, module: ModuleType) -> None:
    """Record the calls of what a module defines."""
    for calls, only_package in ((_CALLS, False), (_WAITS, True)):
        for path, name in calls.get(module.__name__, ()):
            *owners, attribute = path.split(".")
            owner: Any = module
            for each in owners:
                owner = vars(owner)[each]
            recorder.wrap(owner, attribute, name, only_package=only_package)


def start() -> None:
    """Record the calls of this process, if the environment asks for it."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return
    recorder = Recorder(_Files(folder).write)
    for name in (*_CALLS, *_WAITS):
        if name in sys.modules:
            wrap_module(recorder, sys.modules[name])
    sys.meta_path.insert(0, _Imports(recorder))


class _Files:
    """Writes records, in a file of each process: a worker of Spark is forked from one that has started."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._task = os.environ.get(TASK_VARIABLE, "")
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._renew_lock)

    def write(self, record: dict[str, Any]) -> None:
        process = os.getpid()
        named = {"task": self._task, "role": role_of(sys.orig_argv), "process": process, **record}
        with self._lock, open(f"{self._folder}/{process}.jsonl", "a", encoding="utf-8") as file:  # noqa: PTH123
            file.write(json.dumps(named) + "\n")

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()


def role_of(command: Sequence[str]) -> str:
    """Return what a process is for.

    :param command: its command line.
    """
    words = " ".join(command)
    for part, role in (
        ("dev.benchmarks.empty_host", "operator"),
        (f"{_PACKAGE}.streams.topology.loader", "loader"),
        ("pyspark.daemon", "worker"),
        ("--run-spec", "driver"),
    ):
        if part in words:
            return role
    return "other"
