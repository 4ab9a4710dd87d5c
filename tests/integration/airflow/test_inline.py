"""A topology in a DAG file, run by Airflow against a real broker and a real Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.filterwarnings("default")


def test_topology_runs_on_spark_when_it_is_a_function_in_the_dag_file(
    run_dag: Callable[..., Any],
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    produce: Callable[..., None],
    consume_all: Callable[..., Any],
) -> None:
    source, sink = create_topic(topic_name("in"), 2), create_topic(topic_name("out"), 1)
    produce(source, [("k", "some words")])
    conf = {"application_id": application_id, "source": source, "sink": sink}

    first = run_dag("inline", conf)
    again = run_dag("inline", conf, again=first)
    produce(source, [("k", "more words")])
    second = run_dag("inline", conf)

    assert first.state == again.state == second.state == "success", first.error_text()
    assert first.results["upper_case"]["finished"]
    assert again.results["upper_case"] == {**first.results["upper_case"], "already_finished": True}
    assert second.results["upper_case"]["records_in"] == 1
    assert [row.value for row in consume_all(sink)] == [b"SOME WORDS", b"MORE WORDS"]
