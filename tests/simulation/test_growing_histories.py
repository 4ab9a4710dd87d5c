"""Histories that are drawn: a topic and its application grow, runs come between, and processes die at port
calls of theirs: runs, with their begins that take over and their tasks, catch-ups and aborts. Each is tried
again until it is through, and what comes out is what was sent, by key, once and in order.
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import event, given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams.partitioning.topic_growth import GrowthKind
from tests.property.test_partition_expansion import (
    EXPANSIONS,
    FIRST,
    KIND,
    Copy,
    Run,
    Step,
    begun,
    drain,
    play,
)
from tests.simulation.crash_points import Died, Mortal, one_after_the_other
from tests.support.examples import examples
from tests.unit.batch.growing.test_partition_growth import Scene

#: Of a process: its last port call, and whether the broker still carries it out.
DEATHS = st.lists(st.tuples(st.integers(1, 120), st.booleans()), min_size=2, max_size=10)


@settings(max_examples=examples(40), deadline=None)
@given(first=FIRST, kind=KIND, steps=st.lists(EXPANSIONS, min_size=4, max_size=12), deaths=DEATHS)
def test_keys_keep_state_and_order_however_processes_die_while_an_application_grows(
    first: int, kind: GrowthKind, steps: list[Step], deaths: list[tuple[int, bool]]
) -> None:
    scene, left = begun(first, kind, grow=True), iter(deaths)
    with one_after_the_other():
        for number, step in enumerate(steps):
            until_through(scene, step, number, kind, left)
    drain(scene, steps)
    assert scene.listed == scene.sent
    event(f"{len(scene.recorded.by_group) - first} more processors")


def until_through(
    scene: Scene, step: Step, number: int, kind: GrowthKind, deaths: Iterator[tuple[int, bool]]
) -> None:
    """Do what happens, again and again while it is cut short."""
    tries = 0
    while True:
        tries += 1
        death = next(deaths, None) if isinstance(step, Copy) or step in (Run, "abort") else None
        scene.app.interceptor = None if death is None else Mortal(death[0], takes_effect=death[1])
        try:
            if step == Run and tries > 1:
                if not is_finished(scene):
                    scene.again(tries)
            else:
                play(scene, step, number, kind)
        except Died:
            event(f"{'a catch-up' if isinstance(step, Copy) else step} died")
        else:
            return
        finally:
            scene.app.interceptor = None


def is_finished(scene: Scene) -> bool:
    """Whether the run that was begun last is finished."""
    coordinator = scene.app.coordinator()
    try:
        return coordinator.session.read_ledger().is_finished(f"run-{scene.runs}")
    finally:
        coordinator.close()
