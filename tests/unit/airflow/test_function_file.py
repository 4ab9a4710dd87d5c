"""An application file made of a function in a DAG file."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from airflow.sdk import DAG, task

from airflow_kstreams.decorators.function_file import application_text, function_source
from airflow_kstreams.streams.errors import ConfigError
from airflow_kstreams.streams.topology.application_file import ApplicationFile
from airflow_kstreams.streams.topology.topology import Topology
from airflow_kstreams.testing import TopologyTestDriver
from tests.support.remedies import walked

pytestmark = pytest.mark.promise("functions-stand-alone")

LIMIT = 7


def large(at_least: int, *, sink: str = "large") -> Topology:
    """Return what is large."""
    import msgspec

    from airflow_kstreams.streams import KStreamBuilder, serdes

    class Order(msgspec.Struct):
        cents: int

    # A comment that stays,
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json(Order))
    builder.stream("orders").filter(lambda _, order: order.cents >= at_least).send_to(sink)
    text = """
# and a line of text that looks like one.
"""
    assert text.startswith("\n#")
    return builder.build()


def uses_a_global() -> Any:
    return [LIMIT for _ in range(3)]


def uses_an_import_of_its_module(path: str) -> Any:
    return (lambda: Path(path))()


def one_line(path: str) -> int: return len(path)  # fmt: skip


def _around() -> Callable[..., Any]:
    local = 5

    def inner() -> Any:
        return local

    return inner


def _application(tmp_path: Path, text: str) -> Topology:
    file = tmp_path / "made_of_a_function.py"
    file.write_text(text, encoding="utf-8")
    return ApplicationFile.read(file).topology()


def test_topology_is_that_of_the_function_when_it_was_taken_out(tmp_path: Path) -> None:
    topology = _application(tmp_path, application_text(large, [250], {"sink": "big"}))

    with TopologyTestDriver(topology, application_id="app") as driver:
        driver.pipe_bytes("orders", key=b"a", value=b'{"cents":249}', timestamp_ms=0)
        driver.pipe_bytes("orders", key=b"b", value=b'{"cents":250}', timestamp_ms=1)
        assert [record.key for record in driver.read_output("big")] == ["b"]


def test_source_is_as_it_was_written_when_taken_out() -> None:
    source = function_source(large)

    assert "def large(at_least, *, sink='large'):\n" in source
    assert "# A comment that stays," in source
    assert "# and a line of text that looks like one." in source
    assert function_source(one_line).endswith("def one_line(path):\n    return len(path)\n")


@pytest.mark.parametrize(
    ("function", "name"),
    [(uses_a_global, "LIMIT"), (uses_an_import_of_its_module, "Path"), (_around(), "local")],
)
def test_function_is_refused_by_name_when_it_uses_what_is_around_it(
    function: Callable[..., Any], name: str
) -> None:
    with pytest.raises(ConfigError, match=rf"uses {name} of its DAG file"):
        function_source(function)


@pytest.mark.parametrize("function", [len, lambda: None])
def test_function_is_refused_when_it_is_no_plain_function(function: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match="cannot read the source"):
        function_source(function)


@pytest.mark.parametrize(("arguments", "keywords"), [([object()], {}), ([], {"at_least": object()})])
def test_argument_is_refused_by_name_when_it_cannot_travel(
    arguments: list[Any], keywords: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=r"argument 'at_least' of .* 'large' cannot travel to Spark"):
        application_text(large, arguments, keywords)


def top(word: str = "top") -> Any:
    """Local names of a function of this name are global to symtable."""
    letters = [letter for letter in word if letter]
    return sorted(letters)


def top_with_a_global() -> Any:
    def top() -> int:
        global LIMIT
        LIMIT = 8
        return LIMIT

    return top()


def of_context(ds: str, params: Any, at_least: int = 1, *, run_id: str | None = None) -> Any:
    return [ds, params, at_least, run_id]


def of_all_context(**context: Any) -> Any:
    return context


def of_some_context(ds: str, params: Any) -> Any:
    return [ds, params]


def limit_of_its_own() -> Any:
    limit = 7
    return [limit for _ in range(3)]


def of_time(data_interval_start: Any = None) -> Any:
    return data_interval_start


def _called(text: str) -> Any:
    made: dict[str, Any] = {"__name__": "application"}
    exec(text, made)
    return made["topology"]()


def test_function_called_top_is_taken_when_its_names_are_its_own() -> None:
    assert _called(application_text(top, ["ab"])) == ["a", "b"]
    with pytest.raises(ConfigError, match="uses LIMIT of its DAG file"):
        function_source(top_with_a_global)


@pytest.mark.promise("context-of-the-task-is-given-or-refused")
def test_parameters_take_the_context_of_the_task_as_in_every_task() -> None:
    context = {"ds": "2024-03-01", "run_id": "manual", "params": {"n": [1]}, "ti": object()}
    given = application_text(of_context, context=context)
    assert _called(given) == ["2024-03-01", {"n": [1]}, 1, "manual"]
    said = application_text(of_context, ["mine"], {"at_least": 5}, context)
    assert _called(said) == ["mine", {"n": [1]}, 5, "manual"]


@pytest.mark.promise("context-of-the-task-is-given-or-refused")
@pytest.mark.remedy("function_file._check_argument", "function_file.function_source: name what it uses")
def test_context_is_refused_by_name_when_it_cannot_travel() -> None:
    start = datetime.datetime(2024, 3, 1, tzinfo=datetime.UTC)
    with pytest.raises(ConfigError, match=r"'data_interval_start' of .* cannot travel") as caught:
        application_text(of_time, context={"data_interval_start": start})
    assert 'data_interval_start="{{ data_interval_start | ts }}"' in caught.value.fix
    with DAG("inline", schedule=None):
        called: Any = task.kstreams(application_id="app")(of_time)("{{ data_interval_start | ts }}")
        with pytest.raises(ConfigError, match=r"takes \*\*context") as caught:
            task.kstreams(application_id="app")(of_all_context)()
    operator = called.operator
    operator.render_template_fields(cast("Any", {"data_interval_start": start}))
    text = application_text(of_time, operator.op_args, operator.op_kwargs, {"data_interval_start": start})
    assert _called(text) == "2024-03-01T00:00:00+00:00"
    assert "def of_all_context(ds, params)" in caught.value.fix
    assert _called(application_text(of_some_context, context={"ds": "2024-03-01", "params": {}})) == [
        "2024-03-01",
        {},
    ]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        walked("function_file.function_source: decorate", lambda: LIMIT, limit_of_its_own),
        walked("function_file.function_source: import or define", uses_a_global, limit_of_its_own),
    ],
)
def test_function_is_taken_when_it_is_written_as_the_error_says(
    fault: Callable[..., Any], told: Callable[..., Any]
) -> None:
    with pytest.raises(ConfigError):
        application_text(fault)
    assert _called(application_text(told)) == [7, 7, 7]


@pytest.mark.parametrize("value", [(1, 2), {1: "a"}, float("nan")])
def test_argument_is_refused_when_it_would_arrive_as_another(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"'word' of .* cannot travel to Spark: .* would arrive as"):
        application_text(top, [value])


def test_function_becomes_a_task_when_it_is_called_in_a_dag() -> None:
    with DAG("inline", schedule=None) as dag:
        decorated = task.kstreams(application_id="app", settings={"processing.guarantee": "exactly_once"})
        decorated(large)(250)

    operator: Any = dag.get_task("large")
    assert operator.operator_name == "@task.kstreams"
    assert operator.finish
    assert list(operator.op_args) == [250]
    assert operator.settings == {"processing.guarantee": "exactly_once"}


def test_dag_does_not_parse_when_the_function_uses_what_is_around_it() -> None:
    with DAG("inline", schedule=None), pytest.raises(ConfigError, match="LIMIT"):
        task.kstreams(application_id="app")(uses_a_global)()


def test_application_is_refused_when_it_is_given_besides_the_function() -> None:
    with DAG("inline", schedule=None), pytest.raises(TypeError, match="takes no application"):
        task.kstreams(application_id="app", application="a.py")(large)(1)
