"""The task group, run by Airflow against a real broker and a real Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.airflow.word_totals import WordTotals, totals

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.promise("assets-after-the-marker")]

RunDag = Callable[..., Any]

LOCAL_SPARK = json.dumps({"conn_type": "spark", "host": "local[2,4]"})
NO_SPARK = json.dumps({"conn_type": "spark", "host": "no-such-master"})


@pytest.mark.prove  # dev/test has it on PostgreSQL, in test_examples.py, and an empty run in test_run.py
def test_each_run_adds_only_what_is_new_when_data_keeps_arriving(
    words: WordTotals, run_dag: RunDag, consume_all: Callable[..., Any]
) -> None:
    runs = []
    for number in (500, 1):
        words.publish(number)
        done = run_dag("increments", words.conf)
        assert done.state == "success", done.error_text()
        assert totals(consume_all(words.sink)) == words.expected
        runs.append(done)

    spans = [done.results["batch.capture_stop_offsets"]["record_span"] for done in runs]
    assert spans == [500, 1]
    for done, number in zip(runs, spans, strict=True):
        finish = done.results["batch.finish_run"]
        assert finish["finished"]
        assert finish["run_id"] == done.run_id
        assert finish["records_per_topic"] == {words.source: number}
        assert finish["records_in"] == number, "what passes the repartition topic is not counted again"
        assert len(json.dumps(done.results["batch.run_topology"])) < 4096

    empty = run_dag("increments", words.conf)

    assert empty.state == "success", empty.error_text()
    assert empty.results["batch.run_topology"]["empty"]
    assert empty.results["batch.run_topology"]["generation"] == 0, (
        "a driver has taken the slice: Spark was started"
    )
    assert empty.results["batch.finish_run"]["records_in"] == 0
    assert totals(consume_all(words.sink)) == words.expected


def _asset_events(run_id: str) -> list[dict[str, Any]]:
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.query(AssetEvent).filter_by(source_run_id=run_id).order_by(AssetEvent.id)
        return [dict(event.extra) for event in found]


@pytest.mark.prove  # dev/test clears a finished run on PostgreSQL
def test_nothing_is_processed_and_its_asset_event_is_the_same_when_a_finished_run_is_cleared(
    words: WordTotals, run_dag: RunDag, consume_all: Callable[..., Any]
) -> None:
    words.publish(50)
    first = run_dag("increments", words.conf)
    assert first.state == "success", first.error_text()
    before = consume_all(words.sink)
    words.publish(50)

    second = run_dag("increments", words.conf, again=first)

    assert second.run_id == first.run_id
    assert second.state == "success", second.error_text()
    finished = first.results["batch.finish_run"]
    assert second.results["batch.finish_run"] == {**finished, "already_finished": True}
    assert all(result["already_finished"] for result in second.results.values())
    assert consume_all(words.sink) == before
    event, repeated = _asset_events(first.run_id)
    assert event == repeated
    assert (event["application_id"], event["run_id"]) == (words.application_id, first.run_id)
    spans = event["offsets"][words.source].values()
    assert sum(stop - start for start, stop in spans) == 50


@pytest.mark.prove  # dev/test clears a failed run of the example DAG (test_examples.py)
def test_run_resumes_with_its_stop_offsets_when_it_failed_and_more_data_arrived(
    words: WordTotals, run_dag: RunDag, consume_all: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    words.publish(100)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", NO_SPARK)
    failed = run_dag("increments", words.conf)
    assert failed.tasks["batch.capture_stop_offsets"] == "success"
    assert failed.tasks["batch.run_topology"] == "failed"
    assert _asset_events(failed.run_id) == [], "only a finished run is announced"
    expected = dict(words.expected)
    words.publish(70)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", LOCAL_SPARK)

    resumed = run_dag("increments", words.conf, again=failed)

    assert resumed.state == "success", resumed.error_text()
    assert resumed.results["batch.finish_run"]["record_span"] == 100
    assert totals(consume_all(words.sink)) == expected


@pytest.mark.prove  # dev/test has it without Airflow (integration/spark/test_run.py)
def test_next_run_finishes_the_unfinished_one_first_when_it_was_given_up(
    words: WordTotals, run_dag: RunDag, consume_all: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    words.publish(40)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", NO_SPARK)
    given_up = run_dag("increments", words.conf)
    words.publish(30)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", LOCAL_SPARK)

    following = run_dag("increments", words.conf)

    assert following.state == "success", following.error_text()
    assert following.results["batch.capture_stop_offsets"]["run_id"] == given_up.run_id
    assert following.results["batch.finish_run"]["record_span"] == 30
    assert totals(consume_all(words.sink)) == words.expected


@pytest.mark.prove  # dev/test runs groups without Airflow (integration/kafka)
def test_tasks_follow_the_groups_when_the_application_has_a_partition_grouper(
    words: WordTotals, run_dag: RunDag, consume_all: Callable[..., Any]
) -> None:
    text = words.file.read_text(encoding="utf-8").replace("import ", "import FixedGroups, ", 1)
    text = text.replace("KStreamBuilder()", "KStreamBuilder(partition_grouper=FixedGroups(2))")
    words.file.write_text(text, encoding="utf-8")
    words.publish(200)

    first = run_dag("increments", words.conf)

    assert first.state == "success", first.error_text()
    assert totals(consume_all(words.sink)) == words.expected
    assert len(consume_all(f"{words.application_id}-totals-changelog")) > 0
    words.file.write_text(text.replace("FixedGroups(2)", "FixedGroups(1)"), encoding="utf-8")
    words.publish(10)

    refused = run_dag("increments", words.conf)

    assert refused.tasks["batch.capture_stop_offsets"] == "failed"
    assert "would change their group and leave their state behind" in str(refused.errors[0][1])
    words.file.write_text(text, encoding="utf-8")

    second = run_dag("increments", words.conf, again=refused)

    assert second.state == "success", second.error_text()
    assert totals(consume_all(words.sink)) == words.expected
