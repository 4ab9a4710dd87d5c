"""A process whose environment asks for it notes its calls from its start on, and imports nothing for it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from dev.benchmarks.waterfall import trace


def test_process_is_recorded_from_its_start_when_the_environment_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "from dev.benchmarks.waterfall.recorder import start\n\nstart()\n"
    )
    code = (
        "import sys; assert 'airflow_kstreams' not in sys.modules; "
        "from airflow_kstreams.batch.clock import SystemClock; import time; "
        "SystemClock().sleep(0); time.sleep(0); "
        "from airflow_kstreams.kafka.cluster import KafkaCluster; "
        "KafkaCluster({'bootstrap.servers': '127.0.0.1:1'}).reader(group_id='g').close()"
    )
    root = Path(__file__).parents[4]
    environment = {
        "PYTHONPATH": f"{tmp_path}:{root}",
        "KSTREAMS_WATERFALL": str(tmp_path),
        "KSTREAMS_WATERFALL_TASK": "capture",
    }
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, cwd=tmp_path)

    names = Counter(each["name"] for each in trace.recorded_in(tmp_path))
    assert names.pop("import") >= 2
    assert names.pop("thread.join") == 1, "the reader waits for its first contact before it closes"
    assert names == {"sleep": 1, "reader.new": 1, "first.contact": 1, "reader.close": 1}
