"""One seed of an application that grows: its topic gains partitions and its state processors while runs, a
producer, a log cleaner, catch-ups and commands that give an expansion up go on side by side, on the world of
the other seeds, and processes die or meet faults at port calls.

The oracle is the producer's own memory. A key's values since it was last forgotten come out in the order in
which they were sent, each of them once, and lie with the processor that has the key in the end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import Any

from airflow_kstreams.batch.expand.processor_expansion import (
    CatchUpOptions,
    ProcessorExpansion,
    give_up_expansions,
)
from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.streams import KStreamBuilder, StoreSpec, Topology, serdes
from airflow_kstreams.streams.errors import ConfigError, KStreamsError, RunBusyError, TopologyError
from airflow_kstreams.streams.partitioning import partition_of_key
from airflow_kstreams.streams.settings import ApplicationSettings
from airflow_kstreams.testing import InMemoryKafka
from tests.simulation.airflow import DagRun, RunFailedError, Scheduler
from tests.simulation.expectations import ViolationError
from tests.simulation.faults import CYCLE, UNCALLED, Fault, PlannedFault, plan_of
from tests.simulation.injector import FaultInjector
from tests.simulation.scenario import Outcome, Trace, eager_pauses
from tests.simulation.sometimes import noting
from tests.simulation.threads import running_in
from tests.simulation.world import Process, StuckError, World

APP = "growing"
CHANGELOG = f"{APP}-listed-changelog"
KEYS = [f"k{number}" for number in range(8)]
#: Instead of a value: what there is of its key is forgotten.
FORGET = -1
#: Rare states that seeds must come to.
STATES = (
    "a catch-up came to its end",
    "a run ended beside what expands",
    "a run took an expansion over",
    "an expansion waited until deletions may have been gone",
    "an expansion was given up",
    "an expansion was not given up, for a run was at work",
    "an expansion was refused",
)
#: Longer than half of the time for which changelogs keep deletions.
_STALE_SECONDS = 4 * 86_400
_TRIES = 25
_DRAINS = 12


def listing() -> Topology:
    """Every value of each key since it was forgotten."""
    builder = KStreamBuilder(default_key_serde=serdes.string(), default_value_serde=serdes.json())
    grouped = builder.stream("in").group_by_key()
    store = StoreSpec(name="listed", key_serde=serdes.string(), value_serde=serdes.json(), cached=False)
    listed = grouped.aggregate(
        list, lambda key, value, so_far: None if value == FORGET else [*so_far, value], store=store
    )
    listed.to_stream().map_values(lambda value: value or []).send_to("out")
    return builder.build()


def simulate_expansions(seed: int, *, trace: Trace | None = None) -> Outcome:
    """Run a seed and judge what came of it."""
    logging.disable(logging.CRITICAL if trace is None else logging.NOTSET)
    world = World(Random(f"{seed} world"))
    outcome = Outcome(seed=seed)
    with noting():
        growing = _Growing(seed, world, trace)
        try:
            with running_in(world, seed), eager_pauses():
                main = world.start("airflow", "airflow", growing.main)
                world.run(main)
                if main.ending is not None and main.ending.error is not None:
                    raise main.ending.error
            growing.check()
        except (ViolationError, RunFailedError, StuckError) as error:
            outcome.violation = f"{type(error).__name__}: {error}"
        finally:
            logging.disable(logging.NOTSET)
    outcome.reached, outcome.fired, outcome.world_seconds = (
        growing.reached,
        growing.injector.fired,
        world.seconds,
    )
    return outcome


class _Growing:
    """The processes of one seed."""

    def __init__(self, seed: int, world: World, trace: Trace | None) -> None:
        self._world = world
        self._random = Random(f"{seed} growing")
        self._kafka = InMemoryKafka(clock=world, random=Random(f"{seed} kafka"))
        self._first = self._count = self._random.choice((1, 1, 2))
        self._kafka.create_topic("in", partitions=self._first)
        self._kafka.create_topic("out")
        self.injector = FaultInjector(
            world,
            self._kafka,
            self._plan(CYCLE[seed * 7919 % len(CYCLE)]),
            random=Random(f"{seed} faults"),
            second_owner=lambda: None,
            trace=trace,
            uncalled=UNCALLED - {"admin.create_partitions"},
        )
        self._settings = ApplicationSettings.parse(
            APP,
            {
                "autostop.at": "eol",
                "processing.guarantee": "exactly_once",
                "commit.interval.ms": self._random.choice((1, 5_000)),
                "initial.partitions": f"in={self._first}",
                "transaction.timeout.ms": 10_000,
                "lease.ms": 10_000,
                "settle.ms": 200,
                "run.stall.timeout.ms": 60_000,
            },
        )
        self._scheduler = Scheduler(
            listing(),
            settings=self._settings,
            injector=self.injector,
            separate_finish=self._random.random() < 0.5,
        )
        self._sent: dict[str, list[list[int]]] = {key: [[]] for key in KEYS}
        self._value = self._runs = self._processors_left = 0
        self._beside: list[Process] = []
        self.reached: set[str] = set()

    def _note(self, state: str) -> None:
        if state not in STATES:
            raise KeyError(f"{state!r} is none of STATES")
        self.reached.add(state)

    def _plan(self, cell: tuple[str, Fault]) -> list[PlannedFault]:
        """Return a fault of the seeds' cycle, and deaths of what expands."""
        random = self._random
        plan = plan_of(cell, random) if random.random() < 0.7 else []
        for role in ("catch-up", "abort", "driver"):
            for _ in range(random.choice((0, 1, 1, 2))):
                call = random.choice(
                    ("writer.commit", "writer.init_transactions", "reader.poll", "reader.committed")
                )
                fault = random.choice((Fault.CRASH_BEFORE, Fault.CRASH_AFTER))
                plan.append(PlannedFault(call=call, fault=fault, number=random.randint(1, 30), role=role))
        return plan

    def main(self) -> None:
        """Let runs follow each other, with what expands beside them and between them."""
        self._send(16)
        self._run()
        self._grow()
        self._send(16)
        self._run()
        for _ in range(self._random.randint(3, 6)):
            self._step()
        for process in self._beside:
            process.wait()
        self._beside.clear()
        for _ in range(_DRAINS):
            before = self._ended
            self._run()
            if self._ended == before == self._end:
                self._processors_left = self._processors
                return
        raise ViolationError(f"records are left after {_DRAINS} runs: {self._ended} of {self._end} are read")

    def _step(self) -> None:
        """Let something happen beside a run, or between two."""
        random = self._random
        what = random.choice(("catch-up", "catch-up", "catch-up", "abort", "both", "nothing"))
        if random.random() < 0.25 and len(self._kafka.partitions("in")) < 6:
            self._grow()
        if random.random() < 0.2 and not any(process.ending is None for process in self._beside):
            self._note("an expansion waited until deletions may have been gone")
            self._world.sleep(_STALE_SECONDS)
            self._kafka.compact(CHANGELOG, drop_tombstones=True)
        if what in ("catch-up", "both"):
            self._beside.append(self._start("catch-up", self._catch_up))
        if what in ("abort", "both"):
            self._beside.append(self._start("abort", self._give_up))
        if random.random() < 0.5:
            # Between runs: what expands ends first.
            for process in self._beside:
                process.wait()
        self._send(random.randint(4, 12))
        self._beside.append(self._start("producer", self._keep_writing))
        self._run()

    def _start(self, role: str, body: Callable[[Process], None]) -> Process:
        """Start a process that does something until it is through, by other processes if it dies."""

        def supervised() -> None:
            for number in range(_TRIES):
                holder: list[Process] = []
                process = self._world.start(f"{role} {number}", role, lambda h=holder: body(h[0]))  # type: ignore[misc]
                holder.append(process)
                ending = process.wait()
                if ending.error is not None and not isinstance(ending.error, KStreamsError):
                    raise ending.error
                if not (ending.died or ending.lost or ending.error):
                    return
                self._world.sleep(1.0)
            raise RunFailedError(f"{role} was tried {_TRIES} times; last: {ending.error or 'died'}")

        return self._world.start(f"supervisor of {role}", "supervisor", supervised)

    def _catch_up(self, process: Process) -> None:
        cluster, before = self.injector.cluster(process), self._processors
        count = before + self._random.randint(1, 2)
        try:
            with ProcessorExpansion(
                cluster, self._settings, subtopology=None, count=count, clock=process.clock
            ) as tool:
                rate = self._random.choice((None, 3.0))
                tool.run(CatchUpOptions(follow=False, rate=rate, parallel=2))
        except (ConfigError, TopologyError):
            self._note("an expansion was refused")
            return
        self._note("a catch-up came to its end")

    def _give_up(self, process: Process) -> None:
        try:
            given_up = give_up_expansions(self.injector.cluster(process), self._settings, clock=process.clock)
        except RunBusyError:
            self._note("an expansion was not given up, for a run was at work")
            return
        if given_up:
            self._note("an expansion was given up")

    def _run(self) -> None:
        before = self._processors if self._runs else 0
        self._runs += 1
        self._scheduler.dag_run(DagRun(run_id=f"run-{self._runs}"))
        if before and self._processors > before:
            self._note("a run took an expansion over")
        if any(process.ending is None for process in self._beside):
            self._note("a run ended beside what expands")

    def _grow(self) -> None:
        count = len(self._kafka.partitions("in")) + self._random.randint(1, 2)
        self._kafka.add_partitions("in", count)
        # Producers acknowledge before they switch.
        self._count = count

    def _send(self, number: int) -> None:
        for _ in range(number):
            key = self._random.choice(KEYS)
            self._value += 1
            value = self._value if self._random.random() < 0.8 else FORGET
            at = partition_of_key(key.encode(), self._first, self._count)
            self._kafka.append("in", b"%d" % value, key.encode(), partition=at, timestamp_ms=self._value)
            since = self._sent[key]
            if value != FORGET or since[-1]:
                since.append([] if value == FORGET else [*since[-1], value])

    def _keep_writing(self, process: Process) -> None:
        for _ in range(self._random.randint(0, 6)):
            self._world.sleep(self._random.choice((0.05, 0.3, 2.0)))
            self._send(self._random.randint(1, 3))

    @property
    def _processors(self) -> int:
        ledger = read_ledger(self._kafka, APP, wait_ms=0, clock=self._world)
        return max((len(entry.by_group) for entry in ledger.assignment.entries), default=1)

    @property
    def _end(self) -> int:
        ends = self._kafka.admin().end_offsets(self._kafka.partitions("in"), isolation="read_committed")
        return sum(ends.values())

    @property
    def _ended(self) -> int:
        committed = self._kafka.reader(group_id=APP).committed(self._kafka.partitions("in"))
        return sum(offset.offset for offset in committed.values())

    def check(self) -> None:
        """Compare what came out, and what is kept, with what was sent.

        :raises ViolationError: they differ.
        """
        decode = serdes.json().deserialize
        given: dict[str, list[Any]] = {key: [[]] for key in KEYS}
        for record in self._kafka.records("out"):
            given[(record.key() or b"").decode()].append(decode(record.value() or b"[]"))
        for key in KEYS:
            if given[key] != self._sent[key]:
                raise ViolationError(
                    f"{key}: {given[key][-3:]} came out last, expected {self._sent[key][-3:]}"
                )
        kept: dict[tuple[int, str], Any] = {}
        for record in self._kafka.records(CHANGELOG):
            value = record.value()
            kept[record.partition(), (record.key() or b"").decode()] = [] if value is None else decode(value)
        for key in KEYS:
            home = partition_of_key(key.encode(), self._first, self._processors_left)
            if kept.get((home, key), []) != self._sent[key][-1]:
                raise ViolationError(
                    f"{key}: processor {home} keeps {kept.get((home, key))}, expected {self._sent[key][-1]}"
                )
