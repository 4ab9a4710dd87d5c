"""5,000 records in are shown as 5,000 wherever a run says what it did, with what became of each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from airflow_kstreams import operators
from airflow_kstreams.batch.clock import SystemClock
from airflow_kstreams.batch.report.counts import finished_text
from airflow_kstreams.hooks.airflow_versions import AirflowFailException
from airflow_kstreams.hooks.kafka import KafkaHook
from airflow_kstreams.operators.incremental_batch import FinishRunOperator
from airflow_kstreams.operators.run_topology import RunTopologyOperator
from airflow_kstreams.streams import KStreamBuilder, Topology, TumblingWindow, serdes
from airflow_kstreams.testing import InMemoryKafka, ManualClock, TopologyTestDriver
from tests.support.kafka.in_process import Application
from tests.support.kafka.written_over import leave_out_counts
from tests.unit.cli.test_app import invoke

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

pytestmark = pytest.mark.promise("counts-are-exact", "late-share-fails-before-the-marker")

RECORDS, FILTERED, LATE = 5_000, 301, 7
HOUR = 3_600_000


def _topology() -> Topology:
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.int64())
    kept = builder.stream("orders").filter(lambda key, value: value >= FILTERED)
    windows = kept.group_by(lambda key, value: "all").windowed_by(TumblingWindow(size_ms=HOUR, grace_ms=HOUR))
    windows.count(store="w").to_stream().map(lambda key, count: (key.key, count)).send_to("totals")
    return builder.build()


@pytest.fixture
def kafka() -> InMemoryKafka:
    kafka = InMemoryKafka(clock=ManualClock(now_ms=10 * HOUR))
    for topic in ("orders", "totals"):
        kafka.create_topic(topic)
    for number in range(RECORDS):
        late = number >= RECORDS - LATE
        kafka.append("orders", number.to_bytes(8, "big"), b"k", timestamp_ms=1 if late else 9 * HOUR)
    return kafka


@pytest.fixture
def application(kafka: InMemoryKafka, monkeypatch: pytest.MonkeyPatch) -> Application:
    monkeypatch.setattr(KafkaHook, "cluster", lambda *_, **__: kafka)
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: kafka.clock.now_ms())
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", "kafka://in-memory:9092")
    monkeypatch.setattr("airflow_kstreams.kafka.cluster.KafkaCluster", lambda config, **_: kafka)
    settings = {"autostop.at": "eol", "buffered.records.per.partition": 1}
    return Application(
        on=kafka, clock=kafka.clock, application_id="app", topology=_topology(), settings=settings
    )


def _execute(operator: BaseOperator, run_id: str = "r") -> Any:
    instance = SimpleNamespace(dag_id="d", task_id=operator.task_id, try_number=1, map_index=-1)
    dag_run = SimpleNamespace(run_id=run_id, clear_number=0, data_interval_start=None, data_interval_end=None)
    return operator.execute(cast("Context", {"ti": instance, "dag_run": dag_run}))


def _finish(settings: Mapping[str, object] | None = None) -> Any:
    return _execute(FinishRunOperator(task_id="finish", application_id="app", settings=settings))


def test_airflow_says_what_went_in_when_records_pass_a_repartition_topic(
    application: Application, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    application.tasks(application.begin("r"))
    running = _execute(
        RunTopologyOperator(task_id="run", application_id="app", application="-", spark_conn_id="none")
    )
    result = _finish()

    assert (running["records_in"], running["records_late"], running["finished"]) == (RECORDS, LATE, False)
    assert (result["records_in"], result["records_out"], result["records_late"]) == (RECORDS, 1, LATE)
    between = RECORDS - FILTERED
    assert result["read_per_topic"] == {"orders": RECORDS, "app-w-repartition": between}
    assert result["written_per_topic"] == {"app-w-repartition": between, "totals": 1}
    assert result["left_out"] == {
        "KSTREAM-FILTER-0000000001: filtered": FILTERED,
        "KSTREAM-AGGREGATE-0000000003: late": LATE,
    }
    logged = caplog.text
    assert "KSTREAM-AGGREGATE-0000000003 (windowed count): 7 dropped: late" in _without_lines(logged)
    last = [each.getMessage() for each in caplog.records if each.name.startswith(operators.__name__)]
    assert last[-1] == "5,000 in, 1 out, 301 filtered, 7 late, 0 s"


def test_last_line_says_since_when_nothing_is_new(
    application: Application, kafka: InMemoryKafka, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    operator = RunTopologyOperator(task_id="run", application_id="app", application="-", spark_conn_id="none")
    application.run("earlier")
    for day in (0, 1):
        application.begin(f"empty-{day}")
        _execute(operator, f"empty-{day}")
        shown = caplog.messages[-1]
        _execute(FinishRunOperator(task_id="finish", application_id="app"), f"empty-{day}")
        assert caplog.messages[-1] == shown == f"nothing new since {'1970-01-01 ' * day}10:00 UTC"
        kafka.clock.sleep(24 * 3_600)


def test_one_reader_finishes_a_run_and_says_since_when_nothing_is_new(
    application: Application, kafka: InMemoryKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    application.run("earlier")
    application.begin("empty")
    made, make = Counter[str](), kafka.reader

    def reader(**how: Any) -> Any:
        made["reader"] += 1
        return make(**how)

    monkeypatch.setattr(kafka, "reader", reader)
    _execute(FinishRunOperator(task_id="finish", application_id="app"), "empty")
    assert made["reader"] == 1


def test_drivers_output_says_the_same_when_a_run_is_finished(application: Application) -> None:
    lines = _without_lines(finished_text(application.run("r"))).splitlines()
    assert [line.partition(":")[0] for line in lines[-2:]] == [
        "  subtopology 0, 1 task",
        "  subtopology 1, 1 task",
    ]
    assert lines[:-2] == [
        "run r finished: 5,000 records in, 1 out, 2 tasks",
        "  orders: 5,000 read",
        "  KSTREAM-FILTER-0000000001 (filter): 301 filtered",
        "  KSTREAM-AGGREGATE-0000000003 (windowed count): 7 dropped: late",
        "  app-w-repartition: 4,699 written",
        "  app-w-repartition: 4,699 read",
        "  totals: 1 written",
    ]


def test_status_says_the_same_and_what_is_unknown_when_there_was_no_room(
    application: Application, kafka: InMemoryKafka
) -> None:
    application.run("r")

    shown = [line.split() for line in _without_lines(_status()).splitlines()]
    assert ["5000", "1", "7"] in [line[-3:] for line in shown if line[:1] == ["r"]]
    assert ["orders", "read", "5000"] in shown
    assert ["KSTREAM-AGGREGATE-0000000003", "(windowed", "count)", "dropped:", "late", "7"] in shown

    kafka.append("orders", (0).to_bytes(8, "big"), b"k", timestamp_ms=9 * HOUR)
    application.tasks(application.begin("short"))
    leave_out_counts(kafka, "app")
    application.finish("short")
    shown = [line.split() for line in _status().splitlines()]
    assert [line[-3:] for line in shown if line[:1] == ["short"]] == [["-", "-", "-"]]
    assert "Records of run short" not in _status()


def _without_lines(text: str) -> str:
    return re.sub(r" at test_counts_shown\.py:\d+\)", ")", text)


def _status() -> str:
    result = invoke("status", "--application-id", "app", "--bootstrap-server", "in-memory:9092")
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


@pytest.mark.remedy("finish.judge_late")
def test_run_fails_before_it_is_finished_when_too_many_are_late_and_a_retry_with_warn_finishes_it(
    application: Application, kafka: InMemoryKafka
) -> None:
    application.tasks(application.begin("r"))
    with pytest.raises(
        AirflowFailException, match=r"(?s)dropped 7 records as late.*late\.share\.exceeded=warn"
    ):
        _finish({"max.late.share": "0.001", "late.share.exceeded": "fail"})
    assert "only the finished marker is missing" in " ".join(_status().split())

    result = _finish({"max.late.share": "0.001", "late.share.exceeded": "warn"})
    assert (result["finished"], result["already_finished"], result["records_late"]) == (True, False, LATE)
    assert len(kafka.values("totals")) == 1, "nothing was processed again"


def test_driver_for_tests_says_what_was_left_out() -> None:
    with TopologyTestDriver(_topology(), application_id="app") as driver:
        driver.pipe_input("orders", key="k", value=1, timestamp_ms=1)
        driver.pipe_input("orders", key="k", value=FILTERED, timestamp_ms=9 * HOUR)
        driver.pipe_input("orders", key="k", value=FILTERED, timestamp_ms=1)
        assert driver.counts.read == {"orders": 3, "app-w-repartition": 2}
        assert driver.counts.by_rule == {"filtered": 1, "late": 1}
        driver.restart()
        assert driver.counts.by_rule == {"filtered": 1, "late": 1}, "of the last run, until one has records"
        driver.pipe_input("orders", key="k", value=1, timestamp_ms=1)
        assert (driver.counts.read["orders"], driver.counts.by_rule) == (1, {"filtered": 1})
        with driver.run():
            driver.pipe_input("orders", key="k", value=2, timestamp_ms=9 * HOUR)
        assert (driver.counts.read["orders"], driver.counts.by_rule) == (1, {"filtered": 1})
