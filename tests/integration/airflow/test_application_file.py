from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import structlog

from airflow_kstreams.operators.application_file import plan_of
from airflow_kstreams.streams.errors import TopologyError


def test_no_pipe_stays_open_when_a_file_does_not_load_in_time(tmp_path: Path) -> None:
    hanging = tmp_path / "hanging_application.py"
    hanging.write_text("def topology():\n    import time\n    time.sleep(600)\n")
    before = psutil.Process().num_fds()
    with pytest.raises(TopologyError, match=r"did not load within 0.5 s") as caught:
        plan_of(str(hanging), "app", timeout_seconds=0.5, log=structlog.get_logger())
    assert psutil.Process().num_fds() == before, f"open after {caught.value}"
