"""Bad input at the command line: a clear cause, what to do, a non-zero exit, in bounded time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.spark.driver_process import DriverProcess, driver

pytestmark = pytest.mark.promise("exit-codes-say-whether-to-retry")

APPLICATIONS = Path(__file__).parents[2] / "applications"
RETRY_MAY_HELP, RETRY_CANNOT_HELP = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a driver ended."""

    code: int
    cause: str
    fix: str


@pytest.fixture
def outcome_of() -> Callable[[DriverProcess], Outcome]:
    def run(process: DriverProcess) -> Outcome:
        try:
            code = process.start().wait(120)
        finally:
            process.stop()
        lines = process.output().splitlines()
        marked = [line for line in lines if line.startswith("KSTREAMS-ERROR ")]
        assert len(marked) == 1, process.output()[-4000:]
        error = json.loads(marked[0].removeprefix("KSTREAMS-ERROR "))
        at = lines.index(marked[0])
        assert lines[at + 1] == f"{error['cause']} [{error['code']}]", (
            "the cause is one line, and follows the marker"
        )
        assert lines[at + 2] == f"What to do: {error['fix']}"
        assert "Traceback" not in process.output()
        return Outcome(code=code, cause=error["cause"], fix=error["fix"])

    return run


def prepared(folder: Path, *, bootstrap: str, application_id: str, **environment: str) -> DriverProcess:
    made = driver(
        APPLICATIONS / "gated_sums.py",
        folder,
        bootstrap=bootstrap,
        application_id=application_id,
        run_id="run-1",
        client_timeout_ms="5000",
    )
    made.environment = {"KSTREAMS_TEST_GATES": str(folder), **environment}
    return made


def test_broker_is_named_when_it_cannot_be_reached(
    application_id: str, free_port: int, tmp_path: Path, outcome_of: Callable[[DriverProcess], Outcome]
) -> None:
    address = f"127.0.0.1:{free_port}"
    made = prepared(
        tmp_path,
        bootstrap=address,
        application_id=application_id,
        KSTREAMS_TEST_IN="a",
        KSTREAMS_TEST_OUT="b",
    )
    outcome = outcome_of(made)
    assert outcome.code == RETRY_MAY_HELP
    assert f"broker unreachable at {address}" in outcome.cause
    assert "bootstrap.servers" in outcome.fix


def test_credentials_are_blamed_when_they_are_wrong(
    application_id: str, sasl_bootstrap: str, tmp_path: Path, outcome_of: Callable[[DriverProcess], Outcome]
) -> None:
    made = prepared(
        tmp_path,
        bootstrap=sasl_bootstrap,
        application_id=application_id,
        KSTREAMS_TEST_IN="a",
        KSTREAMS_TEST_OUT="b",
    )
    made.client_config.write_text(
        json.dumps(
            {
                "bootstrap.servers": sasl_bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "alice",
                "sasl.password": "not-alices-secret",
            }
        )
    )
    outcome = outcome_of(made)
    assert outcome.code == RETRY_CANNOT_HELP
    assert "refused the credentials" in outcome.cause
    assert "not-alices-secret" not in made.output()


def test_topic_is_named_when_the_input_is_missing(
    kafka: str,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    tmp_path: Path,
    outcome_of: Callable[[DriverProcess], Outcome],
) -> None:
    missing, target = topic_name("missing"), create_topic(topic_name("out"))
    made = prepared(
        tmp_path,
        bootstrap=kafka,
        application_id=application_id,
        KSTREAMS_TEST_IN=missing,
        KSTREAMS_TEST_OUT=target,
    )
    outcome = outcome_of(made)
    assert outcome.code == RETRY_CANNOT_HELP
    assert f"input topic '{missing}'" in outcome.cause
    assert f"topics create {missing}" in outcome.fix


def test_both_topics_are_named_when_their_partition_counts_differ(
    kafka: str,
    application_id: str,
    topic_name: Callable[..., str],
    create_topic: Callable[..., str],
    tmp_path: Path,
    outcome_of: Callable[[DriverProcess], Outcome],
) -> None:
    left, right = create_topic(topic_name("left"), 2), create_topic(topic_name("right"), 3)
    made = prepared(
        tmp_path,
        bootstrap=kafka,
        application_id=application_id,
        KSTREAMS_TEST_IN=left,
        KSTREAMS_TEST_IN_2=right,
        KSTREAMS_TEST_OUT=create_topic(topic_name("out")),
    )
    made.application = APPLICATIONS / "two_inputs.py"
    outcome = outcome_of(made)
    assert outcome.code == RETRY_CANNOT_HELP
    assert f"'{left}' has 2" in outcome.cause
    assert f"'{right}' has 3" in outcome.cause


@pytest.mark.parametrize(
    ("setting", "cause", "fix"),
    [
        ("commit.intervall.ms=5", "unknown setting 'commit.intervall.ms'", "commit.interval.ms"),
        ("processing.guarantee=twice", "'processing.guarantee' must be one of", ""),
        ("lease.ms=soon", "'lease.ms' must be a whole number", ""),
    ],
)
def test_setting_is_named_when_it_is_wrong(
    application_id: str,
    tmp_path: Path,
    outcome_of: Callable[[DriverProcess], Outcome],
    setting: str,
    cause: str,
    fix: str,
) -> None:
    made = prepared(tmp_path, bootstrap="127.0.0.1:1", application_id=application_id)
    made.environment |= {"KSTREAMS_TEST_IN": "a", "KSTREAMS_TEST_OUT": "b"}
    made.arguments += ["--setting", setting]
    outcome = outcome_of(made)
    assert outcome.code == RETRY_CANNOT_HELP
    assert cause in outcome.cause
    assert fix in outcome.fix


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("group.id", "group.id"),
        ("isolation.level", "isolation.level"),
        ("boostrap.servers", "boostrap.servers"),
    ],
)
def test_client_setting_is_named_when_it_is_owned_or_unknown(
    application_id: str, tmp_path: Path, outcome_of: Callable[[DriverProcess], Outcome], name: str, cause: str
) -> None:
    made = prepared(tmp_path, bootstrap="127.0.0.1:1", application_id=application_id)
    made.environment |= {"KSTREAMS_TEST_IN": "a", "KSTREAMS_TEST_OUT": "b"}
    made.client_config.write_text(json.dumps({"bootstrap.servers": "127.0.0.1:1", name: "x"}))
    outcome = outcome_of(made)
    assert outcome.code == RETRY_CANNOT_HELP
    assert cause in outcome.cause
    assert outcome.fix


def test_line_is_named_when_the_topology_has_no_sink(
    kafka: str, application_id: str, tmp_path: Path, outcome_of: Callable[[DriverProcess], Outcome]
) -> None:
    application = tmp_path / "no_sink.py"
    application.write_text(
        "from airflow_kstreams.streams import KStreamBuilder, serdes\n"
        "def topology():\n"
        "    builder = KStreamBuilder()\n"
        "    stream = builder.stream('a', key_serde=serdes.string(), value_serde=serdes.json())\n"
        "    stream.filter(lambda k, v: True)\n"
        "    return builder.build()\n"
        "if __name__ == '__main__':\n"
        "    from airflow_kstreams.spark import run\n"
        "    run(topology)\n"
    )
    made = prepared(tmp_path, bootstrap=kafka, application_id=application_id)
    made.application = application
    outcome = outcome_of(made)
    assert outcome.code == RETRY_CANNOT_HELP
    assert "no_sink.py" in outcome.cause
    assert "sink" in outcome.cause
