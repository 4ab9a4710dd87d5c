"""Runs that write to tables are dropped while the reset dies at its port calls, or they are still at work."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.testing.faults import Interceptor
from tests.simulation.crash_points import Died
from tests.simulation.dropped_runs import DROPPED, LANDED, STAGES, DroppedRuns
from tests.support.crash import Crash
from tests.support.kafka.interception import CrashingAt, Meanwhile

#: The calls that change Kafka or a table, and every call.
pytestmark = pytest.mark.promise("rows-land-once")
CHANGES = ("writer.commit", "table.commit")
WHOLE = [
    *((stage, CHANGES) for stage in ("a task has committed once", "landed in one table")),
    *(pytest.param(stage, ("",), marks=pytest.mark.prove) for stage in STAGES),
]


@pytest.mark.parametrize("stage", STAGES)
def test_what_a_dropped_run_has_committed_lands_once(stage: str) -> None:
    play = DroppedRuns().until(stage)
    done = play.reset()
    landed = stage in LANDED
    assert (done.dropped_run, done.finished_run) == ((None, DROPPED) if landed else (DROPPED, ""))
    assert play.ledger.is_finished(DROPPED) is landed
    assert {known.sequence for known in play.ledger.tables.values()} == {2}
    play.go_on()
    assert play.wrong() == ""


@pytest.mark.parametrize(("stage", "at"), WHOLE)
def test_dropped_run_lands_once_when_the_reset_dies_anywhere(stage: str, at: tuple[str, ...]) -> None:
    counting = CrashingAt()
    DroppedRuns().until(stage).reset(counting)
    wrong = {}
    died = 0
    for number, name in enumerate(counting.calls):
        for after in (False, True) if name.startswith(at) else ():
            play = DroppedRuns().until(stage)
            with suppress(Crash):
                play.reset(CrashingAt(number, after=after))
            died += 1
            play.reset()
            play.go_on()
            if said := play.wrong():
                wrong[f"{'after' if after else 'before'} {name}, call {number}"] = said
    assert not wrong
    assert died > 4


#: Who is at work -> the number of its calls between two of which the run is dropped; every call under prove.
AT_WORK = [
    (f"finish {DROPPED}", "sealed", 9),
    (f"driver {DROPPED}", "begun", 23),
    (f"task 0_1, {DROPPED}", "begun", 13),
    *(
        pytest.param(who, stage, 1, marks=pytest.mark.prove)
        for who, stage in (
            (f"finish {DROPPED}", "sealed"),
            (f"finish {DROPPED}", "landed in one table"),
            (f"driver {DROPPED}", "begun"),
            (f"task 0_1, {DROPPED}", "begun"),
            (f"task 1_0, {DROPPED}", "begun"),
        )
    ),
]


@pytest.mark.parametrize(("who", "stage", "every"), AT_WORK)
def test_dropped_run_lands_once_when_it_is_at_work_meanwhile(who: str, stage: str, every: int) -> None:
    """Whoever slept while the run was dropped goes on with what it has looked at."""
    counting = CrashingAt()
    worked(stage, who, counting)
    assert len(counting.calls) > every
    for number in range(0, len(counting.calls), every):
        play = DroppedRuns()
        worked(stage, who, Meanwhile(number, partial(play.reset, force=True)), play)
        play.reset(force=True)  # of a driver that began the run anew
        play.go_on()
        assert play.wrong() == "", (number, counting.calls[number])


def worked(stage: str, who: str, interceptor: Interceptor, play: DroppedRuns | None = None) -> None:
    """A process of the run works, after the run has come to a stage, or as it comes there."""
    play = play or DroppedRuns()
    play.processes[who] = interceptor
    with suppress(KStreamsError, Died):
        if stage == "begun":
            play.begin()
            play.drive()
        else:
            play.until(stage)
            play.processes[who] = interceptor
            play.runs.finish(DROPPED)
    play.processes.clear()


AGAIN: dict[str, Any] = {"input_topics": ("in",), "intermediate_topics": ("mid",), "tables": "remove"}


@pytest.mark.parametrize("at", [CHANGES, pytest.param(("",), marks=pytest.mark.prove)])
def test_rows_are_taken_out_once_when_the_reset_dies_anywhere(at: tuple[str, ...]) -> None:
    counting = CrashingAt()
    DroppedRuns().until("sealed").reset(counting, **AGAIN)
    wrong = {}
    for number, name in enumerate(counting.calls):
        for after in (False, True) if name.startswith(at) else ():
            play = DroppedRuns().until("sealed")
            with suppress(Crash):
                play.reset(CrashingAt(number, after=after), **AGAIN)
            play.reset(**AGAIN)
            assert not any(state.files for state in play.tables.states.values()), name
            play.go_on()
            if said := play.wrong():
                wrong[f"{'after' if after else 'before'} {name}, call {number}"] = said
    assert not wrong


@pytest.mark.parametrize("every", [60, pytest.param(1, marks=pytest.mark.prove)])
def test_rows_are_taken_out_once_when_another_reset_comes_between_two_calls_of_the_first(every: int) -> None:
    counting = CrashingAt()
    DroppedRuns().until("sealed").reset(counting, **AGAIN)
    for number in range(every // 2, len(counting.calls), every):
        play = DroppedRuns().until("sealed")
        meanwhile = Meanwhile(number, partial(play.reset, force=True, **AGAIN))
        with suppress(KStreamsError):
            play.reset(meanwhile, **AGAIN)
        play.reset(force=True, **AGAIN)
        play.go_on()
        assert play.wrong() == "", (number, counting.calls[number])
