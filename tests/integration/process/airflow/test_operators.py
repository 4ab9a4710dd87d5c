"""Operators that load an application file, in a process of its own, when a DAG is parsed."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_kstreams.operators.incremental_batch import incremental_batch
from airflow_kstreams.streams.errors import ReportedError

_THREE_PARTS = """
import sys

from airflow_kstreams.streams import KStreamBuilder, serdes

print("loaded by", sys.argv)

def topology():
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("b").through("c").send_to("d")
    builder.stream("a").send_to("b")
    return builder.build()
"""


def _parts(
    application: str, per_subtopology: bool | list[int], application_id: str = "app"
) -> dict[str, Any]:
    with DAG(dag_id="d", schedule=None) as dag:
        incremental_batch(
            group_id="batch",
            application_id=application_id,
            application=application,
            per_subtopology=per_subtopology,
        )
    return dag.task_dict


def test_tasks_follow_the_topology_when_each_subtopology_has_one(tmp_path: Path) -> None:
    file = tmp_path / "application.py"
    file.write_text(_THREE_PARTS)

    tasks = _parts(str(file), True, application_id="{{ params.app }}")

    names = ["capture_stop_offsets", "run_subtopology_2", "run_subtopology_0", "run_subtopology_1"]
    chain = [f"batch.{name}" for name in (*names, "finish_run")]
    assert list(tasks) == chain, (
        "the one that was written last runs first, because others read what it writes"
    )
    for before, after in pairwise(chain):
        assert tasks[before].downstream_task_ids == {after}
    assert [tasks[name].subtopology for name in chain[1:4]] == [2, 0, 1]
    given = _parts("{{ params.file }}", [2, 0, 1])
    assert {name: task.downstream_task_ids for name, task in given.items()} == {
        name: task.downstream_task_ids for name, task in tasks.items()
    }


def test_parsing_fails_with_the_files_own_error_when_it_does_not_load(tmp_path: Path) -> None:
    file = tmp_path / "application.py"
    file.write_text("raise ValueError('surprise')")
    with pytest.raises(ReportedError, match=r"surprise(?s:.)*"):
        _parts(str(file), True)
