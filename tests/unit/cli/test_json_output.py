"""JSON as commands print it, whatever a value holds."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from airflow_kstreams.cli.documents.by_command import DOCUMENTS
from airflow_kstreams.cli.json_output import print_json, print_json_list
from dev.reference_pages.json_schemas import json_schemas
from tests.unit.test_printable import HOSTILE


class Document(msgspec.Struct):
    values: list[Any]
    name: str


@pytest.mark.promise("text-of-others-is-printable")
def test_text_is_ascii_and_values_survive_whatever_they_hold(capsys: pytest.CaptureFixture[str]) -> None:
    values = [HOSTILE, {HOSTILE: 1}, None, 1.5]
    print_json(Document(values, HOSTILE))
    text = capsys.readouterr().out
    assert all(line.isprintable() and line.isascii() for line in text.splitlines())
    assert json.loads(text) == {"values": values, "name": HOSTILE}


@pytest.mark.promise("json-fits-its-schema")
def test_number_that_is_none_becomes_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_json(Document([float("nan"), {"x": float("inf")}], "n"))
    assert json.loads(capsys.readouterr().out)["values"] == [None, {"x": None}]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_list_is_printed_a_line_each_and_the_rest_behind_it(
    capsys: pytest.CaptureFixture[str], count: int
) -> None:
    print_json_list("values", range(count), lambda: Document([], "n"))
    text = capsys.readouterr().out
    assert json.loads(text) == {"values": [*range(count)], "name": "n"}
    assert len(text.splitlines()) == (4 + 1 + count if count else 4)


def test_every_field_of_a_schema_is_described() -> None:
    silent = []
    for file, text in json_schemas().items():
        for name, definition in json.loads(text)["$defs"].items():
            for field, schema in definition.get("properties", {}).items():
                if not schema.get("description"):
                    silent.append(f"{file}: {name}.{field}")
    assert not silent
    assert len(DOCUMENTS) == len(json_schemas())
