"""Processes die, or wake up too late, in the middle of their calls: sums are right, each record takes one
effect at the service, and what failed lies in the dead-letter topic as it came.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from tests.conftest import Row
from tests.support.spark.calling_scene import CallingScene, kill

pytestmark = [
    pytest.mark.prove,
    pytest.mark.promise("calls-change-no-result", "calls-keep-their-key", "failed-calls-have-an-outcome"),
]

RECORDS = 900
#: How often Spark starts a task of its own before it gives up.
SPARK_TRIES = 4
#: How long a driver's lease lasts in tests in which another one waits for it.
LEASE_MS = "4000"
WaitUntil = Callable[..., Any]


@pytest.mark.parametrize(("calls", "threads"), [("loop", "1"), ("threads", "4")])
def test_each_record_takes_effect_once_when_workers_and_then_the_driver_are_killed(
    calling: CallingScene, wait_until: WaitUntil, calls: str, threads: str
) -> None:
    calling = calling.using(calls=calls, storage="rocksdb")
    scene = calling.scene
    settings = {
        "num_stream_threads": threads,
        "num_threads_per_task": threads,
        "state_dir": str(scene.folder / "state"),
        "lease_ms": LEASE_MS,
    }
    scene.publish(0, RECORDS)
    calling.service.hold_after(RECORDS // 4)
    first = scene.start("run-1", **settings)
    worker = calling.in_the_middle(first, wait_until, calls=3)
    frozen = scene.stops()
    kill(worker)
    calling.service.hold_after(RECORDS // 2)
    calling.in_the_middle(first, wait_until, calls=3)
    first.kill()
    calling.service.let_go()
    second = scene.start("run-1", **settings)
    assert second.wait() == 0, second.output()[-6000:]
    assert scene.stops() == frozen
    calling.check()
    assert calling.service.repeated
    scene.publish(RECORDS, RECORDS + 100)
    third = scene.start("run-2", **settings)
    assert third.wait() == 0, third.output()[-6000:]
    calling.check()


def test_zombies_take_no_second_effect_when_they_wake_up_behind_their_retry(
    calling: CallingScene, wait_until: WaitUntil
) -> None:
    scene = calling.scene
    scene.publish(0, RECORDS)
    calling.service.hold_after(RECORDS // 3)
    first = scene.start("run-1", lease_ms=LEASE_MS, transaction_timeout_ms="10000")
    calling.in_the_middle(first, wait_until, calls=8)
    driver = psutil.Process(first.pid)
    family = [driver, *driver.children(recursive=True)]
    for process in family:
        process.suspend()
    calling.service.let_go()
    second = scene.start("run-1", lease_ms=LEASE_MS)
    assert second.wait() == 0, second.output()[-6000:]
    calling.check()
    for process in family:
        if process.is_running():
            process.resume()
    assert first.wait() == 1
    assert "RunSupersededError" in first.output(), first.output()[-6000:]
    calling.check()
    assert calling.service.repeated


def test_each_record_takes_effect_once_when_a_continuous_run_is_killed(
    calling: CallingScene, wait_until: WaitUntil
) -> None:
    scene = calling.scene
    scene.publish(0, RECORDS)
    calling.service.hold_after(RECORDS // 3)
    first = scene.start("forever", autostop_at="", lease_ms=LEASE_MS)
    calling.in_the_middle(first, wait_until, calls=8)
    first.kill()
    calling.service.let_go()
    second = scene.start("forever", autostop_at="", lease_ms=LEASE_MS)

    def arrived() -> bool:
        second.check_alive()
        return scene.results() == scene.sums(scene.sent)

    wait_until(arrived, "the sums of what was there", seconds=120)
    scene.publish(RECORDS, RECORDS + 100)
    wait_until(arrived, "the sums of what came since", seconds=120)
    second.signal(signal.SIGTERM)
    assert second.wait() == 0, second.output()[-6000:]
    calling.check()
    assert calling.service.repeated


def test_failed_call_leaves_its_records_own_bytes_in_the_dead_letter_topic(
    calling: CallingScene, consume_all: Callable[..., list[Row]]
) -> None:
    refused = 137
    calling = calling.using(refused=str(refused))
    scene = calling.scene
    scene.publish(0, 300)
    driver = scene.start("run-1", processing_exception_handler="dead-letter")
    assert driver.wait() == 0, driver.output()[-6000:]
    (original,) = (row for row in consume_all(scene.source) if row.json()["n"] == refused)
    (letter,) = consume_all(f"{scene.application_id}-dead-letter")
    assert (letter.key, letter.value) == (original.key, original.value)
    headers = dict(letter.headers)
    assert headers["__streams.errors.offset"] == str(original.offset).encode()
    assert b"no 137" in headers["__streams.errors.message"]
    assert scene.results() == scene.sums([row for row in scene.sent if row[1]["n"] != refused])
    (missing,) = calling.keys() - calling.service.charges.keys()
    assert f"/{scene.source}-{original.partition}@{original.offset}/" in missing
    assert calling.service.charges.keys() < calling.keys()


@pytest.mark.parametrize("calls", ["loop", "threads"])
def test_run_fails_by_name_and_passes_no_record_when_a_call_always_kills_its_process(
    calling: CallingScene, calls: str
) -> None:
    deadly = 137
    calling = calling.using(calls=calls, deadly=str(deadly))
    scene = calling.scene
    scene.publish(0, 300)
    driver = scene.start("run-1")
    assert driver.wait() == 1, driver.output()[-6000:]
    assert f"of run 'run-1' ended {SPARK_TRIES} times without an error" in driver.output()
    calling = calling.using(deadly="")
    again = calling.scene.start("run-1")
    assert again.wait() == 0, again.output()[-6000:]
    calling.check()
