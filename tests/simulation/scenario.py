"""One seed: an application, what arrives, what runs, what goes wrong; and what came of it."""

from __future__ import annotations

import hashlib
import itertools
import logging
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from airflow_kstreams.batch.reset.reset import ApplicationReset
from airflow_kstreams.batch.reset.reset_plan import ResetRequest
from airflow_kstreams.streams import Topology
from airflow_kstreams.streams.graph.store_specs import Storage
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.records import partition_group
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import InMemoryKafka
from airflow_kstreams.testing.in_memory_kafka import LogRecord
from tests.simulation.airflow import DagRun, RunFailedError, Scheduler
from tests.simulation.applications import APPLICATIONS
from tests.simulation.checkers import check
from tests.simulation.drawn_calls import DrawnCalls, callers, drawn_calls
from tests.simulation.drawn_landings import BEFORE, DURING, DrawnLanding, drawn_landing
from tests.simulation.expectations import Expectations, RunInterval, ViolationError
from tests.simulation.faults import CYCLE, Fault, PlannedFault, death_of_a_driver, death_of_a_task, plan_of
from tests.simulation.history import METADATA, History
from tests.simulation.injector import FaultInjector
from tests.simulation.lake import Lake
from tests.simulation.landing_applications import LANDINGS
from tests.simulation.life import live
from tests.simulation.machines import Machine, drawn_machines
from tests.simulation.parked_checks import parked_in
from tests.simulation.probes import TWIN, watching
from tests.simulation.producers import Producers
from tests.simulation.service import Service, serving
from tests.simulation.sometimes import noting, sometimes
from tests.simulation.stages import APPLICATION_ID, Application
from tests.simulation.steps import CallingSteps, Steps
from tests.simulation.table_applications import drawn_tables
from tests.simulation.threads import running_in
from tests.simulation.world import Process, ProcessDied, StuckError, World
from tests.support.tables.packed_rows import packing
from tests.support.topology.crashing_files import let_go_of_locks

Trace = Callable[[str], None]
_HOUR_MS = 3_600_000
#: One of so many of a campaign's seeds also writes to tables of a lakehouse, in runs of its own.
_LANDING_EVERY = 8
#: Runs that must be enough for all that may be parked; all but the first ones have this budget.
_DRAINS, _FIRST_DRAINS, _DRAIN_MS = 12, 2, 50_000
#: After which zombies have woken up, and late requests arrived.
_LAST_SECONDS = 60.0
#: How often a run is cleared at most: a table is harmed once.
_CLEARED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What a seed stands for.

    :param partitions: of the topics that are not the engine's own.
    :param settings: of the application, by dotted name.
    :param runs: how many DAG runs follow each other.
    :param writes_on: whether records arrive while runs go on.
    :param cleans: whether the log cleaner runs.
    :param separate_finish: whether an operator of its own finishes the run, or the driver does.
    :param rocksdb: whether key-value stores lie in RocksDB, on disks that outlive runs.
    :param dies_at_file_step: a task dies before it takes this step on its local files; 0 for none.
    :param twin: whether a second scheduler of equal order runs each run at the same time.
    :param forgets: what Kafka loses between two runs: committed offsets, the metadata topic.
    :param calls: how steps of the application call a service; None if none does.
    :param landing: what happens to the tables that it writes to; None if it writes to none.
    """

    seed: int
    application: Application
    partitions: dict[str, int]
    settings: dict[str, Any]
    runs: int
    writes_on: bool
    cleans: bool
    separate_finish: bool
    rocksdb: bool
    dies_at_file_step: int
    twin: bool
    forgets: frozenset[str]
    plan: tuple[PlannedFault, ...]
    calls: DrawnCalls | None
    landing: DrawnLanding | None = None

    @property
    def exactly_once(self) -> bool:
        """Whether it promises that."""
        return bool(self.settings["processing.guarantee"] == "exactly_once")

    @property
    def by_interval(self) -> bool:
        """Whether a run stops where its data interval ends."""
        return bool(self.settings["autostop.at"] == "interval_end")

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.application.name} {self.partitions}, {self.runs} runs, "
            f"{self.settings}, {'RocksDB, ' if self.rocksdb else ''}{'two schedulers, ' if self.twin else ''}"
            f"forgotten between runs: {sorted(self.forgets) or 'nothing'}, "
            f"{f'{self.calls}, ' if self.calls else ''}"
            f"{f'{self.landing}, ' if self.landing else ''}"
            f"faults: {'; '.join(map(str, self.plan))}"
        )


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What came of a seed.

    :ivar violation: what must not have happened, empty if nothing.
    :ivar fired: faults that happened.
    :ivar calls: port calls made.
    :ivar fingerprint: of everything that became final.
    :ivar reached: rare states it came to.
    :ivar story: of a violation: the scenario, what happened, and how to see it again.
    """

    seed: int
    violation: str = ""
    story: str = ""
    fired: Counter[tuple[str, Fault]] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    fingerprint: str = ""
    reached: set[str] = field(default_factory=set)
    world_seconds: float = 0.0

    def add(self, other: Outcome) -> None:
        """Take the outcome of another scenario of the seed."""
        self.violation, self.story = self.violation or other.violation, self.story or other.story
        self.fired += other.fired
        self.calls += other.calls
        self.fingerprint += other.fingerprint
        self.reached |= other.reached
        self.world_seconds += other.world_seconds


def scenario_of(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    random = Random(f"{seed} scenario")
    # Neighbouring seeds take different cells, and every cell comes again after as many seeds as there are.
    cell = CYCLE[seed * 7919 % len(CYCLE)]
    settings: dict[str, Any] = {
        "autostop.at": "eol",
        "processing.guarantee": random.choice(("exactly_once",) * 5 + ("at_least_once",)),
        "commit.interval.ms": random.choice((1, 20, 5_000)),
        "commit.every.records": random.choice((0, 1, 2, 3)),
        "buffered.records.per.partition": random.choice((1, 2, 1_000)),
        "transaction.timeout.ms": 10_000,
        "lease.ms": 10_000,
        "settle.ms": 200,
        "run.stall.timeout.ms": 60_000,
    }
    name = random.choice(sorted(APPLICATIONS))
    if cell[0] == "reader.resume":
        name = random.choice(("diamond", "merged"))
        settings["buffered.records.per.partition"] = 1
    elif cell[0] in ("admin.delete_records", "admin.create_topics"):
        name = random.choice(("fold", "merged", "windows"))
    elif cell[0] == "writer.abort":
        settings["processing.guarantee"] = "exactly_once"
    elif cell[0] == "admin.offsets_for_times":
        settings["autostop.at"] = "interval_end"
    elif cell == ("reader.pause", Fault.SECOND_OWNER):
        name = random.choice(("fold", "merged", "windows"))
        settings |= {"processing.guarantee": "exactly_once", "commit.every.records": 1}
    elif cell[1] is Fault.REPEATED:
        # Repetition hits transactions that follow each other closely.
        settings |= {"commit.interval.ms": 1, "commit.every.records": random.choice((1, 2))}
        name = random.choice([app.name for app in APPLICATIONS.values() if not app.timed])
    application, calls = _application_of(seed, cell, APPLICATIONS[name])
    settings |= {} if calls is None else calls.settings
    settings |= _guarantee(seed, application)
    partitions = _partitions(application, calls, random)
    if application.dead_letters:
        settings["processing.exception.handler"] = "dead-letter"
    if random.random() < (0.5 if application.timed else 0.15):
        settings["autostop.at"] = "interval_end"
    settings |= _advance(calls)
    rocksdb = application.has_stores and random.random() < 0.5
    plan = plan_of(cell, random)
    if application.timed and random.random() < 0.6:
        plan.append(death_of_a_task(random))
    twin = random.random() < 0.12
    if twin and random.random() < 0.6:
        plan.append(death_of_a_driver(random))
    return Scenario(
        seed=seed,
        application=application,
        partitions=partitions,
        settings=settings,
        runs=random.choice(_runs(application, rocksdb=rocksdb, parks=calls is not None and calls.parks)),
        writes_on=random.random() < 0.5,
        cleans=random.random() < 0.4,
        separate_finish=random.random() < 0.5,
        rocksdb=rocksdb,
        dies_at_file_step=random.choice((0, random.randint(1, 60))),
        twin=twin,
        plan=(*plan, *(calls.plan if calls else ())),
        calls=calls,
        forgets=frozenset(random.choice(((), (), (), ("offsets",), ("metadata",), ("offsets", "metadata")))),
    )


def landing_of(seed: int) -> Scenario:
    """Return the scenario in which a seed writes to tables of a lakehouse. It has nothing in common with the
    seed's other one.
    """
    random = Random(f"{seed} landing scenario")
    application = random.choice(LANDINGS)
    landing, plan = drawn_landing(seed)
    settings: dict[str, Any] = {
        "autostop.at": "eol",
        "processing.guarantee": "exactly_once",
        "commit.interval.ms": random.choice((1, 20, 5_000)),
        "commit.every.records": random.choice((0, 1, 2, 3)),
        "buffered.records.per.partition": random.choice((1, 2, 1_000)),
        "transaction.timeout.ms": 10_000,
        "lease.ms": 10_000,
        "settle.ms": 200,
        "run.stall.timeout.ms": 60_000,
    }
    twin = random.random() < 0.12
    if twin and random.random() < 0.6:
        plan.append(death_of_a_driver(random))
    return Scenario(
        seed=seed,
        application=application,
        partitions=_partitions(application, None, random),
        settings=settings,
        runs=random.choice((1, 2, 2, 2, 3)),
        writes_on=random.random() < 0.3,
        cleans=random.random() < 0.2,
        separate_finish=random.random() < 0.5,
        rocksdb=False,
        dies_at_file_step=0,
        twin=twin,
        plan=tuple(plan),
        calls=None,
        forgets=frozenset(random.choice(((), (), (), ("offsets",), ("metadata",), ("offsets", "metadata")))),
        landing=landing,
    )


def _application_of(
    seed: int, cell: tuple[str, Fault], application: Application
) -> tuple[Application, DrawnCalls | None]:
    """Return which application a seed runs, and how it calls.

    :param application: what it has been drawn of those that may call.
    """
    calls = drawn_calls(seed, application)
    if calls is not None:
        return calls.application, calls
    tables = None if _is_for_some(cell) else drawn_tables(seed)
    return tables or application, None


def _guarantee(seed: int, application: Application) -> dict[str, str]:
    """Return what is promised of tables of tables: exactly once, where each change must come once."""
    if not application.has_tables_of_tables:
        return {}
    drawn = Random(f"{seed} guarantee").choice(("exactly_once", "at_least_once"))
    return {"processing.guarantee": drawn if application.is_repeatable else "exactly_once"}


def _is_for_some(cell: tuple[str, Fault]) -> bool:
    """Whether what happens in a cell happens in some applications only."""
    calls = ("reader.resume", "admin.delete_records", "admin.create_topics")
    return cell[0] in calls or cell == ("reader.pause", Fault.SECOND_OWNER) or cell[1] is Fault.REPEATED


def _advance(calls: DrawnCalls | None) -> dict[str, str]:
    """Return whether the end of a run advances stream time: not where records are parked, for oracles do not
    know which are when a run ends.
    """
    return {"stream.time.advance": "none"} if calls is not None and calls.parks else {}


def simulate(seed: int, *, trace: Trace | None = None) -> Outcome:
    """Run a seed and judge what came of it."""
    logging.disable(logging.CRITICAL if trace is None else logging.NOTSET)
    scenario = scenario_of(seed)
    with noting() as reached, _disk(scenario) as disk:
        outcome = _simulated(scenario, disk, trace)
        if not outcome.violation:
            outcome.violation = live(seed, trace=trace)
    outcome.reached = reached
    return _with_story(outcome, scenario, "")


def simulate_landing(seed: int, *, trace: Trace | None = None) -> Outcome:
    """Run the scenario in which a seed writes to tables of a lakehouse, and judge what came of it."""
    logging.disable(logging.CRITICAL if trace is None else logging.NOTSET)
    scenario = landing_of(seed)
    with noting() as reached:
        outcome = _simulated(scenario, "", trace)
    outcome.reached = reached
    return _with_story(outcome, scenario, "--tables ")


def lands(seed: int) -> bool:
    """Whether a campaign lets a seed write to tables of a lakehouse, too."""
    return seed % _LANDING_EVERY == 3


def _with_story(outcome: Outcome, scenario: Scenario, options: str) -> Outcome:
    if outcome.violation:
        again = f"again: dev/simulate {options}--seed {scenario.seed} --trace"
        outcome.story = f"{scenario}\n{outcome.violation}\n{again}"
    return outcome


def _simulated(scenario: Scenario, disk: str, trace: Trace | None) -> Outcome:
    seed = scenario.seed
    world = World(Random(f"{seed} world"))
    kafka = InMemoryKafka(clock=world, random=Random(f"{seed} kafka"))
    history = History()
    kafka.observe(history.commits.append)
    run = _Run(scenario, world, kafka, trace, drawn_machines(Random(f"{seed} machines"), disk), history)
    outcome = Outcome(seed=seed)
    try:
        with (
            running_in(world, seed),
            eager_pauses(),
            watching(world),
            serving(world, Random(f"{seed} service")) as run.service,
        ):
            main = world.start("airflow", "airflow", run.main)
            world.run(main)
            if main.ending is not None and main.ending.error is not None:
                raise main.ending.error
        history.deaths = world.deaths
        history.table_rows = {} if run.lake is None else run.lake.rows()
        history.digest()
        check(history, run.expectations())
        run.check_what_was_seen()
    except (ViolationError, RunFailedError, StuckError) as error:
        outcome.violation = f"{type(error).__name__}: {error}"
    finally:
        logging.disable(logging.NOTSET)
    outcome.fired, outcome.calls = run.injector.fired, run.injector.calls
    outcome.world_seconds = world.seconds
    outcome.fingerprint = _fingerprint(history, world)
    return outcome


@contextmanager
def eager_pauses() -> Iterator[None]:
    """Let a partition be paused when it is one full buffer ahead: logs of a dozen records never are ten."""
    with mock.patch.multiple(partition_group, PAUSED_BUFFERS=1, RESUMED_BUFFERS=1):
        yield


class _Run:
    """The processes of one seed."""

    def __init__(
        self,
        scenario: Scenario,
        world: World,
        kafka: InMemoryKafka,
        trace: Trace | None,
        machines: tuple[Machine, ...],
        history: History,
    ) -> None:
        self._history = history
        self._scenario = scenario
        self._world = world
        self._kafka = kafka
        self._random = Random(f"{scenario.seed} airflow")
        for topic, count in scenario.partitions.items():
            kafka.create_topic(topic, partitions=count)
        topology = None if scenario.calls else _topology(scenario.application, _storage(scenario))
        self.lake: Lake | None = None
        if scenario.landing is not None and topology is not None:
            self.lake = Lake(
                world,
                history,
                topology.plan(APPLICATION_ID).tables,
                scenario.landing,
                Random(f"{scenario.seed} lake"),
            )
        self.injector = FaultInjector(
            world,
            kafka,
            list(scenario.plan),
            random=Random(f"{scenario.seed} faults"),
            second_owner=self._start_second,
            trace=trace,
            machines=machines,
            tables=None if self.lake is None else self.lake.tables,
            others=lambda: None if self.lake is None else self.lake.change(),
        )
        storage = _storage(scenario)
        self._steps = Steps(storage)
        if scenario.calls:
            self._steps = CallingSteps(storage, seed=scenario.seed, retries=scenario.calls.retries)
        #: What calls ask.
        self.service: Service | None = None
        self._file_steps = 0
        world.file_step = self._file_step
        self._scheduler = Scheduler(
            topology or scenario.application.build(self._steps),
            settings=ApplicationSettings.parse(APPLICATION_ID, scenario.settings),
            injector=self.injector,
            separate_finish=scenario.separate_finish,
            calls=callers(scenario.seed, self.injector, scenario.application),
            open_rows=partial(packing, numbers=itertools.count(1)),
        )
        self._producers = Producers(
            world,
            kafka,
            Random(f"{scenario.seed} producers"),
            inputs=scenario.application.inputs,
            through=scenario.application.through,
            tables=scenario.application.tables,
            busy=scenario.application.timed,
        )
        self._others: list[Any] = []
        self._run_id = ""
        self._run_ids: set[str] = set()
        self._intervals: dict[str, RunInterval] = {}
        self._seen: dict[TopicPartition, list[LogRecord]] = {}

    def main(self) -> None:
        """Let producers write and DAG runs follow each other."""
        self._world.start("watcher", "watcher", self._watch)
        if self._scenario.cleans:
            self._world.start("cleaner", "cleaner", self._clean_logs)
        if self.lake is not None and self._scenario.landing and self._scenario.landing.busy:
            self._world.start("others", "others", self.lake.keep_changing)
        for number in range(self._scenario.runs):
            if number:
                self._forget()
            self._producers.batch()
            if self._scenario.writes_on:
                self._others.append(self._world.start("producers", "producer", self._producers.keep_writing))
            if self.service is not None and self._scenario.calls and self._scenario.calls.retries:
                self.service.outage = self._scenario.calls.retries.outage(number, self._world.seconds)
            self._run_id = f"run-{number + 1}"
            if self._scenario.twin:
                sometimes("a second scheduler of equal order began the same run")
                self._start(self._run_id, 0, TWIN)
            if self.lake is None:
                self._dag_run(self._run_id, 0)
            else:
                self._run_beside_harm(self.lake, self._run_id)
        self._wait_for_others()
        self._drain()
        if self.lake is not None:
            self._world.sleep(_LAST_SECONDS)

    def _run_beside_harm(self, lake: Lake, run_id: str) -> None:
        """Run a DAG run, maybe while a table is harmed: then somebody mends the table and clears the run."""
        during = self._scenario.landing is not None and self._scenario.landing.during
        if during:
            self._world.start("harm", "others", self._harm_later)
        elif all(other.ending is not None for other in self._others):
            lake.harm(BEFORE)
        for clear_number in range(_CLEARED):
            try:
                self._dag_run(run_id, clear_number)
            except RunFailedError:
                if not lake.is_harmed:
                    raise
                sometimes("a harmed table was refused, and mended")
                lake.mend()
            else:
                break
        lake.mend()

    def _harm_later(self) -> None:
        if self.lake is not None:
            self._world.sleep(self._random.choice((0.1, 0.5, 2.0)))
            self.lake.harm(DURING)

    def _wait_for_others(self) -> None:
        for other in self._others:
            ending = other.wait()
            if ending.error is not None and not (self.lake is not None and self.lake.was_harmed):
                raise ending.error

    def _drain(self) -> None:
        """Let runs follow until nothing is parked any more: the service is back, they have time, and run on a
        machine whose clock is right.
        """
        if self.service is not None:
            self.service.outage = None
        for number in range(1, _DRAINS + 1):
            if not parked_in(self._kafka, self._steps.nodes):
                return
            sometimes("runs followed until nothing was parked")
            if number > _FIRST_DRAINS:
                self._scheduler.settings = replace(self._scheduler.settings, retry_run_budget_ms=_DRAIN_MS)
                self.injector.machines = self.injector.machines[:1]
            self._world.sleep(self._random.choice((1.0, 10.0, 60.0)))
            self._run_id = f"drain-{number}"
            self._dag_run(self._run_id, 0)
            self._wait_for_others()

    def _forget(self) -> None:
        """Lose what a run leaves behind, if every run that was started is over.

        Dead tasks and superseded drivers may still live. Between two runs nothing of it is missed; while one
        is under way it would be refused, which no scheduler can mend.
        """
        if any(other.ending is None for other in self._others):
            return
        if "offsets" in self._scenario.forgets:
            known = [tp for topic in self._kafka.topics() for tp in self._kafka.partitions(topic)]
            kept = self._random.choice((0.0, 0.5))
            self._kafka.expire_offsets(APPLICATION_ID, [tp for tp in known if self._random.random() >= kept])
        if "metadata" in self._scenario.forgets:
            self._kafka.admin().delete_topics([METADATA])
            # What begin would refuse for that is accepted, as a person does.
            request = ResetRequest(application_id=APPLICATION_ID, delete_stop_offsets=True, force=True)
            with ApplicationReset(self._kafka, request, clock=self._world) as reset:
                reset.run()

    def expectations(self) -> Expectations:
        """Return what the checkers must know."""
        partitions = dict(self._scenario.partitions)
        for topic in self._kafka.topics():
            partitions.setdefault(topic, len(self._kafka.partitions(topic)))
        return Expectations(
            application=self._scenario.application,
            run_ids=frozenset(self._run_ids),
            intervals=self._intervals if self._scenario.by_interval else {},
            readable={run_id: interval.readable for run_id, interval in self._intervals.items()},
            advances="stream.time.advance" not in self._scenario.settings,
            partitions=partitions,
            exactly_once=self._scenario.exactly_once,
            outsiders=frozenset(self._producers.outsiders),
            commit_every=self._scenario.settings["commit.every.records"],
            buffered=self._scenario.settings["buffered.records.per.partition"],
            calling=self._steps.nodes,
            service=self.service,
            waiting=self._scenario.settings.get("max.waiting.results", 0),
        )

    def check_what_was_seen(self) -> None:
        """Compare what a read_committed reader of the outputs has seen with what is there in the end.

        :raises ViolationError: something seen is gone, or something came in before it.
        """
        for partition, seen in self._seen.items():
            there = [r for r in self._kafka.records(partition.topic) if r.partition() == partition.partition]
            if seen != there[: len(seen)]:
                raise ViolationError(f"{partition}: a reader saw {seen}, now there is {there[: len(seen)]}")

    def _watch(self) -> None:
        """Read the outputs as somebody else does, now and then."""
        partitions = self._kafka.partitions("out")
        self._seen = {partition: [] for partition in partitions}
        reader = self._kafka.reader(group_id="watcher")
        reader.assign(dict.fromkeys(partitions, 0))
        while True:
            self._world.sleep(self._random.choice((0.05, 0.3, 2.0)))
            for partition, records in reader.poll(max_records=100, timeout_seconds=0).records.items():
                self._seen[partition] += records  # type: ignore[arg-type]

    def _dag_run(self, run_id: str, clear_number: int, suffix: str = "") -> None:
        interval = self._intervals.get(run_id)
        if interval is None:
            inputs = [
                tp for topic in self._scenario.application.inputs for tp in self._kafka.partitions(topic)
            ]
            interval = self._intervals[run_id] = RunInterval(
                end_ms=self._world.now_ms() - self._random.choice((-1, 0, 5, 100, 500)),
                readable=self._kafka.admin().end_offsets(inputs, isolation="read_committed"),
            )
        self._scheduler.dag_run(
            DagRun(
                run_id=run_id,
                clear_number=clear_number,
                interval_ms=(interval.end_ms - _HOUR_MS, interval.end_ms),
                suffix=suffix,
            )
        )
        self._run_ids.add(run_id)

    def _start_second(self) -> None:
        """Start another scheduler, for the same run or for another one, or have somebody finish the run."""
        if self._random.random() < 0.2:
            self._others.append(self._scheduler.early_finish(self._run_id))
            return
        other = self._random.random() < 0.4
        run_id, clear_number = (f"{self._run_id}-other", 0) if other else (self._run_id, 1)
        self._start(run_id, clear_number)

    def _start(self, run_id: str, clear_number: int, suffix: str = "") -> None:
        self._others.append(
            self._world.start(
                f"airflow {len(self._others)}", "airflow", lambda: self._dag_run(run_id, clear_number, suffix)
            )
        )

    def _file_step(self, process: Process, step: str) -> None:
        """Count a step of a process on its local files; let it die before the planned one."""
        self._file_steps += 1
        if self._file_steps == self._scenario.dies_at_file_step:
            sometimes("a task died between two steps on its local files")
            process.kill()
            raise ProcessDied

    def _clean_logs(self) -> None:
        """Let the log cleaner run over everything that is compacted, now and then."""
        while True:
            self._world.sleep(self._random.choice((0.02, 0.1, 0.5, 5.0)))
            for topic in self._kafka.compacted_topics():
                drops = self._random.random() < 0.2 and not self._keeps_tombstones(topic)
                self._kafka.compact(topic, drop_tombstones=drops)

    def _keeps_tombstones(self, topic: str) -> bool:
        """Whether tombstones of a changelog are too young to go, which local files rely on."""
        if not self._scenario.rocksdb or not topic.endswith("-changelog"):
            return False
        configs = self._kafka.admin().topic_configs([topic]).found[topic]
        since_ms = self._world.now_ms() - int(configs["delete.retention.ms"])
        return any(
            record.topic() == topic and record.value() is None
            for commit in self._history.commits
            if commit.at_ms > since_ms
            for record in commit.records
        )


def _partitions(application: Application, calls: DrawnCalls | None, random: Random) -> dict[str, int]:
    topics = (*application.inputs, *application.through, "out")
    partitions = {topic: random.choice((2, 2, 2, 3)) for topic in topics}
    equal = set(application.joined)
    if calls is not None and calls.parks:
        # A retry topic asks of a task's inputs what a store does.
        equal.update(topic for sources, _ in application.subtopologies for topic in sources if sources[1:])
    return partitions | dict.fromkeys(sorted(equal), 2)


def _runs(application: Application, *, rocksdb: bool, parks: bool) -> tuple[int, ...]:
    """Return how many runs may follow each other: more where one leaves something to the next."""
    if rocksdb:
        return (2, 3, 3)
    return (2, 2, 3) if application.timed or parks else (1, 1, 2)


@cache
def _topology(application: Application, storage: Storage) -> Topology:
    return application.build(Steps(storage))


def _storage(scenario: Scenario) -> Storage:
    return "rocksdb" if scenario.rocksdb else "memory"


@contextmanager
def _disk(scenario: Scenario) -> Iterator[str]:
    """Give a folder for the disks of a seed's machines, where it needs any: in memory, if the system can."""
    if not scenario.rocksdb:
        yield ""
        return
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        try:
            yield folder
        finally:
            let_go_of_locks(Path(folder))


def _fingerprint(history: History, world: World) -> str:
    """Return a hash over all that became final, and when."""
    digest = hashlib.sha256(f"{world.seconds:.3f}".encode())
    for commit in history.commits:
        records = [(r.topic(), r.partition(), r.position, r.key(), r.value()) for r in commit.records]
        offsets = {group: sorted(found.items()) for group, found in sorted(commit.offsets.items())}
        digest.update(repr((commit.at_ms, commit.transactional_id, records, offsets)).encode())
    return digest.hexdigest()[:16]
