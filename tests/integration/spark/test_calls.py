"""Calls of a service on Spark: what a worker that is killed has asked for takes no second effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.spark.calling_scene import CallingScene, kill

pytestmark = pytest.mark.promise("calls-change-no-result", "calls-keep-their-key")

RECORDS = 600


def test_each_record_takes_effect_once_when_a_worker_is_killed_in_the_middle_of_its_calls(
    calling: CallingScene, wait_until: Callable[..., Any]
) -> None:
    scene = calling.scene
    scene.publish(0, RECORDS)
    calling.service.hold_after(RECORDS // 3)
    driver = scene.start("run-1")
    worker = calling.in_the_middle(driver, wait_until, calls=8)
    frozen = scene.stops()
    kill(worker)
    calling.service.let_go()
    assert driver.wait() == 0, driver.output()[-6000:]
    assert scene.stops() == frozen
    calling.check()
    assert calling.service.repeated, "the worker's calls were made again, else nothing was looked at"
