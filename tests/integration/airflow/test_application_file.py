from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog

from airflow_kstreams.operators.work.application_work import ApplicationLoader
from airflow_kstreams.streams.errors import ReportedError, TopologyError


def test_no_pipe_stays_open_when_a_file_does_not_load_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = tmp_path / "hanging_application.py"
    hanging.write_text("def topology():\n    import time\n    time.sleep(600)\n")
    # The pipes are asked, not the process: Kafka clients of other tests open and close sockets in it.
    started: list[subprocess.Popen[str]] = []

    class Remembered(subprocess.Popen[str]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Remembered)
    loader = ApplicationLoader(application=str(hanging), log=structlog.get_logger(), timeout_seconds=0.5)
    with pytest.raises(TopologyError, match=r"did not load within 0.5 s"):
        loader.plan("app")
    [process] = started
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.closed
    assert process.stderr.closed


_GROUPED = """
from airflow_kstreams.streams import FixedGroups, KStreamBuilder, serdes

def topology():
    builder = KStreamBuilder(partition_grouper=FixedGroups(2), default_key_serde=serdes.string())
    builder.stream("in", value_serde=serdes.string()).send_to("out", value_serde=serdes.string())
    return builder.build()
"""


_WAITING = """
import time
from airflow_kstreams.streams import KStreamBuilder, serdes

def asks(value):
    time.sleep(600)

def topology():
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.string())
    builder.stream("in").map_values(asks).send_to("out")
    return builder.build()
"""


@pytest.mark.remedy("application_work.ApplicationLoader._output")
def test_plan_is_loaded_when_what_takes_time_was_moved_into_a_processor(tmp_path: Path) -> None:
    file = tmp_path / "waiting_application.py"
    file.write_text(_WAITING.replace("    builder = ", "    asks(None)\n    builder = "))
    with pytest.raises(TopologyError, match="did not load within") as refused:
        ApplicationLoader(application=str(file), log=structlog.get_logger(), timeout_seconds=0.5).plan("app")
    assert "move such work into the processors" in refused.value.fix
    file.write_text(_WAITING)
    loader = ApplicationLoader(application=str(file), log=structlog.get_logger(), timeout_seconds=60)
    assert loader.plan("app").outputs == ("out",)


@pytest.mark.remedy("application_work.ApplicationLoader._answer")
def test_command_of_the_error_shows_what_ended_the_process_until_it_is_mended(tmp_path: Path) -> None:
    file = tmp_path / "ending application.py"
    ends = "import os, sys\nsys.stderr.write('here')\nsys.stderr.flush()\nos._exit(7)\n"
    file.write_text(ends + _WAITING)
    loader = ApplicationLoader(application=str(file), log=structlog.get_logger(), timeout_seconds=60)
    with pytest.raises(TopologyError, match="ended the process with code 7") as refused:
        loader.plan("app")
    _, *arguments = shlex.split(refused.value.fix.partition("try: ")[2])
    for said, code in (("here", 7), ("", 0)):
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
        assert (done.stderr, done.returncode) == (said, code)
        file.write_text(_WAITING)
    assert loader.plan("app").outputs == ("out",)


@pytest.mark.remedy("application_work.ApplicationLoader.groups")
def test_groups_are_asked_of_the_file_when_it_has_a_grouper(tmp_path: Path) -> None:
    file = tmp_path / "grouped_application.py"
    file.write_text(_GROUPED)
    loader = ApplicationLoader(application=str(file), log=structlog.get_logger(), timeout_seconds=60)
    plan = loader.plan("app")

    assert loader.groups(plan, {"in": 3}) == {0: ({"in": (0, 2)}, {"in": (1,)})}

    file.write_text(_GROUPED.replace("FixedGroups(2)", "FixedGroups(3)"))
    with pytest.raises(TopologyError, match="changed while the run began"):
        loader.groups(plan, {"in": 3})
    assert len(loader.groups(loader.plan("app"), {"in": 3})[0]) == 3, "as the task does when it runs again"
    file.write_text(_GROUPED.replace("FixedGroups(2)", "FixedGroups(0)"))
    with pytest.raises(ReportedError, match=f"{file}:5"):
        loader.groups(plan, {"in": 3})
