"""``dev/bench scale``: its cases measure what they say, and its bars are judged."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from airflow_kstreams.batch.inspect.conditions import RunFinished
from airflow_kstreams.testing import InMemoryKafka
from dev.benchmarks import scale, scale_case
from dev.benchmarks.scale import BROKER, IN_MEMORY, Case, Cost, Measured


def measured(case: Case, protocol: float = 1.0, memory_mb: float = 10.0) -> Measured:
    cost = Cost(
        capture=protocol, drive=0, sense=0, tasks=0, fence=0, memory_mb=memory_mb, written=1, written_kb=1
    )  # fmt: skip
    return Measured(case=case, cost=cost, machine="a machine")


def cost_of(case: Case) -> Cost:
    kafka = InMemoryKafka()
    return scale_case.cost(case, kafka, kafka.clock)


def test_records_grow_with_tasks_and_not_with_past_runs_when_a_case_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scale_case, "repeats", lambda case: 3)
    few, many, later = (
        cost_of(Case(cluster=IN_MEMORY, tasks=tasks, subtopologies=2, past=past))
        for tasks, past in ((10, 2), (100, 2), (10, 200))
    )

    assert 7 < many.written / few.written < 10
    assert later.written - few.written <= 2
    assert min(few.capture, few.drive, few.sense, few.tasks, few.fence) > 0


def test_case_fails_when_a_sensor_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunFinished, "evaluate", lambda *_: None)

    with pytest.raises(SystemExit, match="a sensor is wrong about 'run-0-0'"):
        cost_of(Case(cluster=IN_MEMORY, tasks=2, subtopologies=1, past=1))


@pytest.mark.parametrize(("tasks", "runs"), [(20, 7), (100, 7), (200, 3), (1_000, 1), (10_000, 1)])
def test_fewer_runs_are_measured_when_each_takes_longer(tasks: int, runs: int) -> None:
    assert scale_case.repeats(Case(cluster=IN_MEMORY, tasks=tasks, subtopologies=1, past=1)) == runs


def test_bars_show_figure_and_limit_when_their_cases_were_measured() -> None:
    sizes = ((100, 1, 10, 0.5, 1), (100, 1, 8_760, 0.6, 1), (10_000, 8, 100_000, 31.0, 299))
    all_of_them = [
        measured(Case(cluster=IN_MEMORY, tasks=tasks, subtopologies=subs, past=past), seconds, memory)
        for tasks, subs, past, seconds, memory in sizes
    ]

    assert scale.laws(all_of_them) == [
        "10,000 tasks after 100,000 runs: 31.0 s (at most 30): missed",
        "10,000 tasks after 100,000 runs: 299 MB (at most 300)",
        "after 8,760 runs against 10: 1.20 times (at most 1.2)",
    ]
    assert scale.laws(all_of_them[:1]) == []


def test_stored_curve_has_every_case_and_meets_every_bar() -> None:
    stored = msgspec.json.decode(scale.FILE.read_bytes(), type=list[Measured])

    assert [each.case for each in stored] == list(scale.CASES)
    assert len(scale.laws(stored)) == 3
    assert not [law for law in scale.laws(stored) if "missed" in law]
    assert {each.case.cluster for each in stored} == {IN_MEMORY, BROKER}


def test_stored_picture_is_that_of_the_stored_figures(tmp_path: Path) -> None:
    stored = msgspec.json.decode(scale.FILE.read_bytes(), type=list[Measured])

    scale.draw(stored, tmp_path / "scale.svg")

    assert (tmp_path / "scale.svg").read_bytes() == scale.PICTURE.read_bytes()


def test_table_has_a_line_for_each_case_and_no_cut_figures() -> None:
    console = Console(width=scale.WIDTH, record=True, file=io.StringIO())

    console.print(scale.table_of([measured(case) for case in scale.CASES]))

    printed = console.export_text()
    assert printed.count(IN_MEMORY) + printed.count(BROKER) == len(scale.CASES)
    assert "…" not in printed
