"""A triggerer's event loop belongs to everybody: our triggers leave it free."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.fresh_python import ROOT

_ALLOWED_SECONDS = 0.1

#: Runs both triggers in a process like a triggerer's, as the first of theirs in it, with a broker that is not
#: there. The processor time of the loop's own thread says how long a step kept the loop, whatever else the
#: machine does; whatever waits outside of Python's sight is asked of clients, which are on other threads.
_SCENARIO = """
import asyncio, json, os, sys, threading, time
import airflow.jobs.triggerer_job_runner
from airflow_kstreams.triggers.condition import ConditionTrigger
from airflow_kstreams.triggers.finished_run_watch import FinishedRunsTrigger

loop_thread = threading.get_ident()
waits, steps = [], []

def audit(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen", "time.sleep"):
        if threading.get_ident() == loop_thread:
            waits.append(event)

sys.addaudithook(audit)
run = asyncio.Handle._run

def timed(handle):
    began = time.thread_time()
    try:
        return run(handle)
    finally:
        steps.append((time.thread_time() - began, repr(handle)))

asyncio.Handle._run = timed

async def first(trigger):
    async for event in trigger.run():
        return event

async def main():
    sensor = ConditionTrigger(
        condition={"type": "run-finished", "application_id": "app", "run_id": "one"},
        kafka_conn_id="kafka_default", poke_interval=0.01, deadline=time.time() + 600,
    )
    watcher = FinishedRunsTrigger(application_id="app")
    producer = FinishedRunsTrigger.create_shared_stream_producer(watcher.serialize()[1])
    stream = producer.open_stream()
    tasks = [asyncio.ensure_future(first(sensor)), asyncio.ensure_future(anext(stream))]
    threads = lambda: {thread.name.partition("_")[0] for thread in threading.enumerate()}
    ours = {"kstreams-watch", "kstreams-finished-runs"}
    while not (ours <= threads() and "confluent_kafka" in sys.modules):
        await asyncio.sleep(0.01)
    for _ in range(100):
        await asyncio.sleep(0.01)
    assert not any(task.done() for task in tasks), tasks
    print(json.dumps({"longest": max(steps), "steps": len(steps), "waits": waits}), flush=True)
    os._exit(0)

asyncio.run(main())
"""


def test_no_step_keeps_the_loop_when_the_broker_cannot_be_reached(tmp_path: Path, free_port: int) -> None:
    extra = {"bootstrap.servers": f"127.0.0.1:{free_port}"}
    done = subprocess.run(
        [sys.executable, "-c", _SCENARIO],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "AIRFLOW_HOME": str(tmp_path),
            "AIRFLOW_CONN_KAFKA_DEFAULT": json.dumps({"conn_type": "kafka", "extra": extra}),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["waits"] == []
    assert found["steps"] > 100
    seconds, step = found["longest"]
    assert seconds < _ALLOWED_SECONDS, step
