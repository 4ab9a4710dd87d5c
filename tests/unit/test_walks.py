"""The walks of docs/internals/walks.md hold: each file is needed, and few modules stand beside them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import airflow_kstreams
from airflow_kstreams.batch.task.loop import TaskLoop
from airflow_kstreams.streams import KStreamBuilder, Topology, serdes
from airflow_kstreams.testing import InMemoryKafka, ManualClock
from tests.support.kafka.in_process import Application

if TYPE_CHECKING:
    import pytest

PACKAGE = Path(airflow_kstreams.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs/internals/walks.md").read_text(encoding="utf-8")
#: Files in which no line is executed where Kafka is in memory, and Airflow and Spark are left out.
OUTSIDE = ("kafka/", "spark/", "operators/", "hooks/")


def walk(title: str) -> tuple[list[str], int]:
    """The files of a walk's table, and the number of modules that the page says are executed."""
    _, text = PAGE.split(f"## {title}\n")
    text = text.split("\n## ")[0]
    (executed,) = re.findall(r"functions of (\d+) modules", text)
    return re.findall(r"^\| +\d+ \| `([\w/.]+)`", text, re.MULTILINE), int(executed)


@contextmanager
def executed(into: set[str]) -> Iterator[None]:
    """Collect the package's modules of which a function is executed; the Kafka in memory is none of a run."""

    def note(frame: FrameType, event: str, _: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and frame.f_code.co_name != "<module>" and file.is_relative_to(PACKAGE):
            into.add(str(file.relative_to(PACKAGE)))

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def second_run(topology: Topology) -> Application:
    clock = ManualClock(now_ms=1_700_000_000_000)
    kafka = InMemoryKafka(clock=clock)
    for topic in ("in", "out"):
        kafka.create_topic(topic)
    application = Application(on=kafka, clock=clock, application_id="app", topology=topology)
    kafka.append("in", b"value", b"key")
    application.run("one", (0, 1))
    kafka.append("in", b"value", b"key")
    return application


def builder() -> KStreamBuilder[str, str]:
    return KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())


def of_a_run(modules: set[str]) -> set[str]:
    return {module for module in modules if not module.startswith("testing/")}


def test_a_record_passes_the_files_of_its_walk_when_it_goes_to_its_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = builder()
    kept = made.stream("in").filter(lambda key, value: True).group_by_key().count(store="counts")
    kept.to_stream().send_to("out", value_serde=serdes.int64())
    application = second_run(made.build())
    task, loop = set[str](), set[str]()
    run = TaskLoop.run

    def traced(self: TaskLoop, *args: object) -> object:
        task.update(modules)
        with executed(loop):
            return run(self, *args)  # type: ignore[arg-type]

    modules = set[str]()
    monkeypatch.setattr(TaskLoop, "run", traced)
    slice_ = application.begin("two", (0, 2))
    with executed(modules):
        application.tasks(slice_)
    files, most = walk("One record, from Kafka to its commit")

    assert len(files) <= 15
    assert [file for file in files if not file.startswith(OUTSIDE) and file not in task | loop] == []
    assert len(of_a_run(loop)) <= most


def test_a_run_passes_the_files_of_its_walk_when_it_begins_and_finishes() -> None:
    made = builder()
    made.stream("in").send_to("out")
    application = second_run(made.build())
    modules = set[str]()
    with executed(modules):
        slice_ = application.begin("two", (0, 2))
        with closing(application.coordinator()) as coordinator:
            coordinator.unfinished(slice_, 0)
    application.tasks(slice_)
    with executed(modules):
        application.finish("two")
    files, most = walk("A run, from begin to finish")

    assert len(files) <= 24
    assert [file for file in files if not file.startswith(OUTSIDE) and file not in modules] == []
    assert len(of_a_run(modules)) <= most
