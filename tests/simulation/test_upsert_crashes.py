"""Upserts land while processes die at calls of tables, commits come late, or another finish comes between."""

from __future__ import annotations

from functools import partial

import pytest

from airflow_kstreams.streams.tables.table_port import FileFacts
from tests.simulation.crash_points import Calls
from tests.simulation.landing_runs import RUNS
from tests.simulation.test_landing_crashes import LateCommit, OfTables, Process
from tests.simulation.upsert_runs import UPSERTED, UpsertRuns
from tests.support.kafka.interception import Meanwhile

#: At one in how many calls of tables something happens.
EVERY = (9, pytest.param(1, marks=pytest.mark.prove))


def played(calls: Calls) -> UpsertRuns:
    runs = UpsertRuns(lambda name: Process(calls, name))
    calls.on_death = runs.arrive_late
    runs.run()
    return runs


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("takes_effect", [False, True])
def test_each_key_has_its_last_row_when_a_process_dies_at_a_call_of_a_table(
    takes_effect: bool, every: int
) -> None:
    whole = Calls()
    first = played(whole)
    assert not first.wrong()
    assert first.last
    assert len(first.sent) > len(first.last) + 1
    of_tables = [number for number, name in enumerate(whole.made) if name.startswith(("table.", "files."))]
    assert len(of_tables) > 40
    wrong = {
        f"{whole.made[number]}, {number}": said
        for number in of_tables[int(takes_effect) * (every // 2) :: every]
        if (said := played(Calls(last=number, takes_effect=takes_effect)).wrong())
    }
    assert not wrong


@pytest.mark.parametrize("later", [1, 3])
def test_each_key_has_its_last_row_when_a_commit_comes_late_and_its_answer_is_lost(later: int) -> None:
    for number in range(1, 2 * len(RUNS) + 1):
        late = LateCommit(number, later)
        runs = UpsertRuns(lambda name, late=late: OfTables(late))  # type: ignore[misc]
        runs.run()
        assert late.happened
        assert not runs.wrong(), number


@pytest.mark.parametrize("every", EVERY)
def test_upsert_is_made_again_when_others_commit_between_two_calls(every: int) -> None:
    whole = Calls()
    played(whole)
    for number in range(0, sum(name.startswith("table.") for name in whole.made), every):
        runs = _interrupted(number)
        assert not runs.wrong(), number


def _interrupted(number: int) -> UpsertRuns:
    """Play the runs; before the n-th call of a table, others commit a file without rows."""

    def others_commit(runs: UpsertRuns) -> None:
        runs.tables.stored.setdefault("memory://other", (0, b"\x90"))
        for name in UPSERTED:
            if name in runs.tables.states:
                runs.tables.other_writer(name).append(FileFacts(path="memory://other", size=1, rows=0))

    holder: list[UpsertRuns] = []
    shared = OfTables(Meanwhile(number, lambda: others_commit(holder[0])))
    holder.append(UpsertRuns(lambda name: shared))
    holder[0].run()
    return holder[0]


@pytest.mark.parametrize("every", EVERY)
def test_each_key_has_its_last_row_when_another_finish_comes_between_two_calls_of_a_finish(
    every: int,
) -> None:
    whole = Calls()
    played(whole)
    of_finish = sum(name.endswith(f"of finish {RUNS[0]}") for name in whole.made)
    assert of_finish > 20
    for number in range(0, of_finish, every):
        runs = _finished_between(number)
        assert not runs.wrong(), number


def _finished_between(number: int) -> UpsertRuns:
    holder: list[UpsertRuns] = []
    shared = Meanwhile(number, lambda: holder[0].finish(RUNS[0], 1))
    nothing = partial(Meanwhile, -1, lambda: None)
    holder.append(UpsertRuns(lambda name: shared if name == f"finish {RUNS[0]}" else nothing()))
    holder[0].run()
    return holder[0]
