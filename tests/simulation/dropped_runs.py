"""Three runs that write to two tables, of which the second is dropped at some stage of its work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from airflow_kstreams.batch.ledger.ledger import Ledger, read_ledger
from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetPlan, ResetRequest
from airflow_kstreams.streams.errors import UpstreamNotDoneError
from airflow_kstreams.testing import FaultyCluster
from airflow_kstreams.testing.faults import FaultyTables, Interceptor
from tests.simulation.crash_points import Died, one_after_the_other
from tests.simulation.landing_runs import APPLICATION_ID, RUNS, TABLES, LandingRuns, topology

T = TypeVar("T")
FIRST, DROPPED, LAST = RUNS


class Lives:
    """Lets every call pass."""

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        """Make the call, see ``Interceptor``."""
        return effect()


class DiesAt:
    """A process that dies at the n-th call of a name, from 1.

    :param takes_effect: whether the call is still carried out.
    """

    def __init__(self, name: str, number: int = 1, *, takes_effect: bool = True) -> None:
        self._name, self._left, self._takes_effect = name, number, takes_effect

    def call(self, name: str, client: object, effect: Callable[[], T], arguments: tuple[Any, ...]) -> T:
        """Make the call, see ``Interceptor``."""
        self._left -= name == self._name
        if self._left > 0 or (self._left == 0 and name != self._name and not self._takes_effect):
            return effect()
        if self._left == 0 and self._takes_effect and name == self._name:
            effect()
        self._left = -1
        raise Died


#: How far the run has come -> the process that dies there, and the call at which it does. Before ``sealed``
#: a process of the run has died; in ``sealed`` none has, and none was started to finish the run.
STAGES: Mapping[str, tuple[str, Callable[[], Interceptor]]] = {
    "begun": (f"task 0_0, {DROPPED}", lambda: DiesAt("cluster.reader")),
    "a task has committed once": (f"task 0_0, {DROPPED}", lambda: DiesAt("writer.commit")),
    "one subtopology is done": (f"task 1_0, {DROPPED}", lambda: DiesAt("cluster.reader")),
    "sealed": ("", Lives),
    "landed in one table": (f"finish {DROPPED}", lambda: DiesAt("table.commit", 1)),
    "landed in both tables": (f"finish {DROPPED}", lambda: DiesAt("table.commit", 2)),
}
#: In these stages a mark is in a table.
LANDED = ("landed in one table", "landed in both tables")


class DroppedRuns:
    """One play.

    :ivar processes: name of a process -> what its calls pass; any other process lives.
    """

    def __init__(self) -> None:
        self.processes: dict[str, Interceptor] = {}
        self.runs = LandingRuns(lambda name: self.processes.get(name, Lives()))
        self.tables = self.runs.tables
        self.runs.kafka.clock.sleep(1.0)  # a run that is taken back at time 0 never was

    def until(self, stage: str) -> DroppedRuns:
        """Finish a run, and begin the next one, which comes to a stage."""
        name, dies = STAGES[stage]
        self.processes[name] = dies()
        self.begin()
        with one_after_the_other():
            self.drive()
            if stage in LANDED:
                with suppress(Died):
                    self.runs.finish(DROPPED)
        self.processes.clear()
        return self

    def begin(self) -> None:
        """Finish a run, and begin the next one."""
        with one_after_the_other():
            self.runs.arrive(0, 1, 1, 1)
            for body in (self.runs.capture, self.runs.drive, self.runs.finish):
                body(FIRST, 1)
            self.runs.arrive(0, 0, 0, 1, 1)
            self.runs.capture(DROPPED, 1)

    def drive(self) -> None:
        """Process the run that is to be dropped, as far as its processes live, and seal its list."""
        coordinator = self.runs.coordinator(f"driver {DROPPED}")
        begun = coordinator.begin(DROPPED, topology().plan(APPLICATION_ID), order=(0, 1), hold_lease=True)
        assert begun.slice is not None
        with suppress(UpstreamNotDoneError):
            for sub in begun.slice.plan.topology.subtopologies:
                if shares := coordinator.unfinished(begun.slice, sub.id):
                    self.runs.launch(begun.slice, shares)
        coordinator.close()

    def reset(self, interceptor: Interceptor | None = None, **request: Any) -> ResetPlan:
        """Drop the slice."""
        at_work = interceptor or Lives()
        with (
            one_after_the_other(),
            ApplicationReset(
                FaultyCluster(self.runs.kafka, at_work),
                ResetRequest(application_id=APPLICATION_ID, delete_stop_offsets=True, **request),
                settings=self.runs.settings,
                clock=self.runs.kafka.clock,
                tables=FaultyTables(self.tables, at_work),
            ) as tool,
        ):
            return tool.run()

    def go_on(self) -> None:
        """Process what is left in one more run."""
        with one_after_the_other():
            self.runs.on_way = LAST
            self.runs.arrive(0, 1)
            for body in (self.runs.capture, self.runs.drive, self.runs.finish):
                body(LAST, 1)

    @property
    def ledger(self) -> Ledger:
        """The ledger."""
        return read_ledger(self.runs.kafka, APPLICATION_ID, clock=self.runs.kafka.clock)

    def wrong(self) -> str:
        """Return what is wrong with what is in the tables; empty if nothing is."""
        ledger = self.ledger
        for name in TABLES:
            state, known = self.tables.state(name), ledger.tables[name]
            if state.marks != {(APPLICATION_ID, name): known.sequence}:
                return f"{name} has the marks {dict(state.marks)}, and the ledger has {known}"
        return self.runs.wrong(dropped=DROPPED)
