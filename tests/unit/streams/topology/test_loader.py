from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from airflow_kstreams.streams.errors import ERROR_MARKER, TopologyError
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.topology.loader import GROUPS_MARKER, PLAN_MARKER, LoadedGroups, load_topology

_ROOT = Path(__file__).resolve().parents[4]
_GOOD = """
from airflow_kstreams.streams import KStreamBuilder, serdes

print("user code may print")

def topology():
    builder = KStreamBuilder()
    builder.stream("in", key_serde=serdes.string(), value_serde=serdes.string()).send_to(
        "out", key_serde=serdes.string(), value_serde=serdes.string()
    )
    return builder.build()
"""


def _file(folder: Path, text: str, name: str = "some_application.py") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def _load(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "airflow_kstreams.streams.topology.loader", *arguments],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_topology_is_built_when_the_file_is_good(tmp_path: Path) -> None:
    plan = load_topology(_file(tmp_path, _GOOD)).plan("app")

    assert plan.inputs == ("in",)
    assert plan.outputs == ("out",)


def test_plan_writes_the_topics_that_the_settings_name_when_some_are_given(tmp_path: Path) -> None:
    settings = json.dumps({"autostop.at": "interval", "output.topics": "out=out-again"})
    done = _load(str(_file(tmp_path, _GOOD)), "app", "--settings", settings)

    (line,) = (line for line in done.stdout.splitlines() if line.startswith(PLAN_MARKER))
    assert msgspec.json.decode(line.removeprefix(PLAN_MARKER), type=TopologyPlan).outputs == ("out-again",)
    refused = _load(str(_file(tmp_path, _GOOD)), "app", "--settings", json.dumps({"autostop.at": "interval"}))
    assert "writes 'out', and nothing says which topic" in refused.stderr


def test_new_text_is_run_when_the_file_has_changed_within_a_second(tmp_path: Path) -> None:
    first = load_topology(_file(tmp_path, _GOOD)).plan("app")
    second = load_topology(_file(tmp_path, _GOOD.replace('"out"', '"tou"'))).plan("app")

    assert (first.outputs, second.outputs) == (("out",), ("tou",))


def test_neighbours_can_be_imported_when_they_lie_beside_the_file(tmp_path: Path) -> None:
    _file(tmp_path, _GOOD, "neighbour_of_application.py")

    topology = load_topology(_file(tmp_path, "from neighbour_of_application import topology\n"))

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
    path = _file(tmp_path, text)

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
        load_topology(_file(tmp_path, text))

    assert found in raised.value.cause


def test_path_is_named_when_the_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"missing\.py' does not exist"):
        load_topology(tmp_path / "missing.py")


def test_file_is_refused_when_it_would_hide_another_module(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="name of another module, 'json'"):
        load_topology(_file(tmp_path, _GOOD, "json.py"))


def test_plan_is_the_last_line_and_equal_when_loaded_in_another_process(tmp_path: Path) -> None:
    path = _file(tmp_path, _GOOD)

    done = _load(str(path), "app")

    assert done.returncode == 0, done.stderr
    assert "user code may print" not in done.stdout
    assert "user code may print" in done.stderr
    line = done.stdout.splitlines()[-1]
    assert line.startswith(PLAN_MARKER)
    assert msgspec.json.decode(line.removeprefix(PLAN_MARKER), type=TopologyPlan) == load_topology(path).plan(
        "app"
    )


def test_error_is_reported_as_json_when_loading_fails_in_another_process(tmp_path: Path) -> None:
    done = _load(str(_file(tmp_path, "import nowhere_to_be_found")), "app")

    assert done.returncode == 1
    assert done.stdout == ""
    report = json.loads(done.stderr.splitlines()[-1].removeprefix(ERROR_MARKER))
    assert report["type"] == "TopologyError"
    assert report["retriable"] is False


def test_loading_takes_well_under_a_second_when_done_in_another_process(tmp_path: Path) -> None:
    path = _file(tmp_path, _GOOD)
    started = time.monotonic()

    assert _load(str(path), "app").returncode == 0

    assert time.monotonic() - started < 1.0


def test_nothing_heavy_is_loaded_when_the_loader_runs(tmp_path: Path) -> None:
    text = (
        f"{_GOOD}\nimport sys\n"
        "for name in ('airflow', 'pyspark', 'confluent_kafka', 'pyarrow', 'numpy'):\n"
        "    assert name not in sys.modules, name\n"
    )

    done = _load(str(_file(tmp_path, text)), "app")

    assert done.returncode == 0, done.stderr


_GROUPED = _GOOD.replace("serdes\n", "serdes, FixedGroups\n", 1).replace(
    "KStreamBuilder()", "KStreamBuilder(partition_grouper=FixedGroups(2))"
)


def test_groups_are_printed_when_partition_counts_are_given(tmp_path: Path) -> None:
    path = _file(tmp_path, _GROUPED)

    done = _load(str(path), "app", '{"in": 3}')

    assert done.returncode == 0, done.stderr
    line = done.stdout.splitlines()[-1]
    answer = msgspec.json.decode(line.removeprefix(GROUPS_MARKER), type=LoadedGroups)
    assert answer.groups == {"0": ({"in": (0, 2)}, {"in": (1,)})}
    assert answer.topology_hash == load_topology(path).topology_hash()


def test_error_is_printed_when_the_grouper_fails(tmp_path: Path) -> None:
    failing = _GROUPED.replace("FixedGroups(2)", "Failing()").replace(
        "def topology", "class Failing:\n    id = 'f'\n    def group(self, counts): return []\n\ndef topology"
    )

    done = _load(str(_file(tmp_path, failing)), "app", '{"in": 3}')

    assert done.returncode == 1
    error = json.loads(done.stderr.splitlines()[-1].removeprefix(ERROR_MARKER))
    assert error["type"] == "TopologyError"
    assert "leaves partitions out" in error["cause"]
