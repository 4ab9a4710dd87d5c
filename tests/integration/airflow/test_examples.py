"""The example DAGs, each dag run by ``dag.test()``, on real flights, a real broker and a real Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.kafka.cluster import KafkaCluster
from dev.airport_service import AirportService
from dev.flight_demo import oracle
from dev.flight_demo.data import Stretch, records
from dev.flight_demo.publisher import TOPICS, publish
from tests.conftest import Row

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(400)]

HOURLY, REPORT = "flight_delays_hourly", "flight_delays_report"
ARRIVALS, FLIGHTS = "flight_arrivals_hourly", "flight_arrivals"
APPLICATION_ID = "flight-delays"
CAPTURE, RUN, FINISH = (
    f"flight_delays.{task}" for task in ("capture_stop_offsets", "run_topology", "finish_run")
)


def test_results_are_right_when_increments_a_failed_run_a_report_and_a_reset_follow_each_other(
    kafka: str,
    run_dag: Callable[..., Any],
    create_topic: Callable[..., str],
    consume_all: Callable[..., list[Any]],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for topic in TOPICS:
        create_topic(topic, 2)

    def publish_day(day: int) -> None:
        of_day = records(Stretch(first_day=day - 1, end_day=day))
        publish(kafka, of_day, on_progress=lambda _: None)

    def differences(days: int) -> tuple[str, ...]:
        return oracle.judge(kafka, days).differences

    # Two increments.
    for day in (1, 2):
        publish_day(day)
        done = run_dag(HOURLY, {})
        assert done.state == "success", done.results
        assert done.results[FINISH]["finished"]
        assert differences(day) == ()

    # The third fails once its end is frozen, more arrives, and it is cleared.
    publish_day(3)
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    failed = run_dag(HOURLY, {})
    assert failed.state == "failed"
    assert failed.tasks == {CAPTURE: "success", RUN: "failed", FINISH: "upstream_failed"}
    assert differences(2) == (), "nothing of the third day is out"
    publish_day(4)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2,4]"}')
    cleared = run_dag(HOURLY, {}, again=failed)
    assert (cleared.run_id, cleared.state) == (failed.run_id, "success"), cleared.results
    assert cleared.results[FINISH]["record_span"] == failed.results[CAPTURE]["record_span"]
    assert differences(3) == (), "the day that came later belongs to the next run"

    # The report of that run, and of the latest, which is the same.
    capfd.readouterr()
    for run_id in (failed.run_id, "latest"):
        report = run_dag(REPORT, {"run_id": run_id})
        assert report.state == "success"
        assert report.results["wait_for_run"]["run_id"] == failed.run_id
        assert report.results["print_carrier_table"] == oracle.judge(kafka, 3).carriers
        assert f"After run {failed.run_id}: " in capfd.readouterr().out

    # Reset: a run from the first record on gives every row again, from empty state, and the fourth day.
    before = len(consume_all("carrier-delays"))
    inputs = "flights, weather, airlines"
    reset = run_dag("reset", {"application_id": APPLICATION_ID, "topics": inputs})
    assert reset.state == "success"
    taken_back = read_ledger(KafkaCluster({"bootstrap.servers": kafka}), APPLICATION_ID).taken_back
    assert len(taken_back) == 3
    whole = run_dag(HOURLY, {})
    assert whole.state == "success", whole.results
    assert whole.results[FINISH]["record_span"] == sum(len(consume_all(topic)) for topic in TOPICS[:3])
    assert len(consume_all("carrier-delays")) > before
    assert differences(4) == ()


@pytest.mark.prove  # the first dag run waits for its whole budget
def test_flights_to_airports_that_were_down_arrive_with_a_later_dag_run(
    kafka: str,
    run_dag: Callable[..., Any],
    create_topic: Callable[..., str],
    produce: Callable[..., None],
    consume_all: Callable[..., list[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for topic in ("departures", "departures-by-carrier", "arrivals"):
        create_topic(topic)
    day = [each for each in records(Stretch(first_day=0, end_day=1)) if each.topic == "flights"]
    produce(
        "departures", [Row(key=each.key, value=each.value, timestamp_ms=each.timestamp_ms) for each in day]
    )
    with AirportService(delay_ms=1, down={"IAH"}) as service:
        monkeypatch.setenv("AIRPORT_SERVICE_URL", service.url)
        first = run_dag(ARRIVALS, {})
        assert first.state == "success", first.results
        waiting = len(day) - len(service.announced)
        assert waiting
        assert first.results[f"{FLIGHTS}.finish_run"]["state"] == f"completed_with_parked({waiting})"
        service.set_down(())
        second = run_dag(ARRIVALS, {})
        assert second.state == "success", second.results
        assert second.results[f"{FLIGHTS}.finish_run"]["state"] == "completed"
        assert len(service.announced) == len(day)
    assert len(consume_all("arrivals")) == len(day)
