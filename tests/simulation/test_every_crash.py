"""A process dies at port calls of two runs, one play each; nothing is left to chance."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from airflow_kstreams.streams.errors import KStreamsError
from airflow_kstreams.streams.ports import TopicPartition
from tests.simulation.checkers import check
from tests.simulation.crash_points import (
    PARTITIONS,
    REPARTITION,
    RUNS,
    STEPS,
    THREE_STAGES,
    Calls,
    Play,
    deaths,
)
from tests.simulation.expectations import Expectations, ViolationError
from tests.simulation.history import LEDGER, History
from tests.simulation.protections import PROTECTIONS
from tests.simulation.stages import APPLICATION_ID

pytestmark = pytest.mark.promise("exactly-once", "stops-never-move")

_SOURCES = ("a", "b", REPARTITION)


def play(calls: Calls, guarantee: str) -> Play:
    made = Play(calls, guarantee)
    made.run()
    return made


def judge(played: Play, *, exactly_once: bool) -> None:
    """Say what is wrong with a play.

    :raises ViolationError: something is.
    """
    expected = Expectations(
        application=THREE_STAGES,
        run_ids=frozenset(RUNS),
        partitions={**PARTITIONS, REPARTITION: 1, f"{APPLICATION_ID}-s-changelog": 1},
        exactly_once=exactly_once,
        outsiders=frozenset(played.outsiders),
        commit_every=2,
    )
    check(played.history, expected)
    stops_are_the_first_ones(played.history)
    ledger_counts_each_record_once(played)
    everything_came_out(played, once=exactly_once)
    if hanging := played.kafka.hanging_transactions():
        raise ViolationError(f"transactions were left open: {hanging}")


def stops_are_the_first_ones(history: History) -> None:
    """The ledger tells the stops that stood in the topic when the run's first marker came."""
    stops: dict[str, str | None] = {}
    first: dict[str, dict[TopicPartition, int]] = {}
    for entry in history.metadata:
        stops[entry.key] = entry.value
        if entry.key == APPLICATION_ID and entry.value == "0":
            frozen = {TopicPartition("a", number): int(stops[f"a_{number}"] or -1) for number in range(2)}
            first.setdefault(entry.headers["kstreams.run"], frozen)
    for run in history.finished:
        told = {tp: stop for tp, (_, stop) in run.spans.items()}
        if told != first[run.run_id]:
            raise ViolationError(f"{run.run_id} froze {first[run.run_id]} and finished with {told}")


def ledger_counts_each_record_once(played: Play) -> None:
    """The tasks' own counts, which survive crashes with their offsets, equal what the slices held."""
    for record in played.kafka.records(LEDGER):
        key = (record.key() or b"").decode()
        if key.startswith("__"):
            continue
        run = next(number for number, found in enumerate(played.history.finished) if found.run_id == key)
        held = sum(len(slices[run]) for topic in _SOURCES for slices in played.history.read(topic).values())
        counts = json.loads(record.value() or b"").get("record_counts", {})
        told = sum(counts.get("read", {}).values())
        if told != held:
            raise ViolationError(f"{key} counted {told} records, its slices held {held}")


def everything_came_out(played: Play, *, once: bool) -> None:
    """After the last run each value that arrived stands in the newest result of its key, once unless the
    guarantee allows more.
    """
    newest = {record.key(): (record.value() or b"").decode() for record in played.kafka.records("out")}
    came = Counter(value for joined in newest.values() for value in joined.split("|"))
    lost, more = Counter(played.arrived) - came, came - Counter(played.arrived)
    if lost or (more and once) or more.keys() - {*played.arrived}:
        raise ViolationError(f"lost {dict(lost)}, more than once {dict(more)}")


def what_is_wrong(calls: Calls, guarantee: str) -> str:
    """Play, and say what went wrong; empty if nothing."""
    try:
        judge(play(calls, guarantee), exactly_once=guarantee == "exactly_once")
    except (ViolationError, KStreamsError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def violations(
    guarantee: str, *, takes_effect: bool, step: int = 1, of: str = "", most: int = 5
) -> list[str]:
    """Play undisturbed, then once per port call of the first two runs, and return what went wrong.

    :param step: one in how many calls.
    :param of: which processes are to die; any unless given.
    """
    calls = Calls()
    wrong = what_is_wrong(calls, guarantee)
    found = [f"undisturbed: {wrong}"] if wrong else []
    for number, call in deaths(calls.made, step=step, takes_effect=takes_effect):
        if len(found) >= most or call.endswith(RUNS[-1]):
            break
        if f" of {of}" not in call:
            continue
        crashing = Calls(last=number, takes_effect=takes_effect)
        if wrong := what_is_wrong(crashing, guarantee):
            found.append(f"no. {number}, {call}: {wrong}")
        assert crashing.made[: number + 1] == calls.made[: number + 1], "a play is not repeatable"
    return found


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("takes_effect", [False, True], ids=["before", "after"])
def test_everything_comes_once_when_a_process_dies_at_any_port_call(takes_effect: bool, step: int) -> None:
    assert violations("exactly_once", takes_effect=takes_effect, step=step) == []


@pytest.mark.promise("at-least-once")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("takes_effect", [False, True], ids=["before", "after"])
def test_nothing_is_lost_or_moved_when_a_task_of_at_least_once_dies_at_any_port_call(
    takes_effect: bool, step: int
) -> None:
    assert violations("at_least_once", takes_effect=takes_effect, step=step, of="task") == []


@pytest.mark.parametrize(
    "protection",
    [
        "stops are frozen",
        "idle tasks notify",
        # Late in the runs. dev/test finds them missing by seeds (test_protections.py).
        pytest.param("offsets in the transaction", marks=pytest.mark.prove),
        pytest.param("read committed", marks=pytest.mark.prove),
    ],
)
def test_violation_is_found_when_a_protection_is_off(protection: str) -> None:
    with PROTECTIONS[protection].missing():
        assert violations("exactly_once", takes_effect=False, most=1)
