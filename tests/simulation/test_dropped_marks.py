"""A mark may be dropped once its run is finished: so a finish looks at the table, and then at the ledger."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from types import SimpleNamespace

import pytest

from airflow_kstreams.streams.errors import RunBusyError
from tests.simulation.crash_points import one_after_the_other
from tests.simulation.landing_runs import APPLICATION_ID, RUNS, TABLES, LandingRuns
from tests.support.kafka.interception import Meanwhile
from tests.support.tables.packed_rows import unpacked


def finished_by_another(runs: LandingRuns) -> None:
    """Somebody else finishes the run, and drops its marks, as a backfill does."""
    coordinator = runs.coordinator("another")
    coordinator.finish(RUNS[0])
    coordinator.close()
    for name in TABLES:
        port = runs.tables.table(SimpleNamespace(location=name))
        look = port.look(APPLICATION_ID)
        assert look is not None
        port.drop_mark(look, APPLICATION_ID, name)


def landed_beside_another(number: int) -> tuple[LandingRuns, bool]:
    """A run is finished; before the n-th call of that, somebody else does so. Return the runs, and whether it
    came to that.
    """
    sleeper = Meanwhile(number, lambda: finished_by_another(runs))
    runs = LandingRuns(lambda name: sleeper if name == f"finish {RUNS[0]}" else Meanwhile(-1, lambda: None))
    runs.arrive(0, 1)
    with one_after_the_other():
        runs.drive(RUNS[0], 1)
        with suppress(RunBusyError):  # it lost a race, and would find the run finished
            runs.finish(RUNS[0])
    return runs, sleeper.happened


@pytest.mark.promise("rows-land-once")
def test_run_lands_once_when_its_marks_are_dropped_while_another_finish_sleeps() -> None:
    number = 0
    while (play := landed_beside_another(number))[1]:
        runs, number = play[0], number + 1
        for name in TABLES:
            assert Counter(row[0] for row in runs.tables.rows(name, unpacked)) == Counter(runs.sent), number
    assert number > 20
