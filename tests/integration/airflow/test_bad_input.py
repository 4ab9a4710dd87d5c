"""Wrong settings, files and clusters: each fails with one line of cause and one of what to do, and loses
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.hooks.airflow_versions import AirflowFailException
from airflow_kstreams.kafka.cluster import KafkaCluster
from airflow_kstreams.streams.errors import KafkaClientError, ReportedError
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.streams.topology.loader import load_topology
from tests.integration.airflow.word_totals import WordTotals, totals
from tests.support.airflow.task_log import unbroken

pytestmark = pytest.mark.filterwarnings("default")

RunDag = Callable[..., Any]
Connections = Callable[..., None]

_CAPTURE = "batch.capture_stop_offsets"


def _only_error(outcome: Any, task_id: str) -> BaseException:
    assert outcome.state == "failed"
    assert [name for name, _ in outcome.errors] == [task_id], outcome.error_text()
    error: BaseException = outcome.errors[0][1]
    cause, remedy = unbroken(str(error)).split("\n")
    assert cause
    assert remedy.startswith("What to do: ")
    return error


def _resume(run_dag: RunDag, words: WordTotals, outcome: Any, consume_all: Callable[..., Any]) -> None:
    """The mended run, cleared, must give all there is."""
    again = run_dag("increments", words.conf, again=outcome)
    assert again.state == "success", again.error_text()
    assert totals(consume_all(words.sink)) == words.expected


@pytest.mark.prove  # dev/test shows how one error comes out of a DAG; what each says, without one
def test_broker_is_named_and_a_retry_allowed_when_it_cannot_be_reached(
    words: WordTotals, run_dag: RunDag, connections: Connections, free_port: int
) -> None:
    connections(**{"bootstrap.servers": f"127.0.0.1:{free_port}"})

    outcome = run_dag("increments", words.conf)

    error = _only_error(outcome, _CAPTURE)
    assert isinstance(error, KafkaClientError)
    assert f"unreachable at 127.0.0.1:{free_port}" in unbroken(str(error))


def test_every_try_is_made_when_an_error_may_pass(
    words: WordTotals, run_dag: RunDag, connections: Connections, free_port: int
) -> None:
    connections(**{"bootstrap.servers": f"127.0.0.1:{free_port}"})

    outcome = run_dag("increments_retried", words.conf)

    assert outcome.tries[_CAPTURE] == 3
    assert len(outcome.errors) == 3


def test_run_fails_at_once_and_hides_the_password_when_credentials_are_wrong(
    words: WordTotals,
    run_dag: RunDag,
    connections: Connections,
    sasl_bootstrap: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    connections(
        **{
            "bootstrap.servers": sasl_bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "not-her-secret",
        }
    )

    outcome = run_dag("increments_retried", words.conf)

    error = _only_error(outcome, _CAPTURE)
    assert isinstance(error, AirflowFailException)
    assert "refused the credentials" in unbroken(str(error))
    assert "sasl.password" in unbroken(str(error))
    written = capfd.readouterr()
    assert "not-her-secret" not in written.out + written.err


@pytest.mark.prove  # dev/test looks for many secrets, in runs over TLS with a login (test_secrets.py)
def test_run_works_and_hides_the_password_when_credentials_are_right(
    words: WordTotals,
    run_dag: RunDag,
    connections: Connections,
    sasl_bootstrap: str,
    consume_all: Callable[..., Any],
    capfd: pytest.CaptureFixture[str],
) -> None:
    connections(
        **{
            "bootstrap.servers": sasl_bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "alice-secret",
        }
    )
    words.publish(20)

    outcome = run_dag("increments", words.conf)

    assert outcome.state == "success", outcome.error_text()
    assert totals(consume_all(words.sink)) == words.expected
    written = capfd.readouterr()
    assert "alice-secret" not in written.out + written.err
    assert "alice-secret" not in json.dumps(outcome.results)


@pytest.mark.prove  # dev/test shows how one error comes out of a DAG; what each says, without one
def test_topic_is_named_and_the_run_can_go_on_when_an_input_was_missing(
    words: WordTotals, run_dag: RunDag, create_topic: Callable[..., str], consume_all: Callable[..., Any]
) -> None:
    missing = f"{words.source}-missing"
    words.file.write_text(
        words.file.read_text(encoding="utf-8").replace(words.source, missing), encoding="utf-8"
    )

    outcome = run_dag("increments_retried", words.conf)

    error = outcome.errors[0][1]
    assert missing in unbroken(str(error))
    assert outcome.tasks[_CAPTURE] == "failed"
    create_topic(missing, 3)
    words.source = missing
    words.publish(10)
    _resume(run_dag, words, outcome, consume_all)


@pytest.mark.prove  # dev/test shows how one error comes out of a DAG; what each says, without one
def test_users_line_is_named_and_no_retry_made_when_the_application_file_does_not_import(
    words: WordTotals, run_dag: RunDag, consume_all: Callable[..., Any]
) -> None:
    good = words.file.read_text(encoding="utf-8")
    words.file.write_text("import nothing_of_this_name\n" + good, encoding="utf-8")
    words.publish(10)

    outcome = run_dag("increments_retried", words.conf)

    error = _only_error(outcome, _CAPTURE)
    assert isinstance(error, AirflowFailException)
    assert "nothing_of_this_name" in unbroken(str(error))
    assert f"{words.file}:1" in unbroken(str(error))
    words.file.write_text(good, encoding="utf-8")
    _resume(run_dag, words, outcome, consume_all)


@pytest.mark.parametrize(
    ("text", "within_s", "found"),
    [
        ("def topology():\n    import time\n    time.sleep(600)\n", 1.5, "did not load within"),
        # The process has to come to its end first, on a busy machine, too.
        ("import os\nos._exit(7)\n", 60.0, "ended the process with code 7"),
    ],
)
def test_cause_is_named_when_loading_the_application_file_never_answers(
    text: str,
    within_s: float,
    found: str,
    words: WordTotals,
    run_dag: RunDag,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("airflow_kstreams.operators.work.application_work.LOAD_TIMEOUT_SECONDS", within_s)
    words.file.write_text(text, encoding="utf-8")

    error = _only_error(run_dag("increments", words.conf), _CAPTURE)

    assert isinstance(error, AirflowFailException)
    assert found in unbroken(str(error))


def test_nearest_name_is_given_and_no_retry_made_when_a_setting_is_unknown(
    words: WordTotals, run_dag: RunDag
) -> None:
    error = _only_error(run_dag("increments_misspelt", words.conf), _CAPTURE)

    assert isinstance(error, AirflowFailException)
    assert "'commit.intervall.ms'" in unbroken(str(error))
    assert "'commit.interval.ms'" in unbroken(str(error))


@pytest.mark.prove  # dev/test has it among other failures (test_what_people_read.py)
def test_record_is_named_and_the_slice_kept_when_it_cannot_be_decoded(
    words: WordTotals, run_dag: RunDag, produce: Callable[..., None], consume_all: Callable[..., Any]
) -> None:
    words.publish(5)
    produce(words.source, [{"key": "key", "value": b"\xff not json", "partition": 0}])
    bad = max(row.offset for row in consume_all(words.source) if row.partition == 0)

    outcome = run_dag("increments", words.conf)

    error = outcome.errors[0][1]
    assert isinstance(error, ReportedError)
    assert "RecordError" in unbroken(str(error))
    assert f"{words.source}-0@{bad}" in unbroken(str(error))
    assert outcome.tasks["batch.run_topology"] == "failed"
    good = words.file.read_text(encoding="utf-8")
    lenient = good.replace(
        "def topology():",
        "import json\n"
        "def decode(data):\n"
        "    try:\n"
        "        return json.loads(data)\n"
        "    except ValueError:\n"
        "        return {'word': 'unreadable', 'count': 1}\n"
        "def topology():",
    ).replace(
        "value_serde=serdes.json())\n        .map",
        "value_serde=Serde(id='json', serialize=serdes.json().serialize, deserialize=decode))\n        .map",
    )
    words.file.write_text(
        "from airflow_kstreams.streams.serde.base import Serde\n" + lenient, encoding="utf-8"
    )
    words.expected["unreadable"] = 1
    _resume(run_dag, words, outcome, consume_all)


@pytest.mark.prove  # dev/test shows how one error comes out of a DAG; what each says, without one
def test_owner_run_and_lease_are_named_and_the_owner_not_disturbed_when_another_run_is_at_work(
    words: WordTotals, run_dag: RunDag, kafka: str, consume_all: Callable[..., Any]
) -> None:
    words.publish(10)
    settings = ApplicationSettings.parse(
        words.application_id, {"processing.guarantee": "exactly_once", "lease.ms": 3_000}
    )
    owner = Coordinator(KafkaCluster({"bootstrap.servers": kafka}, settings=settings), settings)
    plan = load_topology(words.file).plan(words.application_id)
    try:
        owner.begin("first", plan, order=(0, 1), owner="the first driver", hold_lease=True)
        with owner.lease.keep() as lease:
            outcome = run_dag("increments", words.conf)

            error = _only_error(outcome, _CAPTURE)
            assert "the first driver" in unbroken(str(error))
            assert "first" in unbroken(str(error))
            assert outcome.run_id in unbroken(str(error))
            lease.check()
    finally:
        owner.close()
    _resume(run_dag, words, outcome, consume_all)


def test_spark_is_not_sent_elsewhere_when_its_connection_is_missing(
    words: WordTotals, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    words.publish(1)

    error = _only_error(run_dag("increments", words.conf), "batch.run_topology")

    assert isinstance(error, AirflowFailException)
    assert "connection 'spark_default' is not defined" in unbroken(str(error))


def test_driver_elsewhere_is_refused_when_it_could_not_read_the_kafka_connection(
    words: WordTotals, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = {
        "conn_type": "spark",
        "host": "spark://127.0.0.1",
        "port": 7077,
        "extra": {"deploy-mode": "cluster"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(cluster))
    words.publish(1)

    error = _only_error(run_dag("increments", words.conf), "batch.run_topology")

    assert isinstance(error, AirflowFailException)
    assert "KSTREAMS_KAFKA_CONFIG_FILE" in unbroken(str(error))
