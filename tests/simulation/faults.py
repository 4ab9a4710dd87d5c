"""Which faults may happen at which port calls, what each does there, and the plan of a seed."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, NoReturn

from airflow_kstreams.streams import ports
from airflow_kstreams.streams.errors import (
    KafkaClientError,
    KStreamsError,
    TableMovedError,
    TableUnavailableError,
    TransactionAbortedError,
)
from airflow_kstreams.streams.tables.table_port import TableFiles, TablePort
from airflow_kstreams.testing import InMemoryKafka
from airflow_kstreams.testing.in_memory_kafka.writer import (
    InMemoryIdempotentWriter,
    InMemoryTransactionalWriter,
)
from tests.simulation.sometimes import sometimes
from tests.simulation.world import Process, ProcessDied, World


class Fault(enum.Enum):
    """What may happen at a port call."""

    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    ERROR = "error"
    FATAL = "fatal error"
    LOST_ANSWER = "answer lost"
    DELAY = "delay"
    ZOMBIE = "zombie"
    SECOND_OWNER = "second owner"
    RESTART = "broker restart"
    TIMED_OUT = "timed out"
    ABORTABLE = "abortable"
    REPEATED = "repeated"
    # Of tables only.
    LATE = "late"
    REFUSED = "refused"
    SENT_TWICE = "sent twice"
    CHANGED = "changed"


_ANYWHERE = {Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.DELAY, Fault.ZOMBIE, Fault.SECOND_OWNER}
_REQUEST = _ANYWHERE | {Fault.ERROR, Fault.LOST_ANSWER, Fault.RESTART}
#: Nothing behind these calls can fail: they are plain attributes of the client library's own memory.
_LOCAL = frozenset(
    {"reader.pause", "reader.resume", "admin.close", "writer.begin", "cluster.admin", "files.path"}
)
#: What asks a catalogue, or the storage of files.
_OF_TABLES = _ANYWHERE | {Fault.ERROR, Fault.LOST_ANSWER}
_CHANGES = {Fault.LATE, Fault.REFUSED, Fault.SENT_TWICE}
_OF_TRANSACTION = {Fault.TIMED_OUT, Fault.FATAL}
#: What only some calls can meet.
_SPECIAL: dict[str, set[Fault]] = {
    "writer.init_transactions": {Fault.FATAL},
    "writer.produce": _OF_TRANSACTION,
    "writer.flush": _OF_TRANSACTION | {Fault.ABORTABLE},
    "writer.send_offsets": _OF_TRANSACTION | {Fault.ABORTABLE, Fault.REPEATED},
    "writer.commit": _OF_TRANSACTION | {Fault.ABORTABLE, Fault.REPEATED},
    "writer.abort": _OF_TRANSACTION | {Fault.REPEATED},
    "table.look": {Fault.CHANGED},
    "table.create": {Fault.CHANGED, Fault.LATE},
    "table.widen": {Fault.CHANGED, *_CHANGES},
    "table.commit": {Fault.CHANGED, *_CHANGES},
}
#: Only what is not simulated calls these: reset, growing topics, continuous mode, local files, doctor,
#: backfills (which drop their marks), and what keeps house in tables. A run in which one is called fails, so
#: that this list stays true.
UNCALLED = frozenset(
    {
        "admin.allowed",
        "admin.alter_topic",
        "admin.broker_addresses",
        "admin.create_partitions",
        "admin.delete_topics",
        "admin.group_ids",
        "admin.topic_names",
        "cluster.crossing",
        "files.names",
        "files.read",
        "reader.commit",
        "table.added",
        "table.drop_mark",
        "table.expire",
        "table.named",
        "table.partitions",
        "table.row_counts",
    }
)

#: How often a call is made in a run, roughly, so that plans hit the whole of it.
_OFTEN = {
    "reader.poll": 60,
    "writer.produce": 80,
    "writer.send_offsets": 16,
    "writer.commit": 20,
    "admin.describe_topics": 40,
    "admin.end_offsets": 60,
    "admin.start_offsets": 40,
    "reader.assign": 40,
    "reader.committed": 20,
    "admin.delete_records": 2,
    "admin.create_topics": 3,
    "admin.offsets_for_times": 2,
    "reader.resume": 2,
    "writer.abort": 1,
    "reader.pause": 8,
    "files.create": 8,
    "files.delete": 1,
    "files.path": 8,
    "files.sizes": 8,
    "table.commit": 3,
    "table.create": 1,
    "table.holds": 1,
    "table.look": 8,
    "table.snapshots": 1,
    "table.widen": 1,
}
_KAFKA = {
    "cluster": ports.ClusterPort,
    "reader": ports.ReaderPort,
    "writer": ports.WriterPort,
    "admin": ports.AdminPort,
}
_TABLES = {"table": TablePort, "files": TableFiles}
#: These ask nothing of anybody.
_NO_CALLS = frozenset({"writer.suspect", "table.files"})


def port_calls(kinds: Mapping[str, type] = _KAFKA | _TABLES) -> tuple[str, ...]:
    """Return every method of every port, from the ports themselves."""
    names = [f"{kind}.{name}" for kind, port in kinds.items() for name in vars(port) if name[0] != "_"]
    return tuple(name for name in names if name not in _NO_CALLS)


def possible(call: str) -> set[Fault]:
    """Return the faults that may happen at a port call."""
    if call in UNCALLED:
        return set()
    request = _OF_TABLES if call.partition(".")[0] in _TABLES else _REQUEST
    return (_ANYWHERE if call in _LOCAL else request) | _SPECIAL.get(call, set())


def _cells(kinds: Mapping[str, type]) -> tuple[tuple[str, Fault], ...]:
    return tuple((call, fault) for call in port_calls(kinds) for fault in Fault if fault in possible(call))


#: Every cell of the matrix of calls to Kafka, in an order that does not depend on anything but the ports.
CELLS = _cells(_KAFKA)
#: The cells of calls to tables: seeds that write to some plan these, one after the other.
TABLE_CELLS = _cells(_TABLES)
#: What neighbouring seeds plan, one after the other. Repetition does harm in few of its cases only; and a
#: task pauses its partitions when it is at its stops, right before its last commit.
CYCLE = (
    CELLS
    + 2 * tuple(cell for cell in CELLS if cell[1] is Fault.REPEATED)
    + 8 * (("reader.pause", Fault.SECOND_OWNER),)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultyCall:
    """A port call at which a fault happens.

    :param effect: does what was asked for.
    :param random: of the fault's details.
    :param crash: kills the process.
    :param second_owner: starts another scheduler.
    :param others: lets somebody else change a table.
    """

    name: str
    client: object
    effect: Callable[[], Any]
    process: Process
    world: World
    kafka: InMemoryKafka
    random: Random
    crash: Callable[[], None]
    second_owner: Callable[[], None]
    others: Callable[[], None] = lambda: None

    def wait(self, *seconds: float) -> None:
        """Let one of these times pass."""
        self.world.sleep(self.random.choice(seconds))

    def spoil(self) -> None:
        """Have the writer notice that a call of it failed, as the real one does."""
        if isinstance(self.client, InMemoryIdempotentWriter):
            self.client.spoil()

    def fail(self, *, fatal: bool = False) -> NoReturn:
        """Fail as a client does."""
        if self.name.partition(".")[0] in _TABLES:
            raise TableUnavailableError(f"{self.name}: injected: no answer")
        if self.name.startswith("writer."):
            self.spoil()
        raise KafkaClientError(
            f"{self.name}: injected {'fatal ' if fatal else ''}error",
            fix="retry",
            kafka_code="_FATAL" if fatal else "_TRANSPORT",
            retriable_code=not fatal,
            fatal=fatal,
        )


def _crash_before(call: FaultyCall) -> NoReturn:
    call.crash()
    raise ProcessDied


def _crash_after(call: FaultyCall) -> NoReturn:
    call.effect()
    call.crash()
    raise ProcessDied


def _outcome_unknown(call: FaultyCall, *, had_effect: bool) -> None:
    if call.name == "writer.commit":
        sometimes(f"a commit's outcome was unknown and it had {'' if had_effect else 'not '}taken effect")


def _error(call: FaultyCall) -> NoReturn:
    _outcome_unknown(call, had_effect=False)
    call.fail()


def _fatal(call: FaultyCall) -> NoReturn:
    call.fail(fatal=True)


def _lost_answer(call: FaultyCall) -> NoReturn:
    call.effect()
    _outcome_unknown(call, had_effect=True)
    call.fail()


def _delay(call: FaultyCall) -> object:
    call.wait(0.3, 2.0, 8.0, 14.0, 30.0)
    return call.effect()


def _zombie(call: FaultyCall) -> object:
    call.process.lose()
    call.wait(0.05, 0.3, 1.0, 5.0, 14.0, 40.0)
    return call.effect()


def _second_owner(call: FaultyCall) -> object:
    call.second_owner()
    call.wait(0.0, 0.1, 3.0, 12.0)
    return call.effect()


def _restart(call: FaultyCall) -> NoReturn:
    had_effect = call.random.random() < 0.5
    if had_effect:
        call.effect()
    call.kafka.restart()
    _outcome_unknown(call, had_effect=had_effect)
    call.fail()


def _timed_out(call: FaultyCall) -> object:
    if isinstance(call.client, InMemoryTransactionalWriter):
        call.kafka.time_out_transaction(call.client.transactional_id)
    return call.effect()


def _abortable(call: FaultyCall) -> NoReturn:
    call.spoil()
    raise TransactionAbortedError(
        f"{call.name}: injected: the transaction must be aborted", fix="nothing", task_id=call.process.name
    )


def _repeated(call: FaultyCall) -> object:
    result = call.effect()
    if isinstance(call.client, InMemoryTransactionalWriter):
        call.client.repeat_last_request(call.random.randint(1, 4))
    return result


def _late(call: FaultyCall) -> NoReturn:
    """What was asked for happens later, when its caller has given it up."""

    def arrive() -> None:
        call.wait(0.1, 0.4, 2.0, 10.0, 40.0)
        try:
            call.effect()
        except KStreamsError:
            if call.name == "table.commit":
                sometimes("a late commit found that its table had moved")
        else:
            if call.name == "table.commit":
                sometimes("a late commit took effect")

    call.world.start(f"late {call.name}", "network", arrive)
    call.fail()


def _refused(call: FaultyCall) -> NoReturn:
    raise TableMovedError(f"{call.name}: injected: somebody else was first")


def _sent_twice(call: FaultyCall) -> NoReturn:
    """A request comes twice, and the second one's conflict is the answer."""
    with suppress(TableMovedError):
        call.effect()
    raise TableMovedError(f"{call.name}: injected: the table has changed since the look")


def _changed(call: FaultyCall) -> object:
    call.others()
    return call.effect()


#: What each fault does instead of the call, whose result it returns.
HAPPENS: Mapping[Fault, Callable[[FaultyCall], Any]] = {
    Fault.CRASH_BEFORE: _crash_before,
    Fault.CRASH_AFTER: _crash_after,
    Fault.ERROR: _error,
    Fault.FATAL: _fatal,
    Fault.LOST_ANSWER: _lost_answer,
    Fault.DELAY: _delay,
    Fault.ZOMBIE: _zombie,
    Fault.SECOND_OWNER: _second_owner,
    Fault.RESTART: _restart,
    Fault.TIMED_OUT: _timed_out,
    Fault.ABORTABLE: _abortable,
    Fault.REPEATED: _repeated,
    Fault.LATE: _late,
    Fault.REFUSED: _refused,
    Fault.SENT_TWICE: _sent_twice,
    Fault.CHANGED: _changed,
}


@dataclass(slots=True, kw_only=True)
class PlannedFault:
    """One fault: at the first call of this name, made by this role, from the n-th on.

    :param role: None for any.
    :param about: what the call's arguments must mention.
    :param after: counts calls of the process in which that one happened, from then on; None: any calls.
    :ivar process: in which it happened.
    """

    call: str
    fault: Fault
    number: int
    role: str | None = None
    about: str = ""
    after: PlannedFault | None = None
    fired: bool = False
    calls: int = 0
    process: object = None

    def __str__(self) -> str:
        role = f" of a {self.role}" if self.role else ""
        after = " after that" if self.after else ""
        return f"{self.fault.value} at {self.call} no. {self.number}{after}{role}"

    def happens(self, call: str, process: Process, arguments: tuple[Any, ...]) -> bool:
        """Count a call and say whether the fault happens at it."""
        if self.fired or call != self.call or (self.after is not None and self.after.process is not process):
            return False
        if self.about and self.about not in str(arguments):
            return False
        self.calls += 1
        self.fired = self.calls >= self.number and self.role in (None, process.role)
        if self.fired:
            self.process = process
        return self.fired


def plan_of(cell: tuple[str, Fault], random: Random) -> list[PlannedFault]:
    """Return the faults of a seed: one of its cell, and up to two more."""
    plan = [_planned(cell, random)]
    if cell == ("reader.pause", Fault.SECOND_OWNER):
        # The tasks of the last subtopology: their run can be finished under their hands.
        plan[0].number, plan[0].about, plan[0].role = random.randint(1, 2), "repartition", "task"
    if cell[0] == "writer.abort":
        # Nothing is aborted unless something failed before.
        first = random.choice(("writer.flush", "writer.send_offsets", "writer.commit"))
        fault = random.choice((Fault.ABORTABLE, Fault.ABORTABLE, Fault.ERROR))
        plan.append(PlannedFault(call=first, fault=fault, number=random.randint(1, 4), role="task"))
    if cell[1] is Fault.REPEATED and random.random() < 0.7:
        plan[0].role = random.choice(("task", "task", None))
        # What a repeated request did to a later transaction shows when that one comes to nothing.
        fault = random.choice((Fault.CRASH_BEFORE, Fault.ERROR, Fault.ABORTABLE))
        number = random.choice((1, 1, 2))
        plan.append(PlannedFault(call="writer.commit", fault=fault, number=number, after=plan[0]))
    plan += [_planned(random.choice(CELLS), random) for _ in range(random.choice((0, 0, 1, 1, 2)))]
    return plan


def plan_of_tables(cells: Sequence[tuple[str, Fault]], random: Random) -> list[PlannedFault]:
    """Return the faults of a seed that writes to tables: one for each cell, and what must come before."""
    plan = [_planned(cell, random) for cell in cells]
    for call, _ in cells:
        if call == "table.snapshots":
            # Nobody looks for a snapshot unless it was made and nobody knew.
            plan.insert(1, PlannedFault(call="table.commit", fault=Fault.LOST_ANSWER, number=1))
        elif call == "files.delete":
            # Files are deleted when their transaction surely failed.
            fault, number = random.choice((Fault.ABORTABLE, Fault.ERROR)), random.randint(1, 3)
            plan.append(PlannedFault(call="writer.send_offsets", fault=fault, number=number, role="task"))
    plan += [_planned(random.choice(CELLS), random) for _ in range(random.choice((0, 0, 1)))]
    taken: set[tuple[str, int]] = set()
    for planned in plan:
        # Of two faults at one call only the first would happen.
        while (planned.call, planned.number) in taken:
            planned.number += 1
        taken.add((planned.call, planned.number))
    return plan


def death_of_a_task(random: Random) -> PlannedFault:
    """Return the death of a task with state, between its commits."""
    return PlannedFault(
        call=random.choice(("writer.commit", "writer.send_offsets", "writer.produce")),
        fault=random.choice((Fault.CRASH_BEFORE, Fault.CRASH_AFTER)),
        number=random.randint(2, 30),
        role="task",
    )


def death_of_a_driver(random: Random) -> PlannedFault:
    """Return the death of a driver, mostly while it holds the lease that another one waits for."""
    return PlannedFault(
        call=random.choice(("reader.committed", "reader.poll", "writer.commit")),
        fault=Fault.CRASH_AFTER,
        number=random.randint(1, 25),
        role="driver",
    )


def _planned(cell: tuple[str, Fault], random: Random) -> PlannedFault:
    call, fault = cell
    often = _OFTEN.get(call, 10)
    # As likely between 1 and 2 as between 16 and 32: the beginnings are where runs differ.
    number = int(often ** random.random())
    return PlannedFault(call=call, fault=fault, number=max(1, number))
