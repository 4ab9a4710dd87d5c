"""The test driver says when one branch changes what the branches behind it are given."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import KStream, KStreamBuilder, serdes
from airflow_kstreams.testing import TopologyTestDriver

pytestmark = pytest.mark.promise("stores-are-not-changed-in-place")


def _edited(value: Any) -> Any:
    value["n"] += 1
    return value


def _pure(value: Any) -> Any:
    return {**value, "n": value["n"] + 1}


def _said(build: Callable[[KStream[Any, Any]], None]) -> tuple[list[str], dict[str, list[Any]]]:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    build(builder.stream("in"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with TopologyTestDriver(builder.build(), application_id="app") as driver:
            driver.pipe_records("in", [("a", {"n": 1, "seen": []}, 1), ("a", {"n": 5, "seen": []}, 2)])
            found = {
                topic: [each.value["n"] for each in driver.read_output(topic)] for topic in ("one", "two")
            }
    return [str(each.message) for each in caught if each.category is UserWarning], found


def test_branch_that_changes_what_another_one_is_given_is_named_once() -> None:
    def build(stream: KStream[Any, Any]) -> None:
        stream.map_values(_edited, name="edits").send_to("one")
        stream.map_values(lambda value: value, name="passes").send_to("two")

    said, found = _said(build)
    assert found == {"one": [2, 6], "two": [2, 6]}, "as in Kafka Streams"
    assert len(said) == 1
    assert "branch that begins with node 'edits' changes a value of node" in said[0]


def test_branch_of_a_table_is_named() -> None:
    def build(stream: KStream[Any, Any]) -> None:
        table = stream.group_by_key().reduce(lambda one, other: other, store="s").to_stream()
        table.map_values(_edited, name="edits").send_to("one")
        table.send_to("two")

    said, found = _said(build)
    assert found["one"] == found["two"]
    assert len(said) == 1
    assert "begins with node 'edits'" in said[0]


def test_nothing_is_said_of_the_last_branch_and_of_copies() -> None:
    def build(stream: KStream[Any, Any]) -> None:
        stream.map_values(_pure).send_to("one")
        stream.map_values(_edited).send_to("two")

    assert _said(build) == ([], {"one": [2, 6], "two": [2, 6]})
