from __future__ import annotations

import subprocess
import sys


def test_no_event_loop_is_imported_when_no_task_has_calls() -> None:
    code = (
        "import sys; from airflow_kstreams.streams.runtime import stream_task; "
        "pipeline = 'airflow_kstreams.streams.runtime.pipeline.async_pipeline'; "
        "print('asyncio' in sys.modules, pipeline in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout, done.stderr) == ("False True\n", "")
