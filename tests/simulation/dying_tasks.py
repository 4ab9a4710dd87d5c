"""One run whose tasks die at a chosen port call, and begin again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar

from airflow_kstreams.batch.protocol.slice.slice import Slice
from airflow_kstreams.batch.run.coordinator import Coordinator
from airflow_kstreams.testing import InMemoryKafka
from tests.simulation.crash_points import Calls, Died
from tests.support.kafka.in_process import Application

T = TypeVar("T")


def run_tasks(
    app: Application,
    kafka: InMemoryKafka,
    calls: Calls,
    driver: Coordinator,
    slice_: Slice,
    *,
    spark_tries_again: bool,
) -> None:
    """Run the tasks of a slice, as often as its driver finds them unfinished.

    :param spark_tries_again: whether a task that died begins again before its driver hears of it.
    """
    for subtopology in slice_.plan.topology.subtopologies:
        while shares := driver.unfinished(slice_, subtopology.id):
            for share in shares:
                name = f"task {subtopology.id}_{share.group}"
                try:
                    dataclasses.replace(app, on=calls.process(kafka, name)).launched(slice_, share)
                except Died:
                    if spark_tries_again:
                        app.launched(slice_, share)


def other_results(
    results: Callable[[Calls], list[T]],
    undisturbed: Calls,
    expected: list[T],
    *,
    takes_effect: bool,
    every: int = 1,
) -> dict[str, list[T]]:
    """Play once per port call; return the calls after whose death something else came out.

    :param every: one call in so many; before one, after another.
    """
    found: dict[str, list[T]] = {}
    for number in range(int(takes_effect) % every, len(undisturbed.made), every):
        call = undisturbed.made[number]
        came = results(Calls(last=number, takes_effect=takes_effect))
        if came != expected:
            found[f"no. {number}, {call}"] = came
    return found
