"""What an error says of the user's own code: its last line, and how it came there."""

from __future__ import annotations

import inspect
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from airflow_kstreams.streams import KStreamBuilder, Processor, ProcessorContext, ProcessorRecord, serdes
from airflow_kstreams.streams.errors import RecordError, ReportedError
from airflow_kstreams.streams.hints.function_checks import PACKAGE_FOLDER
from airflow_kstreams.testing import TopologyTestDriver


def line_of(function: Callable[..., Any], after: int = 1) -> str:
    """Return file and line of a function's body."""
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno + after}"


def ratio(number: int) -> float:
    return 1 / number


def through(number: int) -> float:
    return ratio(number)


def failure(shape: Callable[[Any], Any], *values: Any) -> RecordError:
    """Run a topology over values until one fails."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    shape(builder.stream("in"))
    with pytest.raises(RecordError) as caught:
        run(builder, *values)
    return caught.value


def run(builder: KStreamBuilder, *values: Any) -> None:
    with TopologyTestDriver(builder.build(), application_id="app") as driver:
        for value in values:
            driver.pipe_input("in", key="a", value=value, timestamp_ms=0)


@pytest.mark.parametrize(
    "shape",
    [
        lambda s: s.filter(lambda k, v: True).map_values(through).peek(lambda k, v: None).send_to("out"),
        lambda s: s.filter(lambda k, v: through(v)).send_to("out"),
        lambda s: s.foreach(lambda k, v: through(v)),
        lambda s: s.group_by_key().aggregate(lambda: 0, lambda k, v, total: through(v)),
        lambda s: s.group_by_key().reduce(lambda total, v: through(v)),
        lambda s: s.flat_map_values(lambda v: [through(v)]).send_to("out"),
        lambda s: s.map_batches(lambda batch: [through(0)]).send_to("out"),
    ],
)
def test_line_and_function_are_named_when_a_users_function_fails(shape: Callable[[Any], Any]) -> None:
    error = failure(shape, 1, 0)
    assert f", in ratio at {line_of(ratio)}: ZeroDivisionError: division by zero" in error.cause
    head, *frames = error.trace.splitlines()
    assert head.startswith("Traceback of the application's code")
    assert frames[-4:] == [
        f'  File "{__file__}", line {line_of(through).rsplit(":", 1)[1]}, in through',
        "    return ratio(number)",
        f'  File "{__file__}", line {line_of(ratio).rsplit(":", 1)[1]}, in ratio',
        "    return 1 / number",
    ]
    # What this package does in between is left out; the node stands for it, with the line that made it.
    assert f"  node {error.node!r}, defined at {__file__}:" in error.trace
    assert PACKAGE_FOLDER not in error.trace
    assert "<source loop>" not in error.trace
    assert str(error).splitlines()[-2:] == [error.coded_cause, f"What to do: {error.fix}"]


def test_users_line_is_named_when_a_library_fails_for_it() -> None:
    def parsed(text: str) -> Any:
        return json.loads(text)

    error = failure(lambda s: s.map_values(parsed).send_to("out"), "{x")
    assert f", in parsed at {line_of(parsed)}: JSONDecodeError" in error.cause
    assert f'File "{inspect.getsourcefile(json)}"' in error.trace


def test_node_alone_is_named_when_no_function_of_the_user_runs() -> None:
    error = failure(lambda s: s.map_values(lambda v: v).send_to("out", value_serde=serdes.int64()), "x")
    assert error.trace == ""
    assert "cannot encode the result for topic 'out' of in-0@0 at node" in error.cause


def test_traceback_survives_its_way_from_executor_to_driver_to_airflow() -> None:
    error = failure(lambda s: s.map_values(through).send_to("out"), 0)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    reported = ReportedError.from_dict(ReportedError.from_dict(error.to_dict()).to_dict())
    assert reported.trace == error.trace
    assert (
        str(reported) == f"{error.trace}\nRecordError: {error.cause} [KS-TASK-001]\nWhat to do: {error.fix}"
    )


class Fails(Processor):
    """Raises what the test says, where the test says."""

    def __init__(self, where: str, what: Callable[[], Exception]) -> None:
        self._where, self._what = where, what

    def init(self, context: ProcessorContext) -> None:
        context.schedule(10)
        self._at("init")

    def process(self, record: ProcessorRecord) -> None:
        self._at("process")

    def punctuate(self, stream_time_ms: int) -> None:
        self._at("punctuate")

    def close(self) -> None:
        self._at("close")

    def _at(self, where: str) -> None:
        if where == self._where:
            raise self._what()


def own_text() -> Exception:
    raise ValueError("no table 'airlines' in 'rates.yml', retried 300 times")


@pytest.mark.parametrize("where", ["init", "punctuate", "close"])
def test_programs_own_text_is_shown_when_no_record_is_at_fault(where: str) -> None:
    error = failure(lambda s: s.process(lambda: Fails(where, own_text)).send_to("out"), 1)
    assert "ValueError: no table 'airlines' in 'rates.yml', retried 300 times" in error.cause
    assert f", in own_text at {line_of(own_text)}" in error.cause


@pytest.mark.promise("errors-hold-no-values")
@pytest.mark.parametrize("where", ["init", "punctuate", "close"])
def test_data_is_hidden_when_no_record_is_at_fault(where: str) -> None:
    person = "ann@" + "example.org"

    def of_data() -> Exception:
        return KeyError(person)

    error = failure(lambda s: s.process(lambda: Fails(where, of_data)).send_to("out"), 1)
    assert "KeyError: '***'" in error.cause
    assert person not in str(error)
