"""Workers and drivers die, or wake up too late, while records are parked, over runs in which the service is
away for some keys: each key is asked in order, each record takes one effect, and what comes out is what one
gets without all that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from airflow_kstreams.batch.inspect.status import read_status
from airflow_kstreams.kafka.cluster import KafkaCluster
from tests.support.spark.calling_scene import CallingScene, kill

pytestmark = [pytest.mark.prove, pytest.mark.timeout(400), pytest.mark.promise("retries-keep-order")]

APPLICATION = Path(__file__).parents[1] / "applications" / "counted_answers.py"
RECORDS = 220
SETTINGS = {"lease_ms": "4000", "retry_run_budget_ms": "3000", "transaction_timeout_ms": "10000"}
#: Keys for which the service is away, by run.
AWAY = (
    {"key-1", "key-2", "key-4", "key-7", "key-9"},
    {"key-2", "key-3", "key-4"},
    set[str](),
)
#: What dies in each run, one after the other.
KILLED = (("worker", "driver"), ("driver",), ("worker",))
WaitUntil = Callable[..., Any]


def counts_of(calling: CallingScene) -> dict[str, list[int]]:
    """The oracle: by key, 1 for its first record, 2 for the next one."""
    found: dict[str, list[int]] = defaultdict(list)
    for key, _ in calling.scene.sent:
        found[key].append(len(found[key]) + 1)
    return found


def written(calling: CallingScene) -> dict[str, list[list[int]]]:
    """What came out of each key, in order."""
    found: dict[str, list[list[int]]] = defaultdict(list)
    for row in calling.scene.consume_all(calling.scene.target):
        found[row.key.decode()].append(msgspec.json.decode(row.value))
    return found


def charged(calling: CallingScene) -> dict[str, list[int]]:
    """Which effects came at the service, by key, in order."""
    found: dict[str, list[int]] = defaultdict(list)
    for asked in calling.service.charges.values():
        found[asked["key"]].append(asked["count"])
    return found


def check_order(calling: CallingScene) -> None:
    """No process asks for anything before what comes before it in its key, whether it gets an answer."""
    found: dict[tuple[int, str], list[int]] = defaultdict(list)
    for process, asked in calling.service.asked:
        found[process, asked["key"]].append(asked["count"])
    for place, counts in found.items():
        assert counts == sorted(counts), place


def state(calling: CallingScene, store: str) -> dict[str, Any]:
    """What a store holds, by its changelog."""
    rows = calling.scene.consume_all(f"{calling.scene.application_id}-{store}-changelog")
    latest = {row.key.decode(): row.value for row in rows}
    return {key: msgspec.json.decode(value) for key, value in latest.items() if value is not None}


def is_away(keys: set[str], asked: Any) -> bool:
    return asked["key"] in keys


def parked(calling: CallingScene) -> int:
    cluster = KafkaCluster({"bootstrap.servers": calling.scene.bootstrap})
    status = read_status(cluster, calling.scene.application_id)
    counts = [count for by_group in status.parked.values() for count in by_group.values()]
    assert None not in counts
    return sum(count or 0 for count in counts)


def prepared(calling: CallingScene, **environment: str) -> CallingScene:
    """Return the scene with the application of this module."""
    return replace(calling, scene=replace(calling.scene, application=APPLICATION)).using(**environment)


def check_so_far(calling: CallingScene, away: set[str]) -> None:
    """Check the effects at the end of a run in which the service was away for some keys."""
    assert (parked(calling) > 0) == bool(away)
    effects = charged(calling)
    for key, counts in counts_of(calling).items():
        done = effects[key]
        assert key in away or done == counts
        assert done == counts[: len(done)], f"{key} in order, each once"
    check_order(calling)


def check_in_the_end(calling: CallingScene) -> None:
    """Check that everything is as if the service had never been away."""
    every = counts_of(calling)
    assert charged(calling) == every
    assert calling.service.charges.keys() == calling.keys("ask")
    assert written(calling) == {
        key: [asked[:end] for end in range(1, len(asked) + 1)] for key, asked in every.items()
    }
    assert state(calling, "counts") == {key: [key, asked[-1]] for key, asked in every.items()}
    assert state(calling, "answers") == every
    assert calling.service.repeated, "calls were made again, else nothing was looked at"


@pytest.mark.parametrize("storage", ["memory", "rocksdb"])
def test_runs_leave_what_undisturbed_calls_leave_when_the_service_is_away_and_processes_are_killed(
    calling: CallingScene, wait_until: WaitUntil, storage: str
) -> None:
    calling = prepared(calling, storage=storage)
    scene, service = calling.scene, calling.service
    settings = {**SETTINGS, "state_dir": str(scene.folder / "state")}
    for number, (away, killed) in enumerate(zip(AWAY, KILLED, strict=True)):
        service.away = partial(is_away, away)
        scene.publish(number * RECORDS, (number + 1) * RECORDS)
        run_id = f"run-{number + 1}"
        driver = scene.start(run_id, **settings)
        for who in killed:
            service.hold_after(len(service.charges) + RECORDS // 6)
            worker = calling.in_the_middle(driver, wait_until, calls=2)
            if who == "worker":
                kill(worker)
            else:
                driver.kill()
                driver = scene.start(run_id, **settings)
        service.let_go()
        assert driver.wait() == 0, driver.output()[-6000:]
        check_so_far(calling, away)
    check_in_the_end(calling)


def test_zombies_harm_no_parked_record_when_they_wake_up_behind_the_driver_that_took_their_run(
    calling: CallingScene, wait_until: WaitUntil
) -> None:
    calling = prepared(calling)
    scene, service = calling.scene, calling.service
    service.away = partial(is_away, AWAY[0])
    scene.publish(0, RECORDS)
    service.hold_after(RECORDS // 4)
    first = scene.start("run-1", **SETTINGS)
    calling.in_the_middle(first, wait_until, calls=2)
    driver = psutil.Process(first.pid)
    family = [driver, *driver.children(recursive=True)]
    for process in family:
        process.suspend()
    service.let_go()
    second = scene.start("run-1", **SETTINGS)
    assert second.wait() == 0, second.output()[-6000:]
    check_so_far(calling, AWAY[0])
    for process in family:
        if process.is_running():
            process.resume()
    assert first.wait() == 1
    assert "RunSupersededError" in first.output(), first.output()[-6000:]
    check_so_far(calling, AWAY[0])
    service.away = partial(is_away, AWAY[2])
    third = scene.start("run-2", **SETTINGS)
    assert third.wait() == 0, third.output()[-6000:]
    check_so_far(calling, AWAY[2])
    check_in_the_end(calling)
