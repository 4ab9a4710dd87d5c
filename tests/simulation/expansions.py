"""One seed of an application that grows: its topic gains partitions and its state processors while runs, a
producer, a log cleaner, catch-ups and commands that give an expansion up go on side by side, on the world of
the other seeds, and processes die or meet faults at port calls.

Producers come to know new partitions at once or later. So an expansion may have to wait while runs forget
keys that are copied, and the log cleaner takes what says that they are forgotten. Then the copy goes on, or
it is given up, beside a run or not, and begins again.

The oracle is the producer's own memory. A key's values since it was last forgotten come out in the order in
which they were sent, each of them once, under the latest date among them, and lie with the processor that has
the key in the end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from airflow_kstreams.batch.expand.processor_expansion import (
    CatchUpOptions,
    ProcessorExpansion,
    give_up_expansions,
)
from airflow_kstreams.batch.ledger.ledger import read_ledger
from airflow_kstreams.streams import KStreamBuilder, StoreSpec, Topology, serdes
from airflow_kstreams.streams.errors import ConfigError, KStreamsError, RunBusyError, TopologyError
from airflow_kstreams.streams.partitioning import partition_of_key
from airflow_kstreams.streams.ports import Record
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
#: How far the dates of records are apart that are sent one after the other, at most, milliseconds.
_DISORDER_MS = 40
#: Rare states that seeds must come to.
STATES = (
    "a catch-up came to its end",
    "a run ended beside what expands",
    "a run took an expansion over",
    "an expansion waited, and keys of it were forgotten",
    "an expansion began again after it was given up",
    "an expansion waited until deletions may have been gone",
    "an expansion was given up",
    "an expansion was not given up, for a run was at work",
    "an expansion was refused",
)
#: Longer than half of the time for which changelogs keep deletions.
_STALE_SECONDS = 4 * 86_400
#: Where a command that gives an expansion up is held up while a run begins: a call, and its number in the
#: process. A run that takes over before it claims a source, its second id, is seen in the ledger alone.
_HOLD_UP = (
    *3 * (("writer.init_transactions", 2),),
    ("reader.committed", 2),
    ("writer.send_offsets", 1),
    ("writer.commit", 1),
    ("writer.commit", 2),
)
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


@dataclass(frozen=True, slots=True)
class _Row:
    """The values of a key since it was forgotten.

    :param time_ms: the latest date among those of their records, and of the one that forgot them.
    """

    values: tuple[int, ...] = ()
    time_ms: int = 0

    @classmethod
    def of(cls, record: Record) -> _Row:
        """Read what came out, or is kept."""
        value = record.value()
        return cls(() if value is None else tuple(serdes.json().deserialize(value)), record.timestamp()[1])

    def then(self, value: int, time_ms: int) -> _Row:
        """Return the row after one more record."""
        newest_ms = max(self.time_ms, time_ms) if self.values else time_ms
        return _Row(() if value == FORGET else (*self.values, value), newest_ms)


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
                "acceptable.recovery.lag": self._random.choice((0, 3, 10_000)),
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
        self._sent: dict[str, list[_Row]] = {key: [_Row()] for key in KEYS}
        self._value = self._runs = self._wanted = self._processors_left = 0
        self._used = KEYS
        self._forgets, self._copied, self._given_up = 0.2, False, False
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

    def _hold_up(self, process: Process) -> PlannedFault:
        """Return a fault of a process that gives an expansion up: mostly a run can begin meanwhile."""
        begun = PlannedFault(call="", fault=Fault.DELAY, number=0, fired=True, process=process)
        call, number = self._random.choice(_HOLD_UP)
        fault = self._random.choice((Fault.DELAY, Fault.DELAY, Fault.ZOMBIE, Fault.CRASH_AFTER))
        return PlannedFault(call=call, fault=fault, number=number, after=begun)

    def main(self) -> None:
        """Let runs follow each other, with what expands beside them and between them."""
        self._send(16)
        self._run()
        self._grow(known=True)
        self._send(16)
        self._run()
        for _ in range(self._random.randint(4, 7)):
            act = self._random.choice(
                (self._step, self._step, self._step, self._forget_meanwhile, self._give_up_beside)
            )
            act()
        self._wait()
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
        what = random.choice(("catch-up", "catch-up", "abort", "both", "nothing"))
        partitions = len(self._kafka.partitions("in"))
        full = partitions == self._processors
        if random.random() < (0.8 if full else 0.2) and partitions < 8:
            self._grow()
        elif random.random() < 0.4:
            self._switch()
        if random.random() < 0.35 and not any(process.ending is None for process in self._beside):
            self._clean()
        self._forgets = random.choice((0.2, 0.8))
        self._used = random.sample(KEYS, random.choice((2, 4, 8)))
        if what in ("catch-up", "both"):
            self._begin("catch-up", wait=random.random() < 0.6)
        if what in ("abort", "both"):
            self._begin("abort", wait=random.random() < 0.5)
        self._send(random.randint(4, 12))
        self._beside.append(self._start("producer", self._keep_writing))
        self._run()

    def _forget_meanwhile(self) -> None:
        """Let an expansion wait for producers while what it has copied is forgotten, and deletions go."""
        self._wait()
        if self._count == len(self._kafka.partitions("in")):
            self._grow(known=False)
        self._wanted = len(self._kafka.partitions("in"))
        self._act(forgets=0.1)
        self._begin("catch-up")
        if self._random.random() < 0.4:
            self._begin("abort")
        self._act(forgets=0.9, records=12)
        self._clean()
        self._switch()
        for _ in range(3):
            self._begin("catch-up", wait=self._random.random() < 0.9)
            self._act(forgets=0.2, used=self._random.choice((2, 4, 8)))

    def _give_up_beside(self) -> None:
        """Let a run begin while an expansion that it could take over is given up."""
        self._wait()
        self._switch()
        if len(self._kafka.partitions("in")) == self._processors:
            self._grow(known=True)
        self._wanted = self._processors + 1
        for _ in range(2):
            self._act(forgets=0.1, records=24)
        self._begin("catch-up")
        self._begin("abort", wait=False)
        self._world.sleep(self._random.choice((0.05, 0.3, 1.0, 4.0)))
        self._act(forgets=0.1)

    def _act(self, *, forgets: float, records: int = 8, used: int = len(KEYS)) -> None:
        """Let a run read what is sent now.

        :param used: how many of the keys it is of.
        """
        self._forgets, self._used = forgets, self._random.sample(KEYS, used)
        self._send(records)
        self._run()

    def _clean(self) -> None:
        """Let so much time pass that deletions may be gone, and the log cleaner run."""
        self._note("an expansion waited until deletions may have been gone")
        self._world.sleep(_STALE_SECONDS * self._random.randint(1, 2))
        self._kafka.compact(CHANGELOG, drop_tombstones=True)

    def _begin(self, role: str, *, wait: bool = True) -> None:
        body = self._catch_up if role == "catch-up" else self._give_up
        self._beside.append(self._start(role, body))
        if wait:
            self._wait()

    def _wait(self) -> None:
        """Wait for what goes on beside runs to end."""
        for process in self._beside:
            process.wait()
        self._beside.clear()

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
        most = max(before + 1, len(self._kafka.partitions("in")))
        if self._wanted <= before or self._random.random() < 0.1:
            self._wanted = min(before + self._random.randint(1, 2), most)
        try:
            with ProcessorExpansion(
                cluster, self._settings, subtopology=None, count=self._wanted, clock=process.clock
            ) as tool:
                rate = self._random.choice((None, 3.0))
                tool.run(CatchUpOptions(follow=False, rate=rate, parallel=2))
        except (ConfigError, TopologyError):
            self._note("an expansion was refused")
            return
        self._note("a catch-up came to its end")
        if self._given_up:
            self._note("an expansion began again after it was given up")
        self._copied, self._given_up = True, False

    def _give_up(self, process: Process) -> None:
        if self._random.random() < 0.7:
            self.injector.plan.append(self._hold_up(process))
        try:
            given_up = give_up_expansions(self.injector.cluster(process), self._settings, clock=process.clock)
        except RunBusyError:
            self._note("an expansion was not given up, for a run was at work")
            return
        if given_up:
            self._note("an expansion was given up")
            self._copied, self._given_up, self._wanted = False, True, 0

    def _run(self) -> None:
        before = self._processors if self._runs else 0
        self._runs += 1
        self._scheduler.dag_run(DagRun(run_id=f"run-{self._runs}"))
        if before and self._processors > before:
            self._note("a run took an expansion over")
            self._copied = False
        elif self._copied and self._forgets > 0.5:
            self._note("an expansion waited, and keys of it were forgotten")
        if any(process.ending is None for process in self._beside):
            self._note("a run ended beside what expands")

    def _grow(self, *, known: bool | None = None) -> None:
        """Add partitions, which producers know at once or later; None: the seed says which."""
        count = len(self._kafka.partitions("in")) + self._random.randint(1, 2)
        self._kafka.add_partitions("in", count)
        if self._random.random() < 0.5 if known is None else known:
            self._switch()

    def _switch(self) -> None:
        """Let producers come to know the partitions that there are. They acknowledge before they switch."""
        self._count = len(self._kafka.partitions("in"))

    def _send(self, number: int) -> None:
        for _ in range(number):
            key = self._random.choice(self._used)
            self._value += 1
            value = FORGET if self._random.random() < self._forgets else self._value
            at = partition_of_key(key.encode(), self._first, self._count)
            time_ms = self._value + self._random.randint(0, _DISORDER_MS)
            self._kafka.append("in", b"%d" % value, key.encode(), partition=at, timestamp_ms=time_ms)
            rows = self._sent[key]
            if value != FORGET or rows[-1].values:
                rows.append(rows[-1].then(value, time_ms))

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
        given: dict[str, list[_Row]] = {key: [_Row()] for key in KEYS}
        for record in self._kafka.records("out"):
            given[_key(record)].append(_Row.of(record))
        for key in KEYS:
            if given[key] != self._sent[key]:
                raise ViolationError(
                    f"{key}: {given[key][-3:]} came out last, expected {self._sent[key][-3:]}"
                )
        kept: dict[tuple[int, str], _Row] = {}
        for record in self._kafka.records(CHANGELOG):
            kept[record.partition(), _key(record)] = _Row.of(record)
        for key in KEYS:
            home, sent = (
                partition_of_key(key.encode(), self._first, self._processors_left),
                self._sent[key][-1],
            )
            found = kept.get((home, key), _Row())
            # What is forgotten is kept under no date.
            if found.values != sent.values or (sent.values and found != sent):
                raise ViolationError(f"{key}: processor {home} keeps {found}, expected {sent}")


def _key(record: Record) -> str:
    return (record.key() or b"").decode()
