"""``dev/bench waterfall``: records one run of each kind, as Airflow's workers make it: three processes, one
for each operator, and what these start.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dev.benchmarks.hosts import Host
from dev.benchmarks.inputs import Inputs
from dev.benchmarks.publish import create_topics
from dev.benchmarks.waterfall import picture, small_runs, trace
from dev.benchmarks.waterfall.recorder import FOLDER_VARIABLE, TASK_VARIABLE
from dev.benchmarks.workloads import WORKLOADS, Workload
from dev.servers.embedded import Broker, free_port

#: The Airflow tasks of a run, in order.
TASKS = ("capture", "run", "finish")
_ROOT = Path(__file__).parents[3]
_STARTS = "from dev.benchmarks.waterfall.recorder import start\n\nstart()\n"


def main(arguments: Sequence[str]) -> int:
    """Record the runs that are asked for, and draw them."""
    parser = argparse.ArgumentParser(prog="dev/bench waterfall", description=__doc__)
    parser.add_argument("--hourly", action="store_true", help="only a run with 10,000 new records")
    parser.add_argument("--empty", action="store_true", help="only a run with nothing new")
    parser.add_argument("--page", action="store_true", help="draw and write anew from what is stored")
    options = parser.parse_args(arguments)
    kinds = [kind for kind in small_runs.KINDS if getattr(options, kind)] or list(small_runs.KINDS)
    if not options.page:
        with (
            tempfile.TemporaryDirectory(prefix="kstreams-waterfall-") as folder,
            Broker(port=free_port(), folder=Path(folder) / "broker", heap="1g") as broker,
        ):
            for kind in kinds:
                calls = recorded_run(WORKLOADS[kind], broker.bootstrap, Path(folder) / kind)
                trace.write(small_runs.trace_file(kind), calls)
                print(f"{kind}: {len(calls)} calls, {calls[0].for_ms:.0f} ms in capture")
    found = {kind: trace.read(small_runs.trace_file(kind)) for kind in small_runs.KINDS}
    for kind, calls in found.items():
        picture.draw(calls, small_runs.picture_file(kind))
    for step in small_runs.write(found):
        print(f"no text says what this protects: {step}")
    return 0


def recorded_run(workload: Workload, bootstrap: str, folder: Path) -> list[trace.Call]:
    """Make two runs of a workload, one with all that is there before and the one that is recorded.

    :param folder: for all that is written; it is made.
    """
    folder.mkdir()
    records = folder / "records"
    records.mkdir()
    startup = folder / "startup"
    startup.mkdir()
    (startup / "sitecustomize.py").write_text(_STARTS, encoding="utf-8")
    name = f"waterfall-{workload.name}"
    inputs = Inputs(bootstrap=bootstrap, show=lambda _title, _count: lambda _done: None)
    topics = inputs.fresh(workload, f"{name}-in")
    inputs.append(workload, topics["events"], 0, workload.before)
    create_topics(bootstrap, {f"{name}-out": workload.partitions})
    request: dict[str, Any] = {
        "guarantee": "exactly_once",
        "topology": workload.topology,
        "bootstrap": bootstrap,
        "application_id": name,
        "inputs": topics,
        "output": f"{name}-out",
    }
    path = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])
    with _environment({"PYTHONPATH": path}), Host("airflow", folder) as host:
        host.run({**request, "run_id": uuid.uuid4().hex[:8]})
    if workload.records:
        inputs.append(workload, topics["events"], workload.before, workload.records)
    run_id = uuid.uuid4().hex[:8]
    for task in TASKS:
        recording = {
            "PYTHONPATH": os.pathsep.join([str(startup), path]),
            FOLDER_VARIABLE: str(records),
            TASK_VARIABLE: task,
        }
        with _environment(recording), Host("airflow", folder) as host:
            host.run({**request, "run_id": run_id, "operators": [task]})
    return trace.joined(trace.recorded_in(records), TASKS)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment for the processes that the block starts."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
