"""A call that forks: the child ends with the call, and the task goes on as if nothing had happened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[5]

_SCRIPT = """
import os, random, sys
from airflow_kstreams.streams import KStreamBuilder, serdes
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.testing.seeded_caller import SeededCaller
from tests.support.topology.task_on_logs import TaskOnLogs, log_of

parent, threads = os.getpid(), sys.argv[1] == "threads"
seeded = (lambda async_nodes: SeededCaller(async_nodes, seed=1)) if sys.argv[2] == "seeded" else None
children = []

def fork(value):
    if value == 3:
        child = os.fork()
        if child:
            children.append(child)
    return value

async def fork_in_loop(value):
    return fork(value)

builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
function = fork if threads else fork_in_loop
builder.stream("in").map_values_async(function, threads=threads).send_to("out")
log = log_of(TopicPartition("in", 0), [(b"k", b"%d" % n, n) for n in range(8)])
logs = {TopicPartition("in", 0): log}
run = TaskOnLogs(topology=builder.build(), logs=logs, rng=random.Random(1), make_caller=seeded)
run.run()
assert os.getpid() == parent, "a child ran the task, too"
ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
print([int(record.value) for record in run.outputs], ended)
"""


@pytest.mark.parametrize("caller", ["threaded", "seeded"])
@pytest.mark.parametrize("how", ["coroutine", "threads"])
def test_child_ends_with_the_call_that_forked_it(how: str, caller: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, how, caller],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == (f"{[*range(8)]} [70]\n", "", 0)
