"""Intermediate topics at any depth: drawn DAGs of subtopologies, whole runs on the in-memory Kafka.

The real driver's loop, job launcher, coordinator and tasks run in a seeded world. The tasks of one to four
slots interleave at their port calls, records keep arriving, outsiders write the user's own topics between
subtopologies, and now and then a process dies.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import InMemoryKafka
from tests.simulation.airflow import DagRun, Scheduler
from tests.simulation.checkers import check
from tests.simulation.drawn_dags import Dag, Edge, Stage, dags
from tests.simulation.expectations import Expectations
from tests.simulation.faults import Fault, PlannedFault
from tests.simulation.history import History
from tests.simulation.injector import FaultInjector
from tests.simulation.machines import Machine
from tests.simulation.stages import APPLICATION_ID, Application
from tests.simulation.threads import running_in
from tests.simulation.world import Process, World
from tests.support.examples import examples

pytestmark = pytest.mark.promise("intermediate-topics-are-drained")

_TASK = re.compile(r"task (\d+)_(\d+) ")
#: Calls at which a process may die, and up to which of them.
_DEATHS = {"writer.commit": 12, "writer.produce": 40, "reader.poll": 40, "admin.end_offsets": 30}


@dataclass(frozen=True, slots=True, kw_only=True)
class Happenings:
    """What happens around a DAG.

    :param runs: per run, how many records arrive in each input, before it.
    :param seed: of the interleaving, of what arrives where, and while runs go on.
    :param slots: tasks at the same time.
    """

    runs: tuple[int, ...]
    seed: int
    slots: int
    guarantee: str
    deaths: tuple[tuple[str, int, Fault], ...]


def happenings() -> st.SearchStrategy[Happenings]:
    death = st.tuples(
        st.sampled_from(sorted(_DEATHS)),
        st.integers(1, 40),
        st.sampled_from((Fault.CRASH_BEFORE, Fault.CRASH_AFTER)),
    )
    return st.builds(
        Happenings,
        runs=st.lists(st.integers(0, 8), min_size=1, max_size=3).map(tuple),
        seed=st.integers(0, 1 << 16),
        slots=st.integers(1, 4),
        guarantee=st.sampled_from(("exactly_once", "exactly_once", "at_least_once")),
        deaths=st.one_of(st.just(()), st.lists(death, min_size=1, max_size=3).map(tuple)),
    )


class RecordingWorld(World):
    """A world that remembers when each task was started, in commits made until then."""

    def __init__(self, random: Random, commits: list[Any]) -> None:
        super().__init__(random)
        self._commits = commits
        self.started: list[tuple[str, int]] = []

    def start(self, name: str, role: str, body: Callable[[], Any], machine: Machine | None = None) -> Process:
        if role == "task":
            self.started.append((name, len(self._commits)))
        return super().start(name, role, body, machine)


@dataclass
class Play:
    """The runs of one example."""

    dag: Dag
    around: Happenings
    arrived: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    number: int = 0

    def __post_init__(self) -> None:
        self.random = Random(self.around.seed)
        self.history = History()
        self.world = RecordingWorld(Random(self.around.seed + 1), self.history.commits)
        self.kafka = InMemoryKafka(clock=self.world, random=Random(self.around.seed + 2))
        self.kafka.observe(self.history.commits.append)
        for topic, count in self.dag.partitions.items():
            self.kafka.create_topic(topic, partitions=count)
        self.topology = self.dag.build()
        deaths = () if self.around.guarantee == "at_least_once" else self.around.deaths
        self.injector = FaultInjector(
            self.world,
            self.kafka,
            [
                PlannedFault(call=call, fault=fault, number=1 + number % _DEATHS[call])
                for call, number, fault in deaths
            ],
            random=self.random,
            second_owner=lambda: None,
        )
        self.injector.slots = self.around.slots
        self.scheduler = Scheduler(
            self.topology,
            settings=ApplicationSettings.parse(
                APPLICATION_ID,
                {
                    "processing.guarantee": self.around.guarantee,
                    "commit.every.records": self.random.choice((0, 1, 3)),
                    "transaction.timeout.ms": 10_000,
                    "lease.ms": 10_000,
                    "settle.ms": 200,
                },
            ),
            injector=self.injector,
            separate_finish=self.random.random() < 0.5,
        )

    def run(self) -> None:
        """Run the DAG runs, and one more for what came while the last one was at work."""
        with running_in(self.world, self.around.seed):
            main = self.world.start("airflow", "airflow", self._main)
            self.world.run(main)
            if main.ending is not None and main.ending.error is not None:
                raise main.ending.error
        self.history.digest()

    def _main(self) -> None:
        for number, count in enumerate(self.around.runs):
            self._arrive(count)
            others = self.world.start("producers", "producer", self._keep_arriving)
            self.scheduler.dag_run(DagRun(run_id=f"run-{number}"))
            others.wait()
        self.scheduler.dag_run(DagRun(run_id="run-last"))

    def _keep_arriving(self) -> None:
        for _ in range(self.random.randint(0, 3)):
            self.world.sleep(self.random.choice((0.01, 0.1, 0.5)))
            self._arrive(1)

    def _arrive(self, count: int) -> None:
        for topic in (*self.dag.inputs, *self.random.sample(self.dag.between, min(1, len(self.dag.between)))):
            for _ in range(self.random.randint(0, count)):
                self.number += 1
                value = f"{self.number}."
                self.arrived[topic].append(value)
                partition = self.random.randrange(self.dag.partitions[topic])
                self.kafka.append(topic, value.encode(), b"k%d" % (self.number % 5), partition=partition)

    # == what must hold

    def judge(self) -> None:
        plan = self.topology.plan(APPLICATION_ID)
        between = {*plan.intermediates}
        check(
            self.history,
            Expectations(
                application=Application(
                    name="drawn",
                    build=lambda storage: self.topology,
                    inputs=tuple(self.dag.inputs),
                    through=tuple(self.dag.between),
                    stages=(),
                    subtopologies=tuple(
                        (sub.sources, tuple(topic for topic in sub.sinks if topic in between))
                        for sub in plan.subtopologies
                    ),
                ),
                run_ids=frozenset({"run-last", *(f"run-{n}" for n in range(len(self.around.runs)))}),
                partitions={topic: len(self.kafka.partitions(topic)) for topic in self.kafka.topics()},
                exactly_once=self.around.guarantee == "exactly_once",
                outsiders=frozenset((t, v) for t in self.dag.between for v in self.arrived[t]),
                commit_every=0,
            ),
        )
        self._outputs_are_exact()
        self._nothing_lags(plan.sources)
        self._nobody_starts_before_upstream_is_done()

    def _outputs_are_exact(self) -> None:
        for topic, expected in self.dag.results(self.arrived).items():
            found = Counter((value or b"").decode() for value in self.kafka.values(topic))
            assert found == expected, f"{topic}: lost {expected - found}, more {found - expected}"

    def _nothing_lags(self, sources: tuple[str, ...]) -> None:
        self.world.seconds += 1  # a commit returns before its offsets are to be seen
        partitions = [tp for topic in sources for tp in self.kafka.partitions(topic)]
        # A commit returns before its markers are written: those of the last one arrive after the end.
        self.world.seconds += 1
        committed = self.kafka.reader(group_id=APPLICATION_ID, isolation="read_uncommitted").committed(
            partitions
        )
        ends = self.kafka.admin().end_offsets(partitions, isolation="read_uncommitted")
        assert {tp: committed[tp].offset for tp in partitions} == ends

    def _nobody_starts_before_upstream_is_done(self) -> None:
        plan = self.topology.plan(APPLICATION_ID)
        upstream = {
            sub.id: {writer.id for topic in sub.sources for writer in plan.writers_of(topic)}
            for sub in plan.subtopologies
        }
        ends = [run.commit for run in self.history.finished]
        for name, at in self.world.started:
            found = _TASK.match(name)
            assert found is not None
            end = next(number for number in ends if number >= at)
            for number, commit in enumerate(self.history.commits[at:end], start=at):
                task = re.fullmatch(rf"{APPLICATION_ID}-(\d+)_\d+", commit.transactional_id or "")
                late = task is not None and int(task[1]) in upstream[int(found[1])]
                assert not late, (
                    f"{name} was started, and then {commit.transactional_id} committed ({number})"
                )


#: The most of everything: twelve partitions up- and downstream of five, tasks on four slots, and deaths.
_WIDEST = (
    Dag(
        partitions={"in0": 12, "mid0": 5, "mid1": 12, "mid2": 1, "out0": 3},
        stages=(Stage(topics=("in0",)), Stage(topics=("mid0",)), Stage(topics=("mid1", "mid2"))),
        sends={
            "mid0": (Edge(stage=0, mark="a"),),
            "mid1": (Edge(stage=1, mark="b"),),
            "mid2": (Edge(stage=0, mark="c"), Edge(stage=1, mark="d")),
            "out0": (Edge(stage=2, mark="e"),),
        },
    ),
    Happenings(
        runs=(40, 0, 40),
        seed=12,
        slots=4,
        guarantee="exactly_once",
        deaths=(("writer.commit", 4, Fault.CRASH_AFTER), ("reader.poll", 9, Fault.CRASH_BEFORE)),
    ),
)


@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
@example(*_WIDEST)
@given(dags(), happenings())
def test_every_record_comes_out_once_when_subtopologies_are_drawn(dag: Dag, around: Happenings) -> None:
    play = Play(dag, around)
    event(f"{len(play.topology.subtopologies())} subtopologies")
    play.run()
    event(f"{sum(play.injector.fired.values())} processes died")
    play.judge()
