from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from airflow_kstreams.hooks.airflow_versions import AirflowFailException
from airflow_kstreams.hooks.outcomes import airflow_outcomes, outcome_of
from airflow_kstreams.kafka.client_errors import unreachable, wrong_credentials
from airflow_kstreams.streams.errors import (
    ERROR_MARKER,
    ConfigError,
    DataLossError,
    KStreamsError,
    RecordError,
    ReportedError,
    RunBusyError,
    TaskFencedError,
    TopologyError,
    reported_in,
)
from airflow_kstreams.streams.printable import LOG_COLUMNS
from tests.support.airflow.task_log import unbroken

pytestmark = pytest.mark.promise("exit-codes-say-whether-to-retry")

_NO_RETRY: list[KStreamsError] = [
    ConfigError("unknown setting 'x'", fix="did you mean 'y'?"),
    TopologyError("no sink", fix="add one"),
    DataLossError("records are gone", fix="restore them", run_id="r"),
    wrong_credentials("broker:1", "denied"),
]
_RETRY: list[KStreamsError] = [
    RunBusyError("busy", fix="wait", run_id="r", owner="o", owner_run_id="q"),
    RecordError("bad record", fix="fix it", topic="t", partition=0, offset=5, node="n"),
    TaskFencedError("fenced", task_id="0_0"),
    unreachable("broker:1", "no answer"),
]


@pytest.mark.parametrize("error", _NO_RETRY, ids=lambda error: type(error).__name__)
def test_task_fails_for_good_with_cause_and_remedy_when_a_retry_cannot_help(error: KStreamsError) -> None:
    with pytest.raises(AirflowFailException) as raised, airflow_outcomes():
        raise error

    assert str(raised.value) == str(error)
    assert error.fix in unbroken(str(raised.value))


@pytest.mark.parametrize("error", _RETRY, ids=lambda error: type(error).__name__)
def test_task_may_retry_when_a_retry_can_help(error: KStreamsError) -> None:
    with pytest.raises(type(error)) as raised, airflow_outcomes():
        raise error

    assert raised.value is error
    assert not isinstance(raised.value, AirflowFailException)


@pytest.fixture
def entries() -> Iterator[list[dict[str, Any]]]:
    """The entries of a log that is written as Airflow writes that of a task."""
    made = list[dict[str, Any]]()

    def keep(_logger: Any, _method: str, event: Any) -> Any:
        made.append(dict(event))
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[structlog.processors.add_log_level, keep])
    yield made
    structlog.configure(**before)


@pytest.mark.promise("errors-are-logged-once")
@pytest.mark.parametrize("error", [*_NO_RETRY, *_RETRY], ids=lambda error: type(error).__name__)
def test_error_stands_once_in_the_log_cause_first_and_remedy_last(
    error: KStreamsError, entries: list[dict[str, Any]]
) -> None:
    log = structlog.get_logger().bind()
    error.trace = "Traceback of the application's code (most recent call last):\n" + " ".join(["  File"] * 40)
    try:
        with airflow_outcomes():
            try:
                _ = 1 / 0
            except ZeroDivisionError as of_a_library:
                raise error from of_a_library
    except Exception as outcome:
        log.exception("Task failed with exception")
        assert (outcome.__cause__, outcome.__suppress_context__) == (None, True)
        said = str(outcome)
    (entry,) = entries
    assert entry == {"event": said, "level": "error"}
    lines = said.splitlines()
    assert max(map(len, lines)) <= LOG_COLUMNS
    first, _, rest = unbroken(said).partition("\nTraceback of")
    assert first == f"{type(error).__name__}: {error.coded_cause}"
    assert rest.splitlines()[-1] == (f"What to do: {error.fix}" if error.fix else rest.splitlines()[-1])


def test_other_exceptions_are_logged_as_ever(entries: list[dict[str, Any]]) -> None:
    log = structlog.get_logger().bind()
    with pytest.raises(AirflowFailException), airflow_outcomes():
        raise ConfigError("no", fix="yes")
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        log.exception("Task failed with exception")
    assert entries == [{"event": "Task failed with exception", "exc_info": True, "level": "error"}]


def test_foreign_errors_pass_unchanged_when_raised_in_the_block() -> None:
    with pytest.raises(ZeroDivisionError), airflow_outcomes():
        _ = 1 / 0


@pytest.mark.parametrize("error", [*_NO_RETRY, *_RETRY], ids=lambda error: type(error).__name__)
def test_reported_error_has_the_same_outcome_when_it_crossed_a_process(error: KStreamsError) -> None:
    reported = reported_in(f"2026-01-01 driver: {ERROR_MARKER}{json.dumps(error.to_dict())}\n")

    assert reported is not None
    assert reported.is_retriable is error.is_retriable
    assert type(error).__name__ in str(reported)
    assert error.cause in unbroken(str(reported))
    assert error.fix in unbroken(str(reported))
    assert isinstance(outcome_of(reported), AirflowFailException) is not error.is_retriable


@pytest.mark.parametrize(
    "line", ["", "nothing here", f"{ERROR_MARKER}not json", f"{ERROR_MARKER}[1, 2]", f"{ERROR_MARKER}"]
)
def test_no_error_is_found_when_a_line_carries_none(line: str) -> None:
    assert reported_in(line) is None


def test_reported_error_is_retriable_when_the_report_does_not_say() -> None:
    assert ReportedError.from_dict({"cause": "?"}).is_retriable
