from __future__ import annotations

import subprocess
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


def test_groups_are_asked_of_the_file_when_it_has_a_grouper(tmp_path: Path) -> None:
    file = tmp_path / "grouped_application.py"
    file.write_text(_GROUPED)
    loader = ApplicationLoader(application=str(file), log=structlog.get_logger(), timeout_seconds=60)
    plan = loader.plan("app")

    assert loader.groups(plan, {"in": 3}) == {0: ({"in": (0, 2)}, {"in": (1,)})}

    file.write_text(_GROUPED.replace("FixedGroups(2)", "FixedGroups(3)"))
    with pytest.raises(TopologyError, match="changed while the run began"):
        loader.groups(plan, {"in": 3})
    file.write_text(_GROUPED.replace("FixedGroups(2)", "FixedGroups(0)"))
    with pytest.raises(ReportedError, match=f"{file}:5"):
        loader.groups(plan, {"in": 3})
