"""Files of runs land in tables while processes die at their port calls, or others change the tables."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import pytest

from airflow_kstreams.streams.errors import TableMovedError, TableUnavailableError
from airflow_kstreams.streams.table_plan import Column
from airflow_kstreams.streams.tables.table_port import FileFacts
from airflow_kstreams.testing.faults import Interceptor
from airflow_kstreams.testing.in_memory_tables import OtherWriter
from tests.simulation.crash_points import STEPS, Calls, Died, deaths
from tests.simulation.landing_runs import RUNS, TABLES, LandingRuns
from tests.support.kafka.interception import LosesAnswers, Meanwhile

pytestmark = pytest.mark.promise("rows-land-once")

T = TypeVar("T")
#: At one in how many calls of tables something happens.
EVERY = (4, pytest.param(1, marks=pytest.mark.prove))


class Process:
    """A process whose last call is one of all calls of all processes."""

    def __init__(self, calls: Calls, name: str) -> None:
        self._calls, self._name = calls, name
        self._dead = False

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        """Make the call, see ``Interceptor``."""
        if self._dead:
            raise Died
        number = len(self._calls.made)
        self._calls.made.append(f"{name} of {self._name}")
        if number != self._calls.last:
            return effect()
        if self._calls.takes_effect:
            effect()
        self._dead = True
        self._calls.on_death()
        raise Died


def played(calls: Calls) -> LandingRuns:
    runs = LandingRuns(lambda name: Process(calls, name))
    calls.on_death = runs.arrive_late
    runs.run()
    return runs


def test_small_files_of_each_run_are_merged_and_what_they_replace_is_deleted() -> None:
    runs = played(Calls())
    assert not runs.wrong()
    # In the second run one record arrives, and a task writes one file of it.
    assert runs.files(TABLES[0]) == ["0_1", "merged", "merged"]
    assert set(runs.tables.stored) == {path for name in TABLES for path in runs.tables.state(name).files}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("takes_effect", [False, True])
def test_each_row_lands_once_when_a_process_dies_at_a_port_call(takes_effect: bool, step: int) -> None:
    whole = Calls()
    assert not played(whole).wrong()
    assert "table.commit of finish run-1" in whole.made
    wrong = {
        f"{name}, {number}": said
        for number, name in deaths(whole.made, step=4 * step if step > 1 else 1, takes_effect=takes_effect)
        if (said := played(Calls(last=number, takes_effect=takes_effect)).wrong())
    }
    assert not wrong


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("takes_effect", [False, True])
def test_each_row_lands_once_when_a_process_dies_at_a_call_of_a_table(takes_effect: bool, every: int) -> None:
    whole = Calls()
    played(whole)
    of_tables = [number for number, name in enumerate(whole.made) if name.startswith(("table.", "files."))]
    assert len(of_tables) > 40
    wrong = {
        f"{whole.made[number]}, {number}": said
        for number in of_tables[int(takes_effect) * (every // 2) :: every]
        if (said := played(Calls(last=number, takes_effect=takes_effect)).wrong())
    }
    assert not wrong


def _append(other: OtherWriter) -> None:
    other.append(FileFacts(path="memory://other", size=1, rows=0))


CHANGES: dict[str, Callable[[OtherWriter], object]] = {
    "another snapshot": _append,
    "forgotten snapshots": lambda other: other.expire(1),
    "another optional column": lambda other: other.change_columns(
        (Column("text", "text"), Column("note", "text", required=False))
    ),
}


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("kind", CHANGES)
def test_each_row_lands_once_when_others_change_the_table_between_two_calls(kind: str, every: int) -> None:
    calls = Calls()
    played(calls)
    of_tables = sum(name.startswith("table.") for name in calls.made)
    for number in range(1, of_tables, every):
        runs = interrupted(number, lambda name: True, partial(_change_tables, kind=kind), OfTables)
        assert not runs.wrong(expired="forgotten" in kind), number


def _change_tables(runs: LandingRuns, kind: str) -> None:
    runs.tables.stored.setdefault("memory://other", (0, b"\x90"))
    for name in TABLES:
        if name in runs.tables.states:
            CHANGES[kind](runs.tables.other_writer(name))


def interrupted(
    number: int,
    concerns: Callable[[str], bool],
    action: Callable[[LandingRuns], object],
    seeing: Callable[[Interceptor], Interceptor] = lambda inner: inner,
) -> LandingRuns:
    """Play the runs; before the n-th call of some processes, from 0, something happens."""
    shared = seeing(Meanwhile(number, lambda: action(runs)))
    runs = LandingRuns(lambda name: shared if concerns(name) else Meanwhile(-1, lambda: None))
    runs.run()
    return runs


class OfTables:
    """Lets an interceptor see the calls of tables only."""

    def __init__(self, inner: Interceptor) -> None:
        self._inner = inner

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        """Make the call, see ``Interceptor``."""
        return self._inner.call(name, client, effect, arguments) if name.startswith("table.") else effect()


class LateCommit:
    """The n-th commit takes effect before a later call, or at once; its answer is lost.

    :param later: number of calls after which it takes effect.
    """

    def __init__(self, number: int, later: int) -> None:
        self._left, self._later = number, later
        self._kept: Callable[[], Any] | None = None
        self.happened = False

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        """Make the call, see ``Interceptor``."""
        if self._kept is not None:
            self._later -= 1
            if self._later <= 0:
                kept, self._kept = self._kept, None
                with suppress(TableMovedError):
                    kept()
        if name == "table.commit":
            self._left -= 1
            if self._left == 0:
                self.happened, self._kept = True, effect
                raise TableUnavailableError("no answer")
        return effect()


@pytest.mark.parametrize("later", [1, 3])
def test_each_row_lands_once_when_a_commit_comes_late_and_its_answer_is_lost(later: int) -> None:
    for number in range(1, 2 * len(RUNS) + 1):
        late = LateCommit(number, later)
        runs = LandingRuns(lambda name, late=late: OfTables(late))  # type: ignore[misc]
        runs.run()
        assert late.happened
        assert not runs.wrong(), number


@pytest.mark.parametrize("every", EVERY)
def test_each_row_lands_once_when_another_finish_comes_between_two_calls_of_a_finish(every: int) -> None:
    calls = Calls()
    played(calls)
    of_finish = sum(name.endswith(f"of finish {RUNS[0]}") for name in calls.made)
    assert of_finish > 20
    for number in range(0, of_finish, every):
        runs = interrupted(number, f"finish {RUNS[0]}".__eq__, lambda runs: runs.finish(RUNS[0], 1))
        assert not runs.wrong(), number


@pytest.mark.parametrize("every", EVERY)
def test_each_row_lands_once_when_the_answer_of_a_transaction_is_lost(every: int) -> None:
    calls = Calls()
    played(calls)
    commits = sum(name.startswith("writer.commit") for name in calls.made)
    assert commits > 20
    for number in range(0, commits, every):
        shared = LosesAnswers(number)
        runs = LandingRuns(lambda name, shared=shared: shared)  # type: ignore[misc]
        runs.run()
        assert not runs.wrong(), number
