"""A table in the hash, the plan and the documents of a topology."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_kstreams.batch.protocol.needed_permissions import run_permissions, watch_permissions
from airflow_kstreams.cli.documents.topology_document import topology_document
from airflow_kstreams.streams.naming.permissions import Operation
from airflow_kstreams.streams.settings import ApplicationSettings
from tests.support.tables.beside_topics import TABLE, topology


@pytest.mark.parametrize(
    "options",
    [
        {"table": "lake.others"},
        {"partition_by": ["text"]},
        {"provenance": True},
        {"timestamp_column": "at"},
        {"mode": "upsert", "key_column": "id", "key_type": str, "partition_by": ["bucket(4, id)"]},
    ],
)
def test_hash_is_another_one_when_rows_or_their_table_are(options: dict[str, Any]) -> None:
    assert topology(**options).topology_hash() != topology().topology_hash()


@pytest.mark.parametrize("options", [{"create": False}, {"merge": False}, {"expire_snapshots": 9}])
def test_hash_stays_when_only_the_care_of_the_table_changes(options: dict[str, Any]) -> None:
    assert topology(**options).topology_hash() == topology().topology_hash()


def test_plan_has_the_table_and_a_last_subtopology_that_lands_its_files() -> None:
    plan = topology().plan("app")
    assert [table.name for table in plan.tables] == [TABLE]
    assert [(sub.lands, sub.tables, sub.sources) for sub in plan.subtopologies] == [
        (False, (TABLE,), ("in",)),
        (True, (), ("app-table-files",)),
    ]
    assert plan.outputs == ("out",)


def test_document_has_a_sink_with_its_table() -> None:
    (part,) = topology_document(topology(), "app").subtopologies
    found = {node.name: (node.kind, node.table, [*node.topics]) for node in part.nodes}
    assert found == {
        "lines": ("source", None, ["in"]),
        "to-topic": ("sink", None, ["out"]),
        "to-table": ("sink", TABLE, []),
    }


def test_runs_need_to_create_read_write_and_empty_the_list_of_files() -> None:
    needed = run_permissions(topology().plan("app"), ApplicationSettings.parse("app", {}))
    of_list = {each.operation.value: each.reason for each in needed if each.name == "app-table-files"}
    assert {*of_list} == {"Create", "Read", "Write", "Delete", "DescribeConfigs"}
    (watched,) = (
        each
        for each in watch_permissions(topology().plan("app"))
        if each.name == "app-table-files" and each.operation is Operation.READ
    )
    assert watched.without == "status does not show them"
    assert of_list["Write"] == "list of the files for tables"
    assert of_list["Delete"] == "list of the files for tables, emptied after each run"
