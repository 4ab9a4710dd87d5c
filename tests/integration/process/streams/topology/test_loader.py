"""The loader as the operators start it: a process that prints a plan, groups, or an error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec

from airflow_kstreams.streams.errors import ERROR_MARKER
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.topology.loader import GROUPS_MARKER, PLAN_MARKER, LoadedGroups, load_topology
from tests.support.fresh_python import ROOT
from tests.support.topology.application_files import PRINTING, write_application


def _load(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "airflow_kstreams.streams.topology.loader", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_plan_writes_the_topics_that_the_settings_name_when_some_are_given(tmp_path: Path) -> None:
    settings = json.dumps({"autostop.at": "interval", "output.topics": "out=out-again"})
    done = _load(str(write_application(tmp_path, PRINTING)), "app", "--settings", settings)

    (line,) = (line for line in done.stdout.splitlines() if line.startswith(PLAN_MARKER))
    assert msgspec.json.decode(line.removeprefix(PLAN_MARKER), type=TopologyPlan).outputs == ("out-again",)
    refused = _load(
        str(write_application(tmp_path, PRINTING)),
        "app",
        "--settings",
        json.dumps({"autostop.at": "interval"}),
    )
    assert "writes 'out', and no topic is named" in refused.stderr


def test_plan_is_the_last_line_and_equal_when_loaded_in_another_process(tmp_path: Path) -> None:
    path = write_application(tmp_path, PRINTING)

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
    done = _load(str(write_application(tmp_path, "import nowhere_to_be_found")), "app")

    assert done.returncode == 1
    assert done.stdout == ""
    report = json.loads(done.stderr.splitlines()[-1].removeprefix(ERROR_MARKER))
    assert report["type"] == "TopologyError"
    assert report["retriable"] is False


def test_nothing_heavy_is_loaded_when_the_loader_runs(tmp_path: Path) -> None:
    text = (
        f"{PRINTING}\nimport sys\n"
        "for name in ('airflow', 'pyspark', 'confluent_kafka', 'pyarrow', 'numpy'):\n"
        "    assert name not in sys.modules, name\n"
    )

    done = _load(str(write_application(tmp_path, text)), "app")

    assert done.returncode == 0, done.stderr


_GROUPED = PRINTING.replace("serdes\n", "serdes, FixedGroups\n", 1).replace(
    "KStreamBuilder()", "KStreamBuilder(partition_grouper=FixedGroups(2))"
)


def test_groups_are_printed_when_partition_counts_are_given(tmp_path: Path) -> None:
    path = write_application(tmp_path, _GROUPED)

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

    done = _load(str(write_application(tmp_path, failing)), "app", '{"in": 3}')

    assert done.returncode == 1
    error = json.loads(done.stderr.splitlines()[-1].removeprefix(ERROR_MARKER))
    assert error["type"] == "TopologyError"
    assert "leaves partitions out" in error["cause"]
