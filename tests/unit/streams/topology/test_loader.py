from __future__ import annotations

from pathlib import Path

import pytest

from airflow_kstreams.streams.errors import TopologyError
from airflow_kstreams.streams.topology.loader import load_topology
from tests.support.topology.application_files import PRINTING, write_application


def test_topology_is_built_when_the_file_is_good(tmp_path: Path) -> None:
    plan = load_topology(write_application(tmp_path, PRINTING)).plan("app")

    assert plan.inputs == ("in",)
    assert plan.outputs == ("out",)


def test_new_text_is_run_when_the_file_has_changed_within_a_second(tmp_path: Path) -> None:
    first = load_topology(write_application(tmp_path, PRINTING)).plan("app")
    second = load_topology(write_application(tmp_path, PRINTING.replace('"out"', '"tou"'))).plan("app")

    assert (first.outputs, second.outputs) == (("out",), ("tou",))


def test_neighbours_can_be_imported_when_they_lie_beside_thewritten(tmp_path: Path) -> None:
    write_application(tmp_path, PRINTING, "neighbour_of_application.py")

    topology = load_topology(write_application(tmp_path, "from neighbour_of_application import topology\n"))

    assert topology.plan("app").inputs == ("in",)


@pytest.mark.parametrize(
    ("text", "found", "line"),
    [
        ("import nowhere_to_be_found", "ModuleNotFoundError: No module named 'nowhere_to_be_found'", 1),
        ("x = 1\nx = (\n", "SyntaxError", 2),
        ("def topology():\n    return 1 / 0\n", "topology() fails: ZeroDivisionError: division by zero", 2),
        ("import sys\nsys.exit(3)\n", "it ends the process", 2),
        ("raise ValueError('two\\nlines')", "ValueError: two lines", 1),
    ],
)
def test_user_line_is_named_when_the_file_does_not_run(
    text: str, found: str, line: int, tmp_path: Path
) -> None:
    path = write_application(tmp_path, text)

    with pytest.raises(TopologyError) as raised:
        load_topology(path)

    assert found in raised.value.cause
    assert f"{path}:{line}" in raised.value.cause
    assert "\n" not in raised.value.cause
    assert raised.value.fix


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = 1", "must define a function topology(), found nothing of that name"),
        ("topology = 5", "must define a function topology(), found a int"),
        ("def topology(): pass", "topology() returned NoneType, not a Topology"),
    ],
)
def test_what_was_found_is_named_when_there_is_no_usable_topology(
    text: str, found: str, tmp_path: Path
) -> None:
    with pytest.raises(TopologyError) as raised:
        load_topology(write_application(tmp_path, text))

    assert found in raised.value.cause


def test_path_is_named_when_the_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"missing\.py' does not exist"):
        load_topology(tmp_path / "missing.py")


def test_file_is_refused_when_it_would_hide_another_module(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="name of another module, 'json'"):
        load_topology(write_application(tmp_path, PRINTING, "json.py"))
